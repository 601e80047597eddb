"""Make a culprit's file fit to share: the same failure with random weights, plain names and small shapes.

A compiler decides whether it is the same failure: each change is kept only if the file still fails. Ops, attributes,
structure, strings, small integers and scalars, and the scales of a Resize stay, because they belong to the support
question.
"""

from collections.abc import Callable, Iterator
from math import prod

import numpy as np
import onnx
from google.protobuf.message import Message
from onnx import numpy_helper
from onnx.inliner import inline_local_functions

from onnxbisect.content import SMALL, is_telling
from onnxbisect.cut.rename import rename_tensors, tensor_names
from onnxbisect.errors import ModelError
from onnxbisect.model.scopes import bodies, domain_of, is_constant, walk
from onnxbisect.model.shapeops import SEMANTIC_SLOTS, SHAPE_SLOTS

#: Whether a compiler refuses the model in the same way as the culprit.
Fails = Callable[[onnx.ModelProto], bool]

#: Fields of ONNX messages that compilers do not need.
_WORDS = {"doc_string", "denotation", "dim_param", "metadata_props", "device_configurations", "value_info"}
#: Sizes to try in place of larger ones, smallest first.
_SIZES = (1, 2, 3, 4, 8, 16, 32, 64)


def shareable(model: onnx.ModelProto, fails: Fails) -> onnx.ModelProto | None:
    """The smallest form of the model that still `fails`; None if it fails only with its own weights or names.

    All weights must be in the model: external data is loaded. Raises ModelError where its functions cannot be inlined.
    """
    made = _with_plain_names(model)
    rng = np.random.default_rng(0)
    # the tensors whose values decide what an op computes, such as the scales of a Resize
    settings = {
        node.input[slot]
        for node in walk(made.graph)
        for slots in (SHAPE_SLOTS, SEMANTIC_SLOTS)
        for slot in slots.get(node.op_type, ())
        if slot < len(node.input)
    }
    for name, tensor in _weights(made.graph):
        if name not in settings or prod(tensor.dims) > SMALL:
            array = numpy_helper.to_array(tensor)
            if not is_telling(array):
                tensor.CopyFrom(numpy_helper.from_array(_random(array, rng), tensor.name))
    constants = [node for node in walk(made.graph) if is_constant(node)]
    for name, listed in ((it.output[0], held) for it in constants for held in it.attribute):
        if listed.name != "value_floats":
            continue
        numbers = np.array(listed.floats, np.float32)
        if (name not in settings or numbers.size > SMALL) and not is_telling(numbers):
            listed.floats[:] = _random(numbers, rng).tolist()
    if not fails(made):
        return None
    inputs = (dim.dim_value for value in made.graph.input for dim in value.type.tensor_type.shape.dim)
    weights = (dim for tensor in made.graph.initializer for dim in tensor.dims)
    for old in sorted({size for size in (*inputs, *weights) if size > 1}, reverse=True):
        smaller = (each for new in _SIZES if new < old for each in _resized(made, old, new))
        made = next((each for each in smaller if fails(each)), made)
    return made


def _with_plain_names(model: onnx.ModelProto) -> onnx.ModelProto:
    made = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, graph=model.graph)
    if model.functions:
        made.functions.extend(model.functions)
        try:
            made = inline_local_functions(made)
        except Exception as error:  # it raises what its C++ code does: RuntimeError and others
            raise ModelError(
                "onnx cannot inline the functions of this file: mend first what onnx.checker says of it."
            ) from error
    graph = made.graph
    used = {domain_of(node) for node in walk(graph)}
    opsets = [it for it in made.opset_import if it.domain in ("", "ai.onnx") or it.domain in used]
    del made.opset_import[:]
    made.opset_import.extend(opsets)
    _strip(graph)
    names: dict[str, str] = {}
    for letter, group in (
        ("x", [value.name for value in graph.input]),
        ("y", [value.name for value in graph.output]),
        ("w", [tensor.name for tensor in graph.initializer]),
        ("t", sorted(tensor_names(graph))),
    ):
        for name in group:
            if name:
                names.setdefault(name, f"{letter}{len(names)}")
    rename_tensors(graph, names)
    for number, node in enumerate(walk(graph)):
        node.name = f"n{number}"
    return made


def _strip(message: Message) -> None:
    """Remove fields that mean nothing to a compiler, at any depth. Tensors keep the names that nodes read."""
    for name in _WORDS.intersection(message.DESCRIPTOR.fields_by_name):
        message.ClearField(name)
    if isinstance(message, onnx.GraphProto):
        message.name = "g"
    elif isinstance(message, onnx.AttributeProto) and message.HasField("sparse_tensor"):
        message.sparse_tensor.values.ClearField("name")
    for field, value in message.ListFields():
        for it in [value] if isinstance(value, Message) else value if field.message_type else []:
            if field.name in ("t", "tensors", "indices"):
                it.ClearField("name")
            _strip(it)


def _weights(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """The stored tensors, with the names under which nodes read them."""
    yield from ((tensor.name, tensor) for tensor in graph.initializer)
    yield from ((sparse.values.name, sparse.values) for sparse in graph.sparse_initializer)
    for node in graph.node:
        if is_constant(node):
            yield from ((node.output[0], it.t) for it in node.attribute if it.name == "value")
            yield from ((node.output[0], it.sparse_tensor.values) for it in node.attribute if it.name == "sparse_value")
        for body in bodies(node):
            yield from _weights(body)


def _random(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Random values of the same dtype and shape, none of them negative if none was; strings stay."""
    if array.dtype.kind in "OSU" or not array.size:
        return array
    if array.dtype.kind in "iub":
        return np.asarray(rng.integers(array.min(), array.max(), array.shape, endpoint=True, dtype=array.dtype))
    values = rng.standard_normal(array.shape)
    return np.asarray(np.abs(values) if (array >= array.dtype.type(0)).all() else values).astype(array.dtype)


def _resized(model: onnx.ModelProto, old: int, new: int) -> Iterator[onnx.ModelProto]:
    """Valid models in which every occurrence of a size is replaced, with and without the small integers that shapes are
    computed from.
    """
    for among_integers in (True, False):
        made = onnx.ModelProto()
        made.CopyFrom(model)
        for value in made.graph.input:
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_value == old:
                    dim.dim_value = new
        changed = False
        for tensor in made.graph.initializer:
            array = numpy_helper.to_array(tensor)
            if among_integers and array.dtype == np.int64 and is_telling(array) and (array == old).any():
                array = np.where(array == old, new, array)
                changed = True
            for axis, size in enumerate(array.shape):
                if size == old:
                    array = array.take(range(new), axis)
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), tensor.name))
        for value in made.graph.output:
            value.type.tensor_type.ClearField("shape")
        if (among_integers and not changed) or (inferred := _inferred(made)) is None:
            continue
        yield inferred


def _inferred(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """The model with inferred shapes of its outputs; None if it is not valid."""
    try:
        made = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        del made.graph.value_info[:]
        onnx.checker.check_model(made, full_check=True)
    except Exception:  # inference of a wrong model may raise anything
        return None
    shapes = (value.type.tensor_type for value in made.graph.output)
    known = all(it.HasField("shape") and all(dim.HasField("dim_value") for dim in it.shape.dim) for it in shapes)
    return made if known else None
