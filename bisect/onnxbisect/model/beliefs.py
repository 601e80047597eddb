"""Types that are believed where a run on made-up inputs fails, or where its sizes hold for these inputs only."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx
from onnx import helper

from onnxbisect.language import english
from onnxbisect.model.binding import is_unbound
from onnxbisect.model.footprint import dims_of
from onnxbisect.model.run import Run
from onnxbisect.model.runnable import StandIns, unmarked
from onnxbisect.model.scopes import qualified, reads
from onnxbisect.model.wording import brief, some

Types = Mapping[str, onnx.TypeProto]


@dataclass(frozen=True, kw_only=True)
class Beliefs:
    """`nodes` are replaced by the types of their outputs: those of `refused` do not run, with onnxruntime's words, the
    others have other sizes for other values of the inputs.
    """

    nodes: StandIns = field(default_factory=dict)
    refused: Mapping[int, str] = field(default_factory=dict)

    def with_more(self, typed: StandIns, sized: StandIns, words: Mapping[int, str]) -> "Beliefs":
        """These and more: nodes that do not run, and nodes that have other sizes."""
        return Beliefs(
            nodes={**self.nodes, **sized, **typed}, refused={**self.refused, **{index: words[index] for index in typed}}
        )

    def tensors(self, graph: onnx.GraphProto) -> set[str]:
        """The outputs of the nodes."""
        return {name for index in self.nodes for name in graph.node[index].output if name}

    def notes(self, graph: onnx.GraphProto) -> list[str]:
        """Sentences for the user."""
        notes = []
        if self.refused:
            ops = dict.fromkeys(qualified(graph.node[index]) for index in self.refused)
            words = brief(unmarked(next(iter(self.refused.values())), graph))
            notes.append(
                english(
                    "onnxruntime does not run {names} on made-up inputs ({words}): types of their outputs "
                    "are those that the file declares, or follow from the op.",
                    names=some(list(ops)),
                    words=words,
                )
            )
        sized = [name for index in self.nodes if index not in self.refused for name in graph.node[index].output if name]
        if sized:
            notes.append(
                english(
                    "Shapes that may depend on input values are those that the file declares: {names}.",
                    names=some(sized),
                )
            )
        return notes


def is_static(kind: onnx.TypeProto | None) -> bool:
    """Whether this is a tensor type with a dtype and all dimensions."""
    return kind is not None and kind.tensor_type.elem_type != 0 and not is_unbound(kind)


def untyped(graph: onnx.GraphProto, nodes: Iterable[int], sources: Sequence[Types]) -> list[str]:
    """The outputs of these nodes of which no source has a static type."""
    names = (name for index in nodes for name in graph.node[index].output if name)
    return [name for name in names if not any(is_static(types.get(name)) for types in sources)]


def known_otherwise(graph: onnx.GraphProto, nodes: Iterable[int], sources: Sequence[Types]) -> StandIns:
    """Replacements for the nodes all of whose outputs have a static type, of the first source that has one."""
    found: dict[int, Sequence[onnx.TypeProto | None]] = {}
    for index in nodes:
        names = graph.node[index].output
        kinds = [next((it[name] for it in sources if is_static(it.get(name))), None) for name in names]
        if all(kind is not None for name, kind in zip(names, kinds, strict=True) if name):
            found[index] = kinds
    return found


def declared_otherwise(
    graph: onnx.GraphProto, run: Run, types: Types, declared: Types, certain: Collection[str]
) -> StandIns:
    """Replacements for nodes whose sizes in the run are not those that the file declares.

    Only tensors that are not `certain` count: their shape may depend on values of inputs, which were made up. Nodes
    behind such a node are left out, because with the declared size they may have the declared one, too. Where a tensor
    that the file does not declare had the size of one that it does, it gets the declared size; the next run shows
    whether that fits.
    """
    makers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}

    def doubtful(name: str) -> bool:
        return name in makers and name in run.shapes and name not in certain

    def first(name: str) -> list[str]:
        """The doubtful tensors from which this one has its size, itself if there are none."""
        work, seen, origins = [name], set[str](), []
        while work:
            at = work.pop()
            seen.add(at)
            before = [
                it
                for it in reads(graph.node[makers[at]])
                if doubtful(it) and run.shapes[it] == run.shapes[name] and not is_static(declared.get(it))
            ]
            work += [it for it in before if it not in seen]
            origins += [] if before else [at]
        return origins

    sizes: dict[str, Sequence[int]] = {}
    behind: set[str] = set()
    for node in graph.node:
        if not behind.isdisjoint(reads(node)):
            behind.update(filter(None, node.output))
            continue
        for name in node.output:
            if doubtful(name) and is_static(declared.get(name)) and dims_of(declared[name]) != run.shapes[name]:
                sizes |= dict.fromkeys(first(name), dims_of(declared[name]))
                behind.update(filter(None, node.output))
    found: dict[int, Sequence[onnx.TypeProto | None]] = {}
    for index in sorted({makers[name] for name in sizes}):
        node = graph.node[index]
        kinds = [_kind(name, run, types, sizes) for name in node.output]
        if known_otherwise(graph, [index], [_named(node, kinds)]):
            found[index] = kinds
    return found


def _kind(name: str, run: Run, types: Types, sizes: Mapping[str, Sequence[int]]) -> onnx.TypeProto | None:
    """The type of the run, with other dimensions where there are any."""
    dtype = types[name].tensor_type.elem_type if name in types else run.dtypes.get(name, 0)
    if not name or not dtype or name not in run.shapes:
        return None
    return helper.make_tensor_type_proto(dtype, sizes.get(name, run.shapes[name]))


def _named(node: onnx.NodeProto, kinds: Sequence[onnx.TypeProto | None]) -> dict[str, onnx.TypeProto]:
    return {name: kind for name, kind in zip(node.output, kinds, strict=True) if kind is not None}
