"""A file remedy: one change of a whole model file, with what is known of its tensors, that answers a finding.

Its edits leave all other nodes, names and tensors unchanged.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx

from onnxbisect.cut.rename import rename_tensors, tensor_names
from onnxbisect.model import Established, Model
from onnxbisect.model.facts import TensorFacts
from onnxbisect.model.load import MEMORY_LIMIT
from onnxbisect.model.model import Allowance, Bounded, ExceededError, directly
from onnxbisect.model.read import original
from onnxbisect.model.scopes import bodies, constant_names, every_node, reads, walk
from onnxbisect.model.shapes import establish
from onnxbisect.preflight import ToolLimits
from onnxbisect.rewrites import Exactness

#: Most bytes of a resulting file: protobuf ends at 2 GB.
LARGEST_FILE = (1 << 31) - (1 << 20)


@dataclass(frozen=True, kw_only=True, eq=False)
class File:
    """`proto` is the file as stored, or after remedies; it is never modified.

    `types` and `known` are about tensors of its main graph, as in `Model`, for the dimensions of `inputs`: the graph
    inputs with the dimensions that the user bound. Dimensions that depend on input values are not in `types`.
    """

    proto: onnx.ModelProto
    types: Mapping[str, onnx.TypeProto]
    known: Mapping[str, np.ndarray]
    folder: Path
    inputs: Mapping[str, onnx.TypeProto] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Model) -> "File":
        """The file that a model was read from."""
        return cls(
            proto=original(model),
            types=model.types,
            known=model.known,
            folder=model.path.parent,
            inputs={value.name: value.type for value in model.proto.graph.input},
        )

    @property
    def facts(self) -> TensorFacts:
        """The same facts for rules of single nodes."""
        return TensorFacts(self.proto, self.types, self.known, self.folder)

    def after(self, proto: onnx.ModelProto, types: Mapping[str, onnx.TypeProto] | None = None) -> "File":
        """The file after a change that added no tensors but those of `types`."""
        return replace(self, proto=proto, types={**self.types, **(types or {})})

    def examined(self, bounded: Bounded = directly) -> "File":
        """The file with facts about new tensors, found by running it; its nodes must be sorted.

        Facts that cannot be established within the allowance stay unknown.
        """
        allowance = Allowance.of(self.proto.ByteSize(), len(self.proto.graph.node))
        try:
            found = bounded(partial(_establish, self.proto, self.folder, allowance), allowance)
        except ExceededError:
            return self
        return replace(self, types={**self.types, **found.types}, known={**self.known, **found.known})


def _establish(proto: onnx.ModelProto, folder: Path, allowance: Allowance) -> Established:
    plain = onnx.ModelProto()
    plain.CopyFrom(proto)
    constants = constant_names(plain.graph)
    for index in reversed(range(len(plain.graph.input))):
        if plain.graph.input[index].name in constants:
            del plain.graph.input[index]
    facts = establish(plain, folder, {}, memory_limit=min(MEMORY_LIMIT, allowance.memory), seconds=allowance.seconds)
    return Established(
        types=facts.types, known=facts.known, data_dependent=facts.data_dependent, notes=(), costly=facts.costly
    )


@dataclass(frozen=True, kw_only=True)
class RemediedFile:
    """A changed copy of a file. `sentence` says what was changed, without a full stop.

    `exactness` is None if it is that of the remedy. `types` are those of new tensors. `structure` says that nodes were
    added whose tensors are still unknown.
    """

    proto: onnx.ModelProto
    sentence: str
    exactness: Exactness | None = None
    types: Mapping[str, onnx.TypeProto] | None = None
    structure: bool = False


#: Changes a file for a tool. Raises NotApplicable, with the reason, if there is nothing to change or it is impossible.
Apply = Callable[[File, ToolLimits], RemediedFile]


@dataclass(frozen=True, kw_only=True)
class FileRemedy:
    """`answers` are the ids of the findings after which it is tried. `domain` are the values for which it holds, if not
    all.
    """

    id: str
    answers: tuple[str, ...]
    exactness: Exactness
    summary: str
    apply: Apply
    domain: str = ""


def file_remedy(
    id: str,  # noqa: A002 - what it is called everywhere else
    *,
    answers: str,
    exactness: Exactness = Exactness.EXACT,
    domain: str = "",
) -> Callable[[Apply], FileRemedy]:
    """Make a remedy of a function, whose docstring becomes the summary. `answers` are separated by spaces."""

    def made(apply: Apply) -> FileRemedy:
        return FileRemedy(
            id=id,
            answers=tuple(answers.split()),
            exactness=exactness,
            summary=" ".join((apply.__doc__ or "").split()),
            apply=apply,
            domain=domain,
        )

    return made


def copied(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy that may be changed."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    return copy


def node_copy(node: onnx.NodeProto) -> onnx.NodeProto:
    """A copy that belongs to no graph."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    return copy


