"""Write a model as its file has it: the same bytes, with nothing changed but what the user bound."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import onnx

from onnxbisect.cut.write import write
from onnxbisect.errors import ModelError
from onnxbisect.model.binding import bind, forget_shapes, names_dimension, resized
from onnxbisect.model.external import locations
from onnxbisect.model.input_values import bind_values
from onnxbisect.model.model import Model
from onnxbisect.model.scopes import bodies


def as_written(model: Model, input_shapes: Mapping[str, Sequence[int]]) -> onnx.ModelProto:
    """What the model's file holds, with these dimensions and the model's values of inputs bound.

    External data stay references. Raises ModelError if the file cannot be read any more.
    """
    proto = _read(model)
    return _bound(proto, model, input_shapes) or proto


def write_as_written(model: Model, input_shapes: Mapping[str, Sequence[int]], path: Path) -> None:
    """Write the model's file to `path`, and its data files beside it under their own names.

    Dimensions that `input_shapes` bind, and bound values of inputs, are written into a copy that is otherwise
    unchanged: names, order of nodes and declared types stay as they are. Raises ModelError if the file or its data
    cannot be read any more.
    """
    proto = _read(model)
    bound = _bound(proto, model, input_shapes)
    files = locations(proto, model.path.parent)
    if any(_beside(file, model, path) == path for file in files):  # its data file is called as the probe is
        write(bound or proto, model, path)
        return
    if bound is None:
        shutil.copyfile(model.path, path)
    else:
        path.write_bytes(bound.SerializeToString(deterministic=True))
    for file in files:
        copy = _beside(file, model, path)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)


def _read(model: Model) -> onnx.ModelProto:
    try:
        return onnx.load(model.path, load_external_data=False)
    except Exception as error:  # OSError, or protobuf's DecodeError, which has no typed home to import it from
        raise ModelError(f"{model.path} cannot be read any more: {error}.") from error


def _beside(file: Path, model: Model, path: Path) -> Path:
    return path.parent / file.relative_to(model.path.parent)


def _bound(proto: onnx.ModelProto, model: Model, input_shapes: Mapping[str, Sequence[int]]) -> onnx.ModelProto | None:
    """A copy with what was bound; None if the file has it already."""
    if not input_shapes and not model.input_values:
        return None
    bound = onnx.ModelProto()
    bound.CopyFrom(proto)
    if resized(bound.graph, input_shapes):
        forget_shapes(bound.graph)  # they are those of another size
    bind(bound.graph, {**{name: array.shape for name, array in model.input_values.items()}, **input_shapes})
    _replace(bound.graph, _numbers(proto.graph.input, bound.graph.input))
    bind_values(bound, model.input_values)
    return None if bound == proto else bound


def _numbers(before: Iterable[onnx.ValueInfoProto], after: Iterable[onnx.ValueInfoProto]) -> dict[str, int]:
    """The number that each name of a dimension was bound to, if it is one."""
    numbers: dict[str, set[int]] = {}
    for old, new in zip(before, after, strict=True):
        for one, other in zip(old.type.tensor_type.shape.dim, new.type.tensor_type.shape.dim, strict=False):
            if names_dimension(one.dim_param):
                numbers.setdefault(one.dim_param, set()).add(other.dim_value if other.HasField("dim_value") else -1)
    return {name: next(iter(bound)) for name, bound in numbers.items() if len(bound) == 1 and min(bound) >= 0}


def _replace(graph: onnx.GraphProto, numbers: Mapping[str, int]) -> None:
    """Write these numbers for symbols of declared types, so that the file does not contradict itself."""
    for value in (*graph.value_info, *graph.output):
        for dim in value.type.tensor_type.shape.dim if value.type.HasField("tensor_type") else ():
            if dim.dim_param in numbers:
                dim.dim_value = numbers[dim.dim_param]
    for node in graph.node:
        for body in bodies(node):
            _replace(body, numbers)


def same_but_for_names(one: onnx.ModelProto, other: onnx.ModelProto) -> bool:
    """Whether two models are equal, but for the names of nodes that have none in `one`."""
    if len(one.graph.node) != len(other.graph.node):
        return False
    copy = onnx.ModelProto()
    copy.CopyFrom(other)
    for node, named in zip(one.graph.node, copy.graph.node, strict=True):
        if not node.name:
            named.name = ""
    return bool(one == copy)
