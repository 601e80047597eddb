"""Inputs whose value matters: those bound to values, which become constants, and those that decide something.

A small input may alone decide a branch, the rounds of a loop, or a size. An input that is bound to a value becomes an
initializer, and what depends on nothing else becomes constant.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxbisect.errors import ModelError
from onnxbisect.input_value import InputValue
from onnxbisect.language import did_you_mean, english
from onnxbisect.model.binding import is_unbound
from onnxbisect.model.external import is_external
from onnxbisect.model.facts import dims_of, elements
from onnxbisect.model.scopes import bodies, domain_of, fed_inputs, is_constant, label, reads
from onnxbisect.model.shapeops import SHAPE_SLOTS, VALUE_FROM_SHAPE

#: Elements of a value that a note shows.
_SHOWN = 8


def bind_values(proto: onnx.ModelProto, values: Mapping[str, InputValue | np.ndarray]) -> dict[str, np.ndarray]:
    """Replace the graph's inputs of these names by initializers; returns the values in the inputs' dtypes and shapes.

    Changes nothing else, so that a file stays the user's. Shapes must be bound before: of a dimension without a number
    the size follows from the number of values, if it is the only one. A default value of an input is replaced. Before
    IR version 4, where every initializer has to be an input, the input stays listed.
    Raises ModelError for an unknown input and for values that it cannot have.
    """
    graph = proto.graph
    inputs = {value.name: value for value in graph.input}
    bound = {}
    for name, given in values.items():
        if name not in inputs:
            known = [value.name for value in fed_inputs(graph)]
            raise ModelError(
                f"A value is given for {name!r}, which is no input of the model; its inputs are "
                f"{', '.join(map(repr, known)) or 'none'}{did_you_mean(name, known)}"
            )
        bound[name] = _array(inputs[name], given)
    for tensors, names in (
        (graph.initializer, [tensor.name for tensor in graph.initializer]),
        (graph.sparse_initializer, [tensor.values.name for tensor in graph.sparse_initializer]),
    ):
        for index in reversed([index for index, name in enumerate(names) if name in bound]):
            del tensors[index]
    for name, array in bound.items():
        graph.initializer.append(numpy_helper.from_array(array, name))
        kind = helper.make_tensor_type_proto(graph.initializer[-1].data_type, list(array.shape))
        inputs[name].type.CopyFrom(kind)
    if proto.ir_version >= 4:
        for index in reversed(range(len(graph.input))):
            if graph.input[index].name in bound:
                del graph.input[index]
    return bound


def plain(array: np.ndarray) -> InputValue:
    """The value without its shape, for JSON."""
    values: list[bool | int | float] = array.ravel().tolist()
    return values[0] if len(values) == 1 else values


def described(values: Mapping[str, np.ndarray]) -> list[str]:
    """A sentence for the user about each bound input."""
    return [
        english(
            "The input {name} is always {shown}: a constant, and no input any more.",
            name=f"{name!r}",
            shown=_shown(array),
        )
        for name, array in values.items()
    ]


def _array(value: onnx.ValueInfoProto, given: InputValue | np.ndarray) -> np.ndarray:
    dtype = value.type.tensor_type.elem_type
    if not value.type.HasField("tensor_type") or dtype in (TensorProto.UNDEFINED, TensorProto.STRING):
        raise ModelError(f"--input-value {value.name}: this input is no tensor of numbers and cannot be bound.")
    try:
        raw = np.asarray(given)
    except ValueError:
        raw = np.asarray(None)
    if (raw.dtype.kind not in "biuf" and raw.size) or raw.dtype == object:
        raise ModelError(f"--input-value {value.name}: a value is a number, true or false, or a list of them.")
    # The array in the input's dtype, which may have no such values.
    wanted = np.dtype(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
    with np.errstate(all="ignore"):
        array = raw.astype(wanted)
        exact = bool((array == raw).all())
    # A float rounds what it is given, and is refused only where that is too large for it.
    fits = exact or (wanted.kind not in "biu" and np.isfinite(array.astype(np.float64)).all())
    if not fits:
        raise ModelError(
            f"--input-value {value.name}={_shown(raw)}: the input is of "
            f"{TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()}, which has no such value."
        )
    # in the input's shape; a single value fills a shape that is known
    if not value.type.tensor_type.HasField("shape"):
        return array
    dims = [
        dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else -1
        for dim in value.type.tensor_type.shape.dim
    ]
    if array.size == 1 and -1 not in dims:
        return np.full(dims, array.ravel()[0], array.dtype)
    if array.ndim == len(dims) and all(dim in (-1, size) for dim, size in zip(dims, array.shape, strict=True)):
        return array
    if dims.count(-1) > 1:
        raise ModelError(
            f"--input-value {value.name}: the input has {dims.count(-1)} dimensions without a number; give its shape, "
            "too, with --input-shape."
        )
    try:
        return array.reshape(dims)
    except ValueError:
        size = "one value" if array.size == 1 else f"{array.size} values"
        raise ModelError(
            f"--input-value {value.name} has {size}, and the model's input is {helper.printable_type(value.type)}."
        ) from None


def _shown(array: np.ndarray) -> str:
    values = [str(it).lower() if isinstance(it, bool) else str(it) for it in array.ravel()[:_SHOWN].tolist()]
    if array.size > 1 and (array == array.ravel()[0]).all():
        return f"{values[0]} in all of its {array.size} elements"
    return ", ".join(values) + (f" and {array.size - _SHOWN} more" if array.size > _SHOWN else "") or "empty"


#: Most elements of an input that someone would write on a command line.
_SMALL = 8
_COMPARING = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
#: Ops that keep the values of their first input, so that what they make is compared with the same numbers.
_KEEPING = frozenset({"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten"})
#: Ops that keep the numbers 0 and 1.
_ROUNDING = frozenset({"Abs", "Ceil", "Floor", "Relu", "Round", "Transpose"})
_FLOATS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE})
_INTEGERS = frozenset({TensorProto.INT64, TensorProto.INT32, TensorProto.INT16, TensorProto.INT8, TensorProto.UINT8})
#: The slots that decide what a node does, of control flow; and those with the lengths of sequences.
_CONTROL = {"If": (0,), "Loop": (0, 1)}
_LENGTHS = {"LSTM": (4,), "GRU": (4,), "RNN": (4,), "ReverseSequence": (1,)}
_DECISIVE: tuple[Mapping[str, tuple[int, ...]], ...] = (_CONTROL, SHAPE_SLOTS, _LENGTHS)


@dataclass(frozen=True, kw_only=True)
class Deciding:
    """An input on whose value alone nodes depend: their branch, number of rounds, size or lengths of sequences.

    The `nodes` of control flow come first, those of lengths last. `compared` are the constants that the graph compares
    the input with.
    """

    input: onnx.ValueInfoProto
    nodes: tuple[onnx.NodeProto, ...]
    compared: tuple[bool | int | float, ...] = ()


def deciding_inputs(graph: onnx.GraphProto, known: Mapping[str, np.ndarray]) -> tuple[Deciding, ...]:
    """The small inputs that decide something, in their order.

    `known` are values of tensors. Inputs that decide something together are all named.
    """
    small = {
        value.name: value
        for value in graph.input
        if value.type.tensor_type.elem_type not in (0, onnx.TensorProto.STRING)
        and not is_unbound(value.type)
        and elements(value.type) <= _SMALL
    }
    if not small:
        return ()
    search = _Search(graph, known, small)
    search.follow(graph.node, {value.name: frozenset([value.name]) for value in graph.input}, {it: it for it in small})
    return tuple(
        Deciding(input=value, nodes=nodes, compared=tuple(search.compared.get(name, ())))
        for name, value in small.items()
        if (nodes := tuple(node for of_kind in search.decided for node in of_kind.get(name, ())))
    )


def binding_advice(found: Deciding) -> str:
    """Such as `If If_0 depends only on the scalar input 'sr', which is compared with 16000: --input-value sr=16000`."""
    name, dims = found.input.name, found.input.type.tensor_type.shape.dim
    values = [str(it).lower() if isinstance(it, bool) else str(it) for it in found.compared]
    noun = english("scalar input") if not dims else english("input")
    boolean = found.input.type.tensor_type.elem_type == onnx.TensorProto.BOOL
    value = values[0] if values else "true" if boolean else ",".join("…" * elements(found.input.type))
    node = f"{found.nodes[0].op_type} {label(found.nodes[0])}"
    if not values:
        return english(
            "{node} depends only on the {noun} {name}: --input-value {typed}={value}",
            node=node,
            noun=noun,
            name=repr(name),
            typed=name,
            value=value,
        )
    return english(
        "{node} depends only on the {noun} {name}, which is compared with {compared}: --input-value {typed}={value}",
        node=node,
        noun=noun,
        name=repr(name),
        compared=" and ".join(values),
        typed=name,
        value=value,
    )


def compared_values(graph: onnx.GraphProto, known: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A value for each input that decides something and is compared with a constant: that constant.

    Made-up inputs have it because random numbers always take the other branch, which may not run.
    """
    found = {}
    for it in deciding_inputs(graph, known):
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(it.input.type.tensor_type.elem_type))
        if it.compared and dtype.kind in "iuf":
            found[it.input.name] = np.full(dims_of(it.input.type), it.compared[0]).astype(dtype)
    return found