def set_nodes(owner: onnx.GraphProto | onnx.FunctionProto, nodes: Sequence[onnx.NodeProto]) -> None:
    """Replace the nodes of a graph or function; the new nodes may be among the present ones."""
    copies = [node_copy(node) for node in nodes]
    del owner.node[:]
    owner.node.extend(copies)


def every_name(graph: onnx.GraphProto) -> set[str]:
    """The names of all tensors and nodes of a graph, including its subgraphs."""
    return tensor_names(graph) | {node.name for node in walk(graph)}


def beginnings(names: Iterable[str]) -> set[str]:
    """All prefixes of the names that end before a slash."""
    return {name[: place + 1] for name in names for place, sign in enumerate(name) if sign == "/"}


def declared_values(model: onnx.ModelProto) -> Iterator[onnx.ValueInfoProto]:
    """What the main graph, its subgraphs and the functions declare."""
    for graph in (model.graph, *(body for node in every_node(model) for body in bodies(node))):
        yield from (*graph.input, *graph.output, *graph.value_info)
    for function in model.functions:
        yield from function.value_info


def unused_prefix(wanted: str, taken: set[str]) -> str:
    """A prefix of names that is not in `taken`, with a slash at its end; it is added to `taken`."""
    prefix, count = f"{wanted}/", 1
    while prefix in taken:
        count += 1
        prefix = f"{wanted}_{count}/"
    taken.add(prefix)
    return prefix


def read_instead(nodes: Iterable[onnx.NodeProto], instead: Mapping[str, str]) -> None:
    """Make nodes and their subgraphs read other tensors."""
    for node in nodes:
        for slot, name in enumerate(node.input):
            if name in instead:
                node.input[slot] = instead[name]
        for body in bodies(node):
            rename_tensors(body, instead)


def drop_unread(graph: onnx.GraphProto, suspects: Iterable[str]) -> None:
    """Remove those `suspects` that nothing reads any more, and the nodes that only they needed."""
    readers = Counter(name for node in graph.node for name in reads(node))
    readers.update(value.name for value in graph.output)
    readers.update(value.name for value in graph.input)
    makers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    gone: set[int] = set()
    unread: set[str] = set()
    work = list(suspects)
    while work:
        name = work.pop()
        if readers[name] or name in unread:
            continue
        index = makers.get(name)
        if index is not None and any(readers[output] for output in graph.node[index].output if output):
            continue
        unread.add(name)
        if index is None or index in gone:
            continue
        gone.add(index)
        unread.update(output for output in graph.node[index].output if output)
        for read in reads(graph.node[index]):
            readers[read] -= 1
            work.append(read)
    for index in sorted(gone, reverse=True):
        del graph.node[index]
    forget(graph, unread)


def forget(graph: onnx.GraphProto, names: Collection[str]) -> None:
    """Remove the initializers and the declared types of these tensors."""
    for index in reversed(range(len(graph.initializer))):
        if graph.initializer[index].name in names:
            del graph.initializer[index]
    for index in reversed(range(len(graph.sparse_initializer))):
        if graph.sparse_initializer[index].values.name in names:
            del graph.sparse_initializer[index]
    for index in reversed(range(len(graph.value_info))):
        if graph.value_info[index].name in names:
            del graph.value_info[index]


def annotated(graph: onnx.GraphProto) -> set[str]:
    """The tensors that the graph's quantization annotations name."""
    names = {annotation.tensor_name for annotation in graph.quantization_annotation}
    for annotation in graph.quantization_annotation:
        names.update(parameter.value for parameter in annotation.quant_parameter_tensor_names)
    return names
