"""Build the copy of a model that onnxruntime runs: marked names, nodes left out, probes on tensors; and its inputs."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from math import prod
from types import MappingProxyType
from zlib import crc32

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, version_converter

from onnxbisect.language import english, some
from onnxbisect.model.facts import size_of
from onnxbisect.model.scopes import bodies, qualified, reads, walk

#: For each node that is not run, the type of each output, or None for a copy of the node's first input.
StandIns = Mapping[int, Sequence[onnx.TypeProto | None]]
#: One set of values for the model's inputs, by name.
Sample = Mapping[str, np.ndarray]


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
        elif len(kinds) == 1 and node.input and node.input[0] and _may_be_like(kinds[0], types.get(node.input[0])):
            found[index] = [None]
    return found


def _may_be_like(declared: onnx.TypeProto | None, first: onnx.TypeProto | None) -> bool:
    """Whether an output may have the type of an input: exporters write custom ops with a name for each size."""
    if declared is None:
        return True
    if first is None or declared.tensor_type.elem_type != first.tensor_type.elem_type:
        return False
    if not (declared.tensor_type.HasField("shape") and first.tensor_type.HasField("shape")):
        return True
    ours, theirs = declared.tensor_type.shape.dim, first.tensor_type.shape.dim
    fixed = [(one.dim_value, other.dim_value) for one, other in zip(ours, theirs, strict=False) if one.dim_value]
    return len(ours) == len(theirs) and all(one == other or not other for one, other in fixed)


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


#: The oldest default opset of which onnxruntime has all ops.
_MIN_OPSET = 7
#: Attributes of older opsets: without effect on what a trained model computes, or with another name since.
_MEANINGLESS = frozenset({"consumed_inputs", "is_test", "broadcast"})
_RENAMED = {("Pad", "paddings"): "pads"}
#: The lowest IR version of the copy: 4 allows initializers that are no inputs, 8 functions, 10 overloads.
_MIN_IR = 10
_MARK = "onnxbisect_node_"
_MARK_PATTERN = re.compile(_MARK + r"(\d+)_")
_PROBE = "onnxbisect_tensor_"
_PROBE_PATTERN = re.compile(_PROBE + r"(\d+)_")
#: Dtypes that numpy and onnxruntime's Python API cannot exchange, and the wider dtype that carries them without loss.
CARRIERS: dict[int, int] = {
    dtype: carrier
    for name, carrier in {
        "BFLOAT16": TensorProto.FLOAT,
        "FLOAT8E4M3FN": TensorProto.FLOAT,
        "FLOAT8E4M3FNUZ": TensorProto.FLOAT,
        "FLOAT8E5M2": TensorProto.FLOAT,
        "FLOAT8E5M2FNUZ": TensorProto.FLOAT,
        "INT4": TensorProto.INT8,
        "UINT4": TensorProto.UINT8,
    }.items()
    for dtype in (TensorProto.DataType.Value(name),)
}


def select(
    graph: onnx.GraphProto,
    wanted: Collection[int],
    missing: Collection[str],
    given: Collection[str],
    substitutes: StandIns = MappingProxyType({}),
) -> list[int]:
    """The nodes of `wanted` that can run.

    Excludes nodes that depend on a tensor of `missing` or on an excluded node, and nodes that produce a tensor of
    `given`, which needs no producer. A node of `substitutes` all of whose outputs are fed depends on nothing.
    """
    fed = {index for index, kinds in substitutes.items() if is_fed(graph.node[index], kinds)}
    gone = set(missing).difference(given)
    chosen: list[int] = []
    for index, node in enumerate(graph.node):
        there = index in fed or gone.isdisjoint(reads(node))
        if index in wanted and there and not any(name in given for name in node.output):
            chosen.append(index)
        else:
            gone.update(name for name in node.output if name and name not in given)
    return chosen


def assemble(
    proto: onnx.ModelProto,
    nodes: Iterable[int],
    given: Mapping[str, np.ndarray],
    substitutes: StandIns,
) -> tuple[onnx.ModelProto, list[onnx.ValueInfoProto]]:
    """A model of these nodes, without outputs, and the tensors to feed (under the names that `fed_name` returns).

    Each node's name, also in subgraphs, is replaced by its index in `proto.graph.node`, which `culprit` extracts from
    an error message. Tensors of `given` become initializers. A node of `substitutes` does not run: an output with a
    type there becomes an input to feed, one without becomes a copy of the node's first input.
    """
    run = onnx.ModelProto()
    run.ir_version = max(proto.ir_version, _MIN_IR)
    run.opset_import.extend(proto.opset_import)
    if not any(entry.domain in ("", "ai.onnx") for entry in run.opset_import):
        run.opset_import.append(helper.make_opsetid("", 17))
    run.functions.extend(proto.functions)
    graph = run.graph
    graph.name = "onnxbisect"
    used: set[str] = set()
    inputs: list[onnx.ValueInfoProto] = []
    for index in nodes:
        node = proto.graph.node[index]
        if index not in substitutes or not is_fed(node, substitutes[index]):
            used.update(reads(node))
        if index in substitutes:
            for name, kind in zip(node.output, substitutes[index], strict=True):
                if kind is not None:
                    inputs.append(helper.make_value_info(name, kind))
                elif name:
                    graph.node.append(helper.make_node("Identity", node.input[:1], [name], name=f"{_MARK}{index}_0"))
            continue
        graph.node.append(node)
        for position, inner in enumerate(walk([graph.node[-1]])):
            inner.name = f"{_MARK}{index}_{position}"
            for body in bodies(inner):
                del body.value_info[:]
    graph.initializer.extend(tensor for tensor in proto.graph.initializer if tensor.name in used)
    graph.sparse_initializer.extend(tensor for tensor in proto.graph.sparse_initializer if tensor.values.name in used)
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in given.items() if name in used)
    inputs.extend(value for value in proto.graph.input if value.name in used and value.name not in given)
    for value in inputs:
        add_input(graph, value)
    return _modern(run), inputs


def _modern(run: onnx.ModelProto) -> onnx.ModelProto:
    """The model at the oldest opset of which onnxruntime has all ops, if it is older.

    What onnx cannot convert is tried as it is, without the attributes that meant nothing but memory and training.
    """
    opset = next((entry for entry in run.opset_import if entry.domain in ("", "ai.onnx")), None)
    if opset is None or opset.version >= _MIN_OPSET:
        return run
    try:
        return version_converter.convert_version(run, _MIN_OPSET)
    except Exception:  # it raises what its C++ code does: RuntimeError and others
        opset.version = _MIN_OPSET
    for node in walk(run.graph):
        kept = [attribute for attribute in node.attribute if attribute.name not in _MEANINGLESS]
        del node.attribute[:]
        node.attribute.extend(kept)
        for attribute in node.attribute:
            attribute.name = _RENAMED.get((node.op_type, attribute.name), attribute.name)
    return run


def fed_dtype(dtype: int) -> np.dtype:
    """numpy's type of what is fed to a tensor of this element type: a wider one where numpy lacks its own."""
    return np.dtype(helper.tensor_dtype_to_np_dtype(CARRIERS.get(dtype, dtype)))


