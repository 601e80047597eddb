"""What is checked once, while reading a model: the properties that all later code relies on, and how large it becomes.

ONNX demands all of these properties. Compilers accept much that ONNX refuses, so nothing is demanded that this program
does not need. A model that passes can be traversed, typed, cut and described without further checks. A stored tensor
has a known element type, possible dimensions, and data that fit both. A few bytes of functions that call each other
can make astronomically many nodes, which are counted with all calls expanded. What onnx.checker says is a note only.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod

import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from onnxbisect.errors import ModelError
from onnxbisect.language import english, quoted
from onnxbisect.model.external import HELD, byte_size, is_external, tensors
from onnxbisect.model.scopes import (
    bodies,
    constant_names,
    domain_of,
    fed_inputs,
    functions_of,
    is_constant,
    qualified,
    reads,
    walk,
)

#: Largest accepted version of an operator set or of the format; onnx handles the former in 32 bits.
NEWEST_VERSION = (1 << 31) - 1
#: Element types that a declaration can have, UNDEFINED included.
_DECLARABLE = frozenset(TensorProto.DataType.values())
#: Most characters of an Einsum equation. onnx takes minutes over one of 30,000, and no tensor has so many dimensions.
_LONGEST_EQUATION = 1000
_AGAIN = english("Export it again.")


def demand_wellformed(proto: onnx.ModelProto) -> None:
    """Raise ModelError, with one sentence for the user, for a model that later code could not work with."""
    known = set()
    for function in proto.functions:
        name = domain_of(function), function.name, function.overload
        if name in known:
            raise ModelError(f"The model defines the function {quoted(function.name)} more than once. {_AGAIN}")
        known.add(name)
        _demand_versions(function.opset_import, f"Function {quoted(function.name)}")
        _demand_types(function.value_info)
        _demand_nodes(function.node, f"function {quoted(function.name)}", in_function=True)
    _demand_versions(proto.opset_import, "The model")
    _demand_graph(proto.graph, in_function=False)
    for tensor in tensors(proto):
        demand_data(tensor)
    for value in fed_inputs(proto.graph):
        form = value.type.WhichOneof("value")
        if form is None or (form == "tensor_type" and not value.type.tensor_type.elem_type):
            raise ModelError(f"Input {quoted(value.name)} of the graph is declared without a type. {_AGAIN}")


def _demand_versions(imports: Iterable[onnx.OperatorSetIdProto], owner: str) -> None:
    for entry in imports:
        if not 1 <= entry.version <= NEWEST_VERSION:
            raise ModelError(
                f"{owner} imports version {entry.version} of an operator set, which is impossible. {_AGAIN}"
            )


def _demand_graph(graph: onnx.GraphProto, *, in_function: bool) -> None:
    _demand_types([*graph.input, *graph.output, *graph.value_info])
    for sparse in graph.sparse_initializer:
        demand_sparse(sparse)
    _demand_nodes(graph.node, "the graph", in_function=in_function)


def _demand_nodes(nodes: Iterable[onnx.NodeProto], owner: str, *, in_function: bool) -> None:
    for node in nodes:
        where = f"Node {quoted(node.name)} ({quoted(qualified(node))}) of {owner}"
        if not node.op_type:
            raise ModelError(f"{where} names no operator. {_AGAIN}")
        if not any(node.output):
            raise ModelError(f"{where} has no output, so nothing can use it. {_AGAIN}")
        known = not node.input and not domain_of(node) and onnx.defs.has(node.op_type)
        if known and onnx.defs.get_schema(node.op_type).min_input > 0:
            raise ModelError(f"{where} has no input, which its operator cannot do without. {_AGAIN}")
        for attribute in node.attribute:
            if attribute.ref_attr_name and not in_function:
                raise ModelError(
                    f"{where} takes its attribute {quoted(attribute.name)} from a function, but is in none. {_AGAIN}"
                )
            _demand_attribute(attribute, where)
        if is_constant(node):
            held = [attribute for attribute in node.attribute if attribute.name in HELD]
            if len(held) != 1 or len(node.output) != 1:
                raise ModelError(
                    f"{where} holds {len(held)} values and has {len(node.output)} outputs, not one. {_AGAIN}"
                )
            if held[0].type != HELD[held[0].name]:
                raise ModelError(f"{where} holds a value of another type than {quoted(held[0].name)} says. {_AGAIN}")
        for body in bodies(node):
            _demand_order(body, where)
            _demand_graph(body, in_function=in_function)


def _demand_attribute(attribute: AttributeProto, where: str) -> None:
    name = quoted(attribute.name)
    if attribute.type == AttributeProto.UNDEFINED:
        raise ModelError(f"{where} has the attribute {name} without a type. {_AGAIN}")
    if attribute.type == AttributeProto.SPARSE_TENSOR:
        demand_sparse(attribute.sparse_tensor)
    if attribute.type == AttributeProto.TYPE_PROTO:
        _demand_type(attribute.tp, f"The attribute {name}")
    for kind in attribute.type_protos if attribute.type == AttributeProto.TYPE_PROTOS else ():
        _demand_type(kind, f"The attribute {name}")
    if attribute.name == "equation" and len(attribute.s) > _LONGEST_EQUATION:
        raise ModelError(
            f"{where} has an equation of {len(attribute.s):,} characters; the limit is {_LONGEST_EQUATION:,}. "
            "Write it as several nodes."
        )


def _demand_order(body: onnx.GraphProto, where: str) -> None:
    """Raise ModelError where a subgraph is not sorted: a name that is read before it is made would mean two tensors."""
    inputs = {value.name for value in body.input} | constant_names(body)
    later = {name for node in body.node for name in node.output if name} - inputs
    for node in body.node:
        early = next((name for name in reads(node) if name in later), None)
        if early is not None:
            raise ModelError(
                f"A body of {where[0].lower()}{where[1:]} reads tensor {quoted(early)} before it makes one of that "
                f"name. {_AGAIN}"
            )
        later.difference_update(node.output)


def _demand_types(values: Iterable[onnx.ValueInfoProto]) -> None:
    for value in values:
        _demand_type(value.type, f"Tensor {quoted(value.name)}")


def _demand_type(kind: onnx.TypeProto, owner: str) -> None:
    """Raise ModelError for an invalid type. Iterative, because sequences can be nested as deep as protobuf can read."""
    form = kind.WhichOneof("value")
    while form in ("sequence_type", "optional_type", "map_type"):
        if form == "map_type":
            _demand_element(kind.map_type.key_type, owner)
            kind = kind.map_type.value_type
        else:
            kind = getattr(kind, form).elem_type
        form = kind.WhichOneof("value")
    if form not in ("tensor_type", "sparse_tensor_type"):
        return
    tensor = getattr(kind, form)
    _demand_element(tensor.elem_type, owner)
    large = next((dim.dim_value for dim in tensor.shape.dim if dim.dim_value > LARGEST_DIM), None)
    if large is not None:
        raise ModelError(f"{owner} is declared with a dimension of {large}, which is impossible. {_AGAIN}")


def _demand_element(dtype: int, owner: str) -> None:
    if dtype not in _DECLARABLE:
        raise ModelError(f"{owner} is declared with the element type {dtype}, which ONNX does not have. {_AGAIN}")


#: Largest dimension that is accepted.
LARGEST_DIM = 1 << 40
#: Element types that a stored tensor can have.
STORABLE = frozenset(TensorProto.DataType.values()) - {TensorProto.UNDEFINED}
#: Most elements of a tensor that is decoded here as a check, because later code reads such tensors without one.
_SMALL = 1024


def demand_data(tensor: TensorProto) -> None:
    """Raise ModelError where the tensor cannot be read; data in other files is checked by `external.locations`.

    A few bytes can claim any number of elements, so memory is allocated only after the size of the data was checked.
    """
    name = quoted(tensor.name)
    if tensor.data_type not in STORABLE:
        raise ModelError(
            f"Tensor {name} has the element type {tensor.data_type}, which ONNX does not have. Export it again."
        )
    if any(not 0 <= dim <= LARGEST_DIM for dim in tensor.dims):
        raise ModelError(f"Tensor {name} has the impossible shape {list(tensor.dims)[:8]}. Export it again.")
    if is_external(tensor):
        return
    elements = prod(tensor.dims)
    raw = tensor.HasField("raw_data")
    if raw and tensor.data_type != TensorProto.STRING:
        expected = byte_size(tensor.data_type, tensor.dims)
        if len(tensor.raw_data) != expected:
            raise ModelError(
                f"Tensor {name} has {len(tensor.raw_data)} bytes of data, and its type and shape demand {expected}. "
                "Export it again."
            )
    if raw and elements > _SMALL:
        return
    try:
        numpy_helper.to_array(tensor)
    except Exception as error:  # onnx raises whatever numpy does
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise ModelError(
            f"The data of tensor {name} do not fit its type and shape: {reason}. Export it again."
        ) from error


def demand_sparse(sparse: onnx.SparseTensorProto) -> None:
    """Raise ModelError where a sparse tensor's shape is impossible; its values and indices are checked as tensors."""
    if any(not 0 <= dim <= LARGEST_DIM for dim in sparse.dims):
        raise ModelError(
            f"Sparse tensor {quoted(sparse.values.name)} has the impossible shape {list(sparse.dims)[:8]}. "
            "Export it again."
        )


