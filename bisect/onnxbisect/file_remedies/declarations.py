"""What a file declares: its inputs, the types and shapes of its tensors, the order of its nodes."""

from collections.abc import Collection, Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxbisect.exactness import Exactness
from onnxbisect.file_remedies.remedy import (
    LARGEST_FILE,
    File,
    RemediedFile,
    copied,
    declared_values,
    drop_unread,
    file_remedy,
    forget,
    set_nodes,
)
from onnxbisect.language import count, english, quoted, shortened
from onnxbisect.model.binding import is_unbound
from onnxbisect.model.external import array_of, tensors
from onnxbisect.model.facts import dims_of
from onnxbisect.model.opaque import GENERATORS, drawing
from onnxbisect.model.order import another_order, depth_first, is_topological, make_unique
from onnxbisect.model.pools import batch_pools
from onnxbisect.model.scopes import constant_names, domain_of, every_node, is_constant
from onnxbisect.preflight import ToolLimits, contradict, type_text
from onnxbisect.rewrites import NotApplicable

#: Up to this IR version an initializer must be an input.
_INITIALIZERS_ARE_INPUTS = 3


@file_remedy("sort-nodes", answers="not-topologically-sorted")
def sort_nodes(file: File, limits: ToolLimits) -> RemediedFile:
    """Nodes behind those whose results they read."""
    graph = file.proto.graph
    if is_topological(graph):
        raise NotApplicable("the nodes are sorted")
    result = copied(file.proto)
    set_nodes(result.graph, [graph.node[index] for index in depth_first(graph)])
    return RemediedFile(proto=result, sentence="nodes sorted")


@file_remedy("reorder-nodes", answers="")
def reorder_nodes(file: File, limits: ToolLimits) -> RemediedFile:
    """Nodes in another order: one branch before the next, or by depth where they have that order already."""
    graph = file.proto.graph
    order = another_order(graph)
    if order is None:
        raise NotApplicable("the nodes have one order only")
    result = copied(file.proto)
    set_nodes(result.graph, [graph.node[index] for index in order])
    return RemediedFile(proto=result, sentence="nodes in another order")


@file_remedy("name-nodes", answers="duplicate-node-name")
def name_nodes(file: File, limits: ToolLimits) -> RemediedFile:
    """A name of its own for every node of the main graph, where nodes share one."""
    names = [node.name for node in file.proto.graph.node if node.name]
    if len(set(names)) == len(names):
        raise NotApplicable("no two nodes share a name")
    result = copied(file.proto)
    given = make_unique(result.graph.node)
    return RemediedFile(proto=result, sentence=english("{nodes} named", nodes=count(len(given), "node")))


@file_remedy("name-nameless-nodes", answers="")
def name_nameless_nodes(file: File, limits: ToolLimits) -> RemediedFile:
    """A name for every node of the main graph that has none."""
    nameless = sum(not node.name for node in file.proto.graph.node)
    if not nameless:
        raise NotApplicable("every node has a name")
    result = copied(file.proto)
    make_unique(result.graph.node)
    return RemediedFile(proto=result, sentence=english("{nodes} named", nodes=count(nameless, "node")))


@file_remedy("weights-no-inputs", answers="initializer-as-input")
def weights_no_inputs(file: File, limits: ToolLimits) -> RemediedFile:
    """Initializers taken off the list of inputs, so that their values are fixed."""
    weights = constant_names(file.proto.graph)
    listed = [index for index, value in enumerate(file.proto.graph.input) if value.name in weights]
    if not listed:
        raise NotApplicable("no initializer is an input")
    result = copied(file.proto)
    for index in reversed(listed):
        del result.graph.input[index]
    result.ir_version = max(result.ir_version, _INITIALIZERS_ARE_INPUTS + 1)
    return RemediedFile(proto=result, sentence=f"{count(len(listed), 'initializer')} taken off the list of inputs")