def indexing_inputs(graph: onnx.GraphProto) -> set[str]:
    """The float inputs that are cast to integers, as tokens are which Keras takes as floats.

    What is made of them may be an index, and a number that is none ends a run.
    """
    numbers = {value.name for value in graph.input if value.type.tensor_type.elem_type in _FLOATS}
    same, found = {name: name for name in numbers}, set()
    for node in graph.node:
        source = same.get(node.input[0]) if node.input and not domain_of(node) else None
        if source is None:
            continue
        if node.op_type == "Cast" and any(it.name == "to" and it.i in _INTEGERS for it in node.attribute):
            found.add(source)
        elif node.op_type in _KEEPING or node.op_type in _ROUNDING:
            same[node.output[0]] = source
    return found


class _Search:
    def __init__(
        self, graph: onnx.GraphProto, known: Mapping[str, np.ndarray], small: Mapping[str, onnx.ValueInfoProto]
    ) -> None:
        self._small = small
        self._known = known
        self._stored = {it.name: it for it in graph.initializer if not is_external(it)}
        #: For each of `_DECISIVE`, the nodes that an input decides.
        self.decided: list[dict[str, list[onnx.NodeProto]]] = [{} for _ in _DECISIVE]
        self.compared: dict[str, dict[bool | int | float, None]] = {}

    def follow(self, nodes: Iterable[onnx.NodeProto], sources: dict[str, frozenset[str]], same: dict[str, str]) -> None:
        """`sources` are the inputs that each tensor depends on, `same` tensors with the values of an input."""
        for node in nodes:
            self._look_at(node, sources, same)
            for body in bodies(node):
                self._stored.update((tensor.name, tensor) for tensor in body.initializer)
                inner = {**sources, **{value.name: frozenset([""]) for value in body.input}}  # differs in each round
                self.follow(body.node, inner, {**same})
            everything = (
                frozenset[str]()
                if node.op_type in VALUE_FROM_SHAPE
                else frozenset().union(*(sources.get(name, frozenset()) for name in reads(node)))
            )
            sources.update(dict.fromkeys(filter(None, node.output), everything))
            if node.op_type in _KEEPING and node.input and node.input[0] in same:
                same[node.output[0]] = same[node.input[0]]
            if is_constant(node):
                self._stored.update((node.output[0], it.t) for it in node.attribute if it.name == "value")

    def _look_at(self, node: onnx.NodeProto, sources: Mapping[str, frozenset[str]], same: Mapping[str, str]) -> None:
        if domain_of(node):
            return
        for decisive, found in zip(_DECISIVE, self.decided, strict=True):
            slots = decisive.get(node.op_type, ())
            sources_of_slots = (sources.get(node.input[slot], frozenset()) for slot in slots if slot < len(node.input))
            alone = frozenset().union(*(it for it in sources_of_slots if it <= self._small.keys()))
            for each in alone:
                found.setdefault(each, []).append(node)
        if node.op_type in _COMPARING and len(node.input) == 2:
            for one, other in (node.input, reversed(node.input)):
                if one in same:
                    self.compared.setdefault(same[one], {}).update(dict.fromkeys(self._numbers(other)))

    def _numbers(self, name: str) -> Iterator[bool | int | float]:
        value = self._known.get(name)
        if value is None and name in self._stored:
            value = numpy_helper.to_array(self._stored[name])
        if value is not None and value.size == 1 and value.dtype != np.dtype(object):
            yield value.reshape(-1)[0].item()