_Call = tuple[str, str, str]

#: Deepest nesting of function calls that is accepted; exporters nest as deep as a network's modules, about ten.
_DEEPEST = 32
#: Number of inlined function nodes that cost onnxruntime a few seconds. Files that have many nodes themselves may have
#: more: real functions are called a few times, while hostile ones multiply.
_INLINED = 20_000
_INLINED_SHARE = 8


@dataclass(frozen=True, kw_only=True)
class WrittenOut:
    """Node counts of a model.

    `nodes`: nodes of the graph and its subgraphs with calls expanded, plus those of functions that nothing calls.
    `inlined`: the part of them that comes from expanded calls. `written`: nodes as stored in the file.
    """

    nodes: int
    inlined: int
    written: int


def written_out(proto: onnx.ModelProto) -> WrittenOut:
    """Count the nodes; raises ModelError where functions call themselves or are nested too deep."""
    functions = functions_of(proto)
    calls = {name: _calls(function) for name, function in functions.items()}
    size: dict[_Call, int] = {}
    depth: dict[_Call, int] = {}
    for name in calls:
        for done in _callees_first(name, calls, size):
            size[done] = _total(calls[done], size)
            depth[done] = 1 + max((depth.get(each, 0) for each in calls[done]), default=0)
            if depth[done] > _DEEPEST:
                raise ModelError(
                    f"Function {quoted(done[1])} calls others more than {_DEEPEST} levels deep. Inline the model's "
                    "functions before, as onnx.inliner does."
                )
    main = _calls(proto.graph)
    uncalled = set(functions) - set(main).union(*calls.values())
    nodes = _total(main, size)
    return WrittenOut(
        nodes=nodes + sum(size[name] for name in uncalled),
        inlined=nodes - sum(count for name, count in main.items() if name not in size),
        written=sum(sum(each.values()) for each in (main, *calls.values())),
    )