def add_input(graph: onnx.GraphProto, value: onnx.ValueInfoProto) -> None:
    """Add a tensor to feed, named by `fed_name`, in its carrier dtype where numpy lacks its own."""
    dtype = value.type.tensor_type.elem_type
    if dtype not in CARRIERS:
        graph.input.append(value)
        return
    fed = graph.input.add()
    fed.CopyFrom(value)
    fed.name = f"{_PROBE}fed_{value.name}"
    fed.type.tensor_type.elem_type = CARRIERS[dtype]
    graph.node.insert(0, helper.make_node("Cast", [fed.name], [value.name], to=dtype))


def fed_name(value: onnx.ValueInfoProto) -> str:
    """The name under which the model of `assemble` takes a graph input."""
    return f"{_PROBE}fed_{value.name}" if value.type.tensor_type.elem_type in CARRIERS else value.name


def probe_shape(run: onnx.ModelProto, tensor: str, number: int) -> str:
    """Add an output with a tensor's shape, so that the tensor itself can be freed; returns the output's name."""
    name = f"{_PROBE}{number}_shape"
    run.graph.node.append(helper.make_node("Shape", [tensor], [name], name=name))
    run.graph.output.append(helper.make_empty_tensor_value_info(name))
    return name


def probe_value(run: onnx.ModelProto, tensor: str, number: int, dtype: int) -> str:
    """Add an output with a tensor's value, in its carrier dtype where numpy needs one; returns the output's name."""
    name = f"{_PROBE}{number}_value"
    carrier = CARRIERS.get(dtype)
    node = (
        helper.make_node("Identity", [tensor], [name], name=name)
        if carrier is None
        else helper.make_node("Cast", [tensor], [name], name=name, to=carrier)
    )
    run.graph.node.append(node)
    run.graph.output.append(helper.make_empty_tensor_value_info(name))
    return name


def nodes_of_one_op(graph: onnx.GraphProto, node: int, among: Iterable[int]) -> set[int]:
    """The nodes of these that have the op of this node."""
    return {index for index in among if qualified(graph.node[index]) == qualified(graph.node[node])}


def culprit(message: str) -> int | None:
    """The index of the first node named in an error message of onnxruntime; None where it names none."""
    found = _MARK_PATTERN.search(message)
    return int(found.group(1)) if found else None


def refused_probe(message: str) -> int | None:
    """The number of the first tensor probe named in an error message of onnxruntime; None where it names none."""
    found = _PROBE_PATTERN.search(message)
    return int(found.group(1)) if found else None


def unmarked(message: str, graph: onnx.GraphProto) -> str:
    """The message with the original node names."""
    return re.sub(_MARK_PATTERN.pattern + r"\d+", lambda mark: graph.node[int(mark.group(1))].name, message)


class Fill(StrEnum):
    """How generated inputs are filled; where a model refuses the numbers of one fill, the next is tried."""

    #: Floats uniform in [0, 1), integers 0 or 1, booleans alternating.
    RANDOM = "random"
    ZEROS = "zeros"
    ONES = "ones"


def feed(value: onnx.ValueInfoProto, fill: Fill, sample: int = 0) -> np.ndarray:
    """Data for a tensor input whose dimensions are bound; in a wider dtype where numpy lacks its own.

    With a random fill, different `sample` numbers give different data.
    """
    dtype = value.type.tensor_type.elem_type
    shape = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
    if dtype == TensorProto.STRING:
        return np.full(shape, "", dtype=object)
    kind = fed_dtype(dtype)
    if fill is not Fill.RANDOM:
        return np.full(shape, fill is Fill.ONES).astype(kind)
    random = np.random.default_rng(crc32(value.name.encode(), sample))
    if kind == np.bool_:
        alternating: np.ndarray = np.arange(prod(shape)) % 2 == 0
        return alternating.reshape(shape)
    if kind.kind in "iu":
        return random.integers(0, 2, size=shape).astype(kind)
    if kind.kind == "c":
        return (random.random(shape) + 1j * random.random(shape)).astype(kind)
    return random.random(shape, dtype=np.float32).astype(kind)
