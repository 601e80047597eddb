"""Replace custom ops in a run, so that the nodes that depend on them can run."""

from collections.abc import Iterable, Mapping, Sequence

import onnx

from onnxbisect.language import english
from onnxbisect.model.footprint import size_of
from onnxbisect.model.scopes import qualified
from onnxbisect.model.wording import some

#: For each node that is not run, the type of each output, or None for a copy of the node's first input.
StandIns = Mapping[int, Sequence[onnx.TypeProto | None]]


def stand_ins(
    graph: onnx.GraphProto,
    opaque: Iterable[int],
    types: Mapping[str, onnx.TypeProto],
    declared: Mapping[str, onnx.TypeProto],
) -> StandIns:
    """Replacements for opaque nodes: outputs of known types or, for a single output without one, a copy of the input.

    Nodes for which neither works are left out.
    """
    found: dict[int, Sequence[onnx.TypeProto | None]] = {}
    for index in opaque:
        node = graph.node[index]
        kinds = [types.get(name) or declared.get(name) for name in node.output]
        outputs = [kind for name, kind in zip(node.output, kinds, strict=True) if name]
        if all(kind is not None and size_of(kind) is not None for kind in outputs):
            found[index] = kinds
        elif kinds == [None] and node.input and node.input[0]:
            found[index] = [None]
    return found


def is_fed(node: onnx.NodeProto, kinds: Sequence[onnx.TypeProto | None]) -> bool:
    """Whether all outputs are made up, so that the node's inputs do not matter."""
    return all(kind is not None for name, kind in zip(node.output, kinds, strict=True) if name)


def agrees(outputs: Iterable[onnx.ValueInfoProto], shapes: Mapping[str, Sequence[int]]) -> bool:
    """Whether the computed shapes of graph outputs match the dimensions that the file declares."""
    for value in outputs:
        if value.name not in shapes or not value.type.tensor_type.HasField("shape"):
            continue
        dims, shape = value.type.tensor_type.shape.dim, shapes[value.name]
        if len(dims) != len(shape):
            return False
        if any(dim.HasField("dim_value") and dim.dim_value != size for dim, size in zip(dims, shape, strict=True)):
            return False
    return True


def assumptions(graph: onnx.GraphProto, used: StandIns) -> list[str]:
    """Sentences for the user about the assumed outputs."""
    copied = dict.fromkeys(qualified(graph.node[index]) for index, kinds in used.items() if kinds == [None])
    declared = dict.fromkeys(qualified(graph.node[index]) for index, kinds in used.items() if kinds != [None])
    notes = []
    if copied:
        notes.append(
            english(
                "{names} cannot be run here: the output is assumed to have the type and shape of the first "
                "input, with which later nodes run.",
                names=some(list(copied)),
            )
        )
    if declared:
        notes.append(
            english(
                "{names} cannot be run here: their output types are those that the file declares.",
                names=some(list(declared)),
            )
        )
    return notes