@file_remedy("bind-dimensions", answers="dynamic-input-dim")
def bind_dimensions(file: File, limits: ToolLimits) -> RemediedFile:
    """Dimensions of the inputs as they were given with --input-shape."""
    unbound = {
        value.name: index
        for index, value in enumerate(file.proto.graph.input)
        if is_unbound(value.type) and value.name in file.inputs and not is_unbound(file.inputs[value.name])
    }
    if not unbound:
        raise NotApplicable("no shape was given for an input with an open dimension")
    result = copied(file.proto)
    for name, index in unbound.items():
        result.graph.input[index].type.CopyFrom(file.inputs[name])
    for value in result.graph.output:
        _bind(value, file)
    for index in reversed(range(len(result.graph.value_info))):
        value = result.graph.value_info[index]
        if is_unbound(value.type) and not _bind(value, file):
            del result.graph.value_info[index]
    texts = [f"{name} {type_text(file.inputs[name])}" for name in unbound]
    return RemediedFile(proto=result, sentence=f"dimensions bound: {shortened(texts)}")


def _bind(value: onnx.ValueInfoProto, file: File) -> bool:
    """Write what is known of a tensor with an open dimension; False where nothing is."""
    known = file.types.get(value.name)
    if known is None or not is_unbound(value.type):
        return False
    value.type.CopyFrom(known)
    return True


@file_remedy("correct-declared-types", answers="shape-contradiction")
def correct_declared_types(file: File, limits: ToolLimits) -> RemediedFile:
    """Declared types that are wrong, replaced by those that running the model gave."""
    graph = file.proto.graph
    wrong = {
        value.name
        for value in (*graph.value_info, *graph.output)
        if value.name in file.types and contradict(value.type, file.types[value.name])
    }
    if not wrong:
        raise NotApplicable("no declared type is known to be wrong")
    result = copied(file.proto)
    for value in (*result.graph.value_info, *result.graph.output):
        if value.name in wrong:
            value.type.CopyFrom(file.types[value.name])
    return RemediedFile(proto=result, sentence=f"{count(len(wrong), 'declared type')} corrected")


@file_remedy("batch-pools", answers="unbatched-pool")
def batch_pools_of_file(file: File, limits: ToolLimits) -> RemediedFile:
    """A batch of one around pools whose input has none, as PyTorch pools it and its older exporter writes it."""
    result = copied(file.proto)
    batched = batch_pools(result, file.types.get)
    if not batched:
        raise NotApplicable("no pool is known to have an input without a batch")
    return RemediedFile(proto=result, sentence=english("a batch of one for {pools}", pools=count(batched, "pool")))


@file_remedy(
    "random-to-inputs",
    answers="random-op",
    exactness=Exactness.DOMAIN,
    domain=english("each run is given random numbers"),
)
def random_to_inputs(file: File, limits: ToolLimits) -> RemediedFile:
    """Random numbers of a known shape that nodes draw, as inputs of the model instead."""
    result = copied(file.proto)
    graph = result.graph
    outputs = {value.name for value in graph.output}
    drawn = {
        index: kind
        for index in drawing(result)
        for node in [graph.node[index]]
        for kind in [file.types.get(node.output[0])]
        if node.op_type in GENERATORS and node.output[0] not in outputs and kind is not None and not is_unbound(kind)
    }
    if not drawn:
        raise NotApplicable("no node draws random numbers of a known shape")
    nodes = [graph.node[index] for index in drawn]
    graph.input.extend(helper.make_value_info(graph.node[index].output[0], kind) for index, kind in drawn.items())
    gone = {name for node in nodes for name in node.input}
    forget(graph, {node.output[0] for node in nodes})
    names = shortened([f"{node.op_type} {quoted(node.output[0])}" for node in nodes])
    set_nodes(graph, [node for index, node in enumerate(graph.node) if index not in drawn])
    drop_unread(graph, gone)
    return RemediedFile(proto=result, sentence=english("an input of the model instead of {names}", names=names))


#: Types that few NPUs compute in, and their names.
_OTHER_FLOATS = {TensorProto.DOUBLE: "double", TensorProto.BFLOAT16: "bfloat16"}
#: Attributes that name an element type.
_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype", "output_datatype", "softmax_precision", "stash_type")


@file_remedy("floats-in-float32", answers="double-tensors bfloat16-tensors", exactness=Exactness.ROUNDING)
def floats_in_float32(file: File, limits: ToolLimits) -> RemediedFile:
    """Tensors of double and bfloat16 made float32, inputs and outputs as well."""
    result, found, types = _retyped(file, dict.fromkeys(_OTHER_FLOATS, TensorProto.FLOAT))
    if not found:
        raise NotApplicable("the file has neither double nor bfloat16 tensors")
    what = english("double and bfloat16")
    if len(found) == 1:
        (what,) = (text for kind, text in _OTHER_FLOATS.items() if kind in found)
    sentence = english("{what} tensors made float32", what=what)
    if _at_boundary(file, _OTHER_FLOATS):
        sentence = english("{what} tensors made float32, of inputs and outputs as well", what=what)
    return RemediedFile(proto=result, sentence=sentence, types=types)


