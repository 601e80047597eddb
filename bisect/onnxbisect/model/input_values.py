"""Bind inputs to values: such an input becomes an initializer, and what depends on nothing else becomes constant."""

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxbisect.errors import ModelError
from onnxbisect.input_value import InputValue
from onnxbisect.language import did_you_mean, english
from onnxbisect.model.scopes import constant_names

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
            known = [each for each in inputs if each not in constant_names(graph)]
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
    return _shaped(value, _typed(value, raw))


def _typed(value: onnx.ValueInfoProto, raw: np.ndarray) -> np.ndarray:
    """The array in the input's dtype; ModelError where that has no such values."""
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
    return array


def _shaped(value: onnx.ValueInfoProto, array: np.ndarray) -> np.ndarray:
    """The array in the input's shape; a single value fills a shape that is known."""
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