def demand_inlinable(count: WrittenOut) -> None:
    """Raise ModelError where inlining the functions, as onnxruntime does, would take minutes."""
    most = max(_INLINED, _INLINED_SHARE * count.written)
    if count.inlined > most:
        raise ModelError(
            f"The model's functions become {count.inlined:,} nodes when they are inlined, from {count.written:,} in "
            f"the file; the limit is {most:,}. Export it with fewer functions that call others."
        )


def _calls(owner: onnx.GraphProto | onnx.FunctionProto) -> Counter[_Call]:
    return Counter((domain_of(node), node.op_type, node.overload) for node in walk(owner))


def _callees_first(wanted: _Call, calls: Mapping[_Call, Counter[_Call]], done: Mapping[_Call, int]) -> Iterator[_Call]:
    """The functions that `wanted` calls, transitively, and itself, callees first, without those in `done`.

    Iterative, because a chain of calls can exceed Python's recursion limit.
    """
    path = [] if wanted in done else [(wanted, iter(calls[wanted]))]
    begun = {wanted}
    while path:
        name, callees = path[-1]
        below = next((each for each in callees if each in calls and each not in done), None)
        if below is None:
            yield name
            begun.discard(name)
            path.pop()
            continue
        if below in begun:
            raise ModelError(f"Function {quoted(below[1])} calls itself, which ONNX forbids. Export the model again.")
        begun.add(below)
        path.append((below, iter(calls[below])))


def _total(calls: Counter[_Call], size: Mapping[_Call, int]) -> int:
    return sum(count * size.get(name, 1) for name, count in calls.items())


def complaint(proto: onnx.ModelProto) -> str:
    """The first sentence of the checker's complaint about the graph's structure; empty if there is none.

    The checker sees initializers as inputs: their data may be gigabytes, and `load` has already checked its location.
    """
    graph = proto.graph
    skeleton = onnx.ModelProto()
    skeleton.ir_version = proto.ir_version
    skeleton.opset_import.extend(proto.opset_import)
    skeleton.functions.extend(proto.functions)
    skeleton.graph.name = graph.name
    skeleton.graph.node.extend(graph.node)
    skeleton.graph.input.extend(graph.input)
    skeleton.graph.input.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)) for tensor in graph.initializer
    )
    skeleton.graph.input.extend(
        helper.make_tensor_value_info(sparse.values.name, sparse.values.data_type, list(sparse.dims))
        for sparse in graph.sparse_initializer
    )
    skeleton.graph.output.extend(graph.output)
    try:
        onnx.checker.check_model(skeleton)
    except onnx.checker.ValidationError as error:
        return next((line.strip() for line in str(error).splitlines() if line.strip()), "no reason given")
    except Exception as error:  # the message is a note; what matters is tried in onnxruntime anyway
        return str(error)
    return ""