#: Unsigned integers, how many values each has, and what holds them.
_UNSIGNED: Mapping[int, int] = {TensorProto.UINT8: 1 << 8, TensorProto.UINT16: 1 << 16, TensorProto.UINT32: 1 << 32}
_SIGNED: Mapping[int, int] = {
    TensorProto.UINT8: TensorProto.INT32,
    TensorProto.UINT16: TensorProto.INT32,
    TensorProto.UINT32: TensorProto.INT64,
}
#: Ops that move, compare or convert numbers: they do the same with integers of another type.
# fmt: off
_ANY_INTEGER = frozenset(
    {
        "Cast", "Concat", "Constant", "DepthToSpace", "Equal", "Expand", "Flatten", "Gather", "GatherElements",
        "GatherND", "Greater", "GreaterOrEqual", "Identity", "If", "Less", "LessOrEqual", "Max", "Min", "Pad",
        "ReduceMax", "ReduceMin", "Reshape", "Shape", "Size", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile",
        "Transpose", "Unsqueeze", "Where",
    }
)
# fmt: on
#: Those whose results have a type of their own.
_OF_OWN_TYPE = frozenset({"Cast", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Shape", "Size"})


@file_remedy(
    "unsigned-to-signed", answers="unsigned-tensors", domain="what is cast to an unsigned type is a number that it has"
)
def unsigned_to_signed(file: File, limits: ToolLimits) -> RemediedFile:
    """Tensors of unsigned integers made int32, inputs and outputs as well, where they are moved, compared or cast."""
    known = limits.probe_format.input_dtypes
    if known is not None and "uint8" in known:
        raise NotApplicable(f"{limits.tool} is known to take uint8")
    values = _values_of_unsigned(file)
    exact = True
    for node in every_node(file.proto):
        taken = node.op_type in _ANY_INTEGER and not domain_of(node)
        if not taken and not values.keys().isdisjoint((*node.input, *node.output)):
            raise NotApplicable(f"{node.op_type} computes with unsigned integers")
        to = _UNSIGNED.get(_cast_to(node))
        if to is not None and values.get(node.input[0], to + 1) > to and not _counts_below(file, node.input[0], to):
            exact = False
    result, found, types = _retyped(file, _SIGNED)
    if not found:
        raise NotApplicable("the file has no unsigned tensors")
    sentence = english("unsigned tensors made signed")
    if _at_boundary(file, _UNSIGNED):
        sentence = english("unsigned tensors made signed, of inputs and outputs as well")
    exactness = Exactness.EXACT if exact else Exactness.DOMAIN
    return RemediedFile(proto=result, sentence=sentence, types=types, exactness=exactness)


#: Of which types tensors have another one after a remedy; the nodes that read and make them may stay as they are.
RETYPED: Mapping[str, frozenset[int]] = {
    floats_in_float32.id: frozenset(_OTHER_FLOATS),
    unsigned_to_signed.id: frozenset(_UNSIGNED),
}


def _cast_to(node: onnx.NodeProto) -> int:
    """The element type that a Cast makes; 0 for other ops."""
    return next((it.i for it in node.attribute if it.name == "to" and node.op_type == "Cast"), 0)


def _values_of_unsigned(file: File) -> dict[str, int]:
    """How many values the type of each unsigned tensor has, by the tensor's name.

    Within bodies, where types need not be declared, tensors are as those that they are made of.
    """
    types = {value.name: value.type for value in declared_values(file.proto)} | {**file.types}
    dtypes = {name: kind.tensor_type.elem_type for name, kind in types.items()}
    dtypes |= {tensor.name: tensor.data_type for tensor in tensors(file.proto)}
    found = {name: _UNSIGNED[dtype] for name, dtype in dtypes.items() if dtype in _UNSIGNED}
    for node in every_node(file.proto):
        made = _UNSIGNED.get(_cast_to(node), 0)
        if is_constant(node):
            made = max((_UNSIGNED.get(it.t.data_type, 0) for it in node.attribute), default=0)
        elif node.op_type not in _OF_OWN_TYPE:
            made = max((found[name] for name in node.input if name in found), default=0)
        if made:
            found |= {name: max(made, found.get(name, 0)) for name in node.output}
    return found


def _counts_below(file: File, name: str, values: int) -> bool:
    """Whether a tensor has only 0, 1 and so on, and fewer than so many: truth values, and places along an axis."""
    kind = file.types.get(name)
    if kind is not None and kind.tensor_type.elem_type == TensorProto.BOOL:
        return True
    for node in file.proto.graph.node:
        if name in node.output and node.op_type in ("ArgMax", "ArgMin"):
            of = file.types.get(node.input[0])
            axis = next((it.i for it in node.attribute if it.name == "axis"), 0)
            return of is not None and not is_unbound(of) and dims_of(of)[axis] <= values
    return False


def _at_boundary(file: File, dtypes: Collection[int]) -> bool:
    graph = file.proto.graph
    return any(value.type.tensor_type.elem_type in dtypes for value in (*graph.input, *graph.output))


def _retyped(file: File, into: Mapping[int, int]) -> tuple[onnx.ModelProto, set[int], dict[str, onnx.TypeProto]]:
    """A copy of the file with other element types; which types it had of these, and the new types of its tensors.

    Raises NotApplicable for a finite number that is infinite in the other type, and for a file that is too large.
    """
    result = copied(file.proto)
    found = {_retype(value.type, into) for value in declared_values(result)} - {0}
    for tensor in tensors(result):
        if tensor.data_type in into:
            found.add(tensor.data_type)
            array = array_of(tensor, file.folder)
            with np.errstate(over="ignore"):
                other = array.astype(helper.tensor_dtype_to_np_dtype(into[tensor.data_type]))
            if not np.array_equal(np.isfinite(other), np.isfinite(array.astype(np.float64))):
                raise NotApplicable(f"'{tensor.name}' has numbers beyond float32")
            tensor.CopyFrom(numpy_helper.from_array(other, tensor.name))
    for node in every_node(result):
        for attribute in node.attribute:
            if attribute.name in _TYPE_ATTRIBUTES and attribute.i in into:
                found.add(attribute.i)
                attribute.i = into[attribute.i]
    if result.ByteSize() > LARGEST_FILE:
        raise NotApplicable("the file would be larger than 2 GB")
    types = {}
    for name, kind in file.types.items():
        if kind.tensor_type.elem_type in into:
            types[name] = onnx.TypeProto()
            types[name].CopyFrom(kind)
            _retype(types[name], into)
    return result, found, types


def _retype(kind: onnx.TypeProto, into: Mapping[int, int]) -> int:
    """Change a type in place; returns the element type that it had, or 0 where it stays."""
    if kind.HasField("sequence_type"):
        return _retype(kind.sequence_type.elem_type, into)
    if kind.HasField("optional_type"):
        return _retype(kind.optional_type.elem_type, into)
    before = kind.tensor_type.elem_type
    if before not in into:
        return 0
    kind.tensor_type.elem_type = into[before]
    return before


@file_remedy("declare-shapes", answers="")
def declare_shapes(file: File, limits: ToolLimits) -> RemediedFile:
    """The type and shape of each tensor of the main graph, as far as they are known, written into the file."""
    result = copied(file.proto)
    graph = result.graph
    boundary = {value.name for value in (*graph.input, *graph.output)} | constant_names(graph)
    declared = {value.name: value for value in graph.value_info}
    written = 0
    for value in graph.output:
        known = file.types.get(value.name)
        if known is not None and is_unbound(value.type) and not is_unbound(known):
            value.type.CopyFrom(known)
            written += 1
    for node in graph.node:
        for name in node.output:
            known = file.types.get(name)
            if known is None or name in boundary or (name in declared and not is_unbound(declared[name].type)):
                continue
            if name in declared:
                if declared[name].type == known:
                    continue
                declared[name].type.CopyFrom(known)
            else:
                graph.value_info.append(onnx.helper.make_value_info(name, known))
            written += 1
    if not written:
        raise NotApplicable("every shape that is known is declared")
    return RemediedFile(proto=result, sentence=f"shapes declared of {count(written, 'tensor')}")
