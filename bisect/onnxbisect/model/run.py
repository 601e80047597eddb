"""Run the model once in onnxruntime, without optimisation, for the shape of every tensor and the values of some.

Where a run on made-up inputs fails, or its sizes hold for these inputs only, types are believed.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from onnxbisect.fingerprint import brief
from onnxbisect.language import english, some
from onnxbisect.model import runnable
from onnxbisect.model.binding import is_unbound
from onnxbisect.model.facts import dims_of
from onnxbisect.model.input_values import compared_values
from onnxbisect.model.scopes import qualified, reads
from onnxbisect.model.session import Clock, Session

#: Runs tried before giving up. The first failures exclude single nodes, later ones all nodes of an op type.
_ATTEMPTS = 24
_ONE_BY_ONE = 6


@dataclass(frozen=True, kw_only=True)
class Run:
    """The result of a run.

    `shapes` holds the shape of each tensor that has one, `values` the requested values that were computed. `dtypes` are
    the ONNX element types, found by onnxruntime, of tensors in `shapes` whose dtype was not given.
    `ran` are the indices of the nodes that ran. `refused` maps each node that onnxruntime could not load or run to its
    error message, without the nodes that were skipped because they depend on such a node.
    `costly` are the nodes that exceeded the limits of time or memory and should not run again.
    """

    shapes: Mapping[str, tuple[int, ...]]
    values: Mapping[str, np.ndarray]
    dtypes: Mapping[str, int]
    ran: frozenset[int]
    refused: Mapping[int, str]
    costly: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """The nodes of a model to run, and what is known of its tensors.

    `missing` are tensors that cannot be fed. `given` replaces tensors by values. `values` are the tensors whose values
    to return. `dtypes` are the element types known so far. `unshaped` are tensors without a shape (sequences,
    optionals). `substitutes` are nodes that are replaced instead of run (`runnable.assemble`). `sample` has values of
    inputs, which are tried before made-up ones.
    """

    proto: onnx.ModelProto
    folder: Path
    nodes: Collection[int]
    missing: Collection[str]
    given: Mapping[str, np.ndarray]
    values: Collection[str]
    dtypes: Mapping[str, int]
    unshaped: Collection[str]
    substitutes: runnable.StandIns
    sample: runnable.Sample


def run(request: RunRequest, clock: Clock) -> Run:
    """Run as many of the nodes as possible.

    A run on made-up inputs in which tensors are empty is repeated on others: a size of 0 is seldom what the model is
    used at, and compilers refuse it whatever op it stands at.
    """
    proto = request.proto
    wanted = set(request.nodes)
    refused: dict[int, str] = {}
    skip_probes: set[str] = set(request.unshaped)
    chosen_values = filter(None, (request.sample, compared_values(proto.graph, request.given)))
    fills = [*((runnable.Fill.RANDOM, values) for values in chosen_values), *((fill, {}) for fill in runnable.Fill)]
    costly: set[int] = set()
    for _ in range(_ATTEMPTS):
        if clock.left <= 0:
            break
        chosen = runnable.select(proto.graph, wanted, request.missing, request.given, request.substitutes)
        if not chosen:
            break
        attempt = _Attempt(request, chosen, skip_probes)
        try:
            found = attempt.run(*fills[0], frozenset(chosen), refused, clock)
            if fills[0][1] is not request.sample and _empty(found):
                found = min(found, *attempt.with_ones(fills[0][1], found, clock), key=_empty)
            return replace(found, costly=frozenset(costly))
        except Exception as error:  # onnxruntime's exceptions share no base class but this
            words = str(error)
        exhausted = ""
        if attempt.timed_out:
            exhausted = english("takes too long here")
        elif any(it in words for it in ("Failed to allocate memory", "bad_alloc", "bad allocation")):
            exhausted = english("takes too much memory")
        tensor = attempt.refused_probe(words)
        node = runnable.culprit(words)
        if tensor is not None:
            skip_probes.add(tensor)
        elif "Non-zero status code" in words and len(fills) > 1 and not exhausted:
            del fills[0]
        elif node is None:
            refused.update(dict.fromkeys(chosen, words))
            break
        else:
            gone = (
                runnable.nodes_of_one_op(proto.graph, node, wanted)
                if len(refused) >= _ONE_BY_ONE or exhausted
                else {node}
            )
            wanted -= gone
            refused[node] = exhausted or words
            if exhausted:
                costly |= gone
    return Run(shapes={}, values={}, dtypes={}, ran=frozenset(), refused=refused, costly=frozenset(costly))


def _empty(found: Run) -> int:
    """How many tensors of a run have no elements."""
    return sum(0 in shape for shape in found.shapes.values())


def types_of_runtime(
    proto: onnx.ModelProto,
    folder: Path,
    nodes: Collection[int],
    given: Mapping[str, np.ndarray],
    tensors: Sequence[str],
) -> dict[str, onnx.TypeProto]:
    """The types of these tensors that onnxruntime finds without a run, by its own schemas; empty where it fails."""
    model, _ = runnable.assemble(proto, nodes, given, {})
    model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in tensors)
    try:
        session = Session(model, folder)
    except Exception:  # onnxruntime's exceptions share no base class but this
        return {}
    return {
        name: helper.make_tensor_type_proto(_dtype(kind), session.shapes[name])
        for name, kind in session.outputs.items()
        if kind.startswith("tensor(")
    }


class _Attempt:
    """Some nodes of a request as a model of their own, without the outputs in `skip`."""

    def __init__(self, request: RunRequest, chosen: Collection[int], skip: Collection[str]) -> None:
        self.timed_out = False
        self._folder = request.folder
        self._dtypes = request.dtypes
        self._model, self._inputs = runnable.assemble(request.proto, chosen, request.given, request.substitutes)
        made = (name for index in chosen for name in request.proto.graph.node[index].output)
        self._tensors = [name for name in made if name and name not in skip]
        self._shape_outputs: dict[str, str] = {}
        self._value_outputs: dict[str, str] = {}
        for number, name in enumerate(self._tensors):
            self._shape_outputs[name] = runnable.probe_shape(self._model, name, number)
            if name in request.values:
                dtype = request.dtypes.get(name, 0)
                self._value_outputs[name] = runnable.probe_value(self._model, name, number, dtype)

    def refused_probe(self, words: str) -> str | None:
        number = runnable.refused_probe(words)
        return None if number is None else self._tensors[number]

    def run(
        self,
        fill: runnable.Fill,
        chosen: Mapping[str, np.ndarray],
        ran: frozenset[int],
        refused: Mapping[int, str],
        clock: Clock,
    ) -> Run:
        session = Session(self._model, self._folder)
        names = [*self._shape_outputs.values(), *self._value_outputs.values()]
        feeds = {
            runnable.fed_name(value): chosen[value.name] if value.name in chosen else runnable.feed(value, fill)
            for value in self._inputs
        }
        try:
            results = dict(zip(names, session.run(names, feeds, clock), strict=True)) if names else {}
        finally:
            self.timed_out = session.timed_out
        del session
        values = {name: results[out] for name, out in self._value_outputs.items()}
        for name, array in values.items():
            dtype = self._dtypes.get(name, 0)
            if dtype in runnable.CARRIERS:
                values[name] = array.astype(helper.tensor_dtype_to_np_dtype(dtype))
        return Run(
            shapes={name: tuple(results[out].tolist()) for name, out in self._shape_outputs.items()},
            values=values,
            dtypes=self._missing_dtypes(),
            ran=ran,
            refused=refused,
        )

    def with_ones(self, chosen: Mapping[str, np.ndarray], found: Run, clock: Clock) -> list[Run]:
        """The same run on inputs of ones, as a list of one; empty where it fails."""
        try:
            return [self.run(runnable.Fill.ONES, chosen, found.ran, found.refused, clock)]
        except Exception:  # onnxruntime's exceptions share no base class but this
            return []

    def _missing_dtypes(self) -> dict[str, int]:
        """Load a second session to find the element types that inference did not find; runs nothing."""
        names = [name for name in self._tensors if name not in self._dtypes]
        if not names:
            return {}
        del self._model.graph.output[:]
        self._model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
        outputs = Session(self._model, self._folder).outputs
        return {name: _dtype(kind) for name, kind in outputs.items() if kind.startswith("tensor(")}


#: onnxruntime's spelling of element types, where it is not the ONNX name in lower case.
_SPELLED = {"float": "FLOAT", "double": "DOUBLE"}


def _dtype(text: str) -> int:
    name = text.removeprefix("tensor(").removesuffix(")")
    return int(onnx.TensorProto.DataType.Value(_SPELLED.get(name, name.upper())))


Types = Mapping[str, onnx.TypeProto]


@dataclass(frozen=True, kw_only=True)
class Beliefs:
    """`nodes` are replaced by the types of their outputs: those of `refused` do not run, with onnxruntime's words, the
    others have other sizes for other values of the inputs.
    """

    nodes: runnable.StandIns = field(default_factory=dict)
    refused: Mapping[int, str] = field(default_factory=dict)

    def with_more(self, typed: runnable.StandIns, sized: runnable.StandIns, words: Mapping[int, str]) -> "Beliefs":
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
            words = brief(runnable.unmarked(next(iter(self.refused.values())), graph))
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


def known_otherwise(graph: onnx.GraphProto, nodes: Iterable[int], sources: Sequence[Types]) -> runnable.StandIns:
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
) -> runnable.StandIns:
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
        named = {name: kind for name, kind in zip(node.output, kinds, strict=True) if kind is not None}
        if known_otherwise(graph, [index], [named]):
            found[index] = kinds
    return found


def _kind(name: str, run: Run, types: Types, sizes: Mapping[str, Sequence[int]]) -> onnx.TypeProto | None:
    """The type of the run, with other dimensions where there are any."""
    dtype = types[name].tensor_type.elem_type if name in types else run.dtypes.get(name, 0)
    if not name or not dtype or name not in run.shapes:
        return None
    return helper.make_tensor_type_proto(dtype, sizes.get(name, run.shapes[name]))
