"""Small models that have a trait, and those that show whether it is the trait that a compiler minds."""

from collections.abc import Collection, Iterable, Mapping
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import set_external_data

from onnxbisect.cut.apply_format import apply_format
from onnxbisect.probe_format import ProbeFormat
from onnxbisect_backends.probing.traits import (
    EXTERNAL,
    HIGHEST_PLAIN_RANK,
    PLAIN_NAME,
    PLAIN_VERSIONS,
    SHORT_NAME,
    Trait,
    TraitKind,
)

#: What a small model computes with, and the same turned: a Transpose keeps optimisers from removing pairs of Cast. One
#: that moves dimensions of 1 only would be removed itself.
_SHAPE, _TURNED = (2, 4), (4, 2)


def trial(wanted: Collection[Trait]) -> onnx.ModelProto:
    """A small model with these traits."""
    versions = {it.what: int(it.value) for it in wanted if it.is_version}
    traits = [it for it in wanted if not it.is_version and it != EXTERNAL]
    graph = onnx.GraphProto(name="boundary")
    graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, _SHAPE))
    so_far = _node(graph, "Relu", ["x"], "start")
    if EXTERNAL in wanted:
        so_far = _weighted(graph, so_far)
    inputs, outputs = ([it for it in traits if it.output is side] for side in (False, True))
    for number, trait in enumerate(inputs):
        for place in range(int(trait.value) if trait.what is TraitKind.COUNT else 1):
            name, kind, shape = _tensor(trait, f"in{number}_{place}")
            graph.input.append(helper.make_tensor_value_info(name, kind, shape))
            if trait.is_high_rank:
                name = _reshaped(graph, name, f"r{number}", _SHAPE)
            if trait.what is TraitKind.EMPTY:
                so_far = _node(graph, "Concat", [so_far, name], f"a{number}", axis=0)
            else:
                so_far = _joined(graph, so_far, name, kind, f"a{number}_{place}")
    for number, trait in enumerate(outputs):
        if trait.what is TraitKind.COUNT:
            for place in range(int(trait.value)):
                name = _node(graph, "Add", [so_far, so_far if place % 2 else "x"], f"out{number}_{place}")
                graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, _SHAPE))
            continue
        name, kind, shape = _tensor(trait, f"out{number}")
        if trait.what is TraitKind.EMPTY:
            _emptied(graph, so_far, name)
        elif not shape:
            _node(graph, "ReduceMax", [so_far], name, keepdims=0)
        elif trait.is_high_rank or trait.is_low_rank:
            _reshaped(graph, so_far, name, shape)
        elif kind == TensorProto.FLOAT:
            _node(graph, "Abs", [so_far], name)
        elif kind == TensorProto.BOOL:
            _node(graph, "Greater", [so_far, "x"], name)
        else:
            cast = _node(graph, "Cast", [so_far], f"b{number}_cast", to=kind)
            _node(graph, "Transpose", [cast], name, perm=[1, 0])
        graph.output.append(helper.make_tensor_value_info(name, kind, shape))
    _node(graph, "Relu", [so_far], "y")
    graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, _SHAPE))
    return _model(graph, versions)


def controls(trait: Trait) -> Iterable[onnx.ModelProto]:
    """Models that differ from the trait's trial in their boundary alone: if one passes, it is the boundary."""
    if trait == EXTERNAL:
        stored = trial([trait])
        for tensor in stored.graph.initializer:
            tensor.ClearField("data_location")
            tensor.ClearField("external_data")
        yield stored
        return
    if trait.what not in (TraitKind.EMPTY, TraitKind.COUNT):
        trial_model = trial([trait])
        apply_format(trial_model, _limit(trait))
        yield trial_model
    if trait.what not in (TraitKind.DTYPE, TraitKind.EMPTY, TraitKind.COUNT):
        return
    graph = onnx.GraphProto(name="inside")
    graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, _SHAPE))
    inside = start = _node(graph, "Relu", ["x"], "start")
    _, kind, _ = _tensor(trait, "")
    if trait.what is TraitKind.EMPTY:
        inside = _node(graph, "Concat", [start, _emptied(graph, start, "inner")], "a", axis=0)
    elif trait.what is TraitKind.COUNT:
        for place in range(int(trait.value)):
            inside = _node(graph, "Add", [inside, "x"], f"a{place}")
    elif kind == TensorProto.BOOL:
        inside = _joined(graph, start, _node(graph, "Greater", [start, "x"], "inner"), kind, "a")
    else:
        cast = _node(graph, "Cast", [start], "cast", to=kind)
        inside = _joined(graph, start, _node(graph, "Transpose", [cast], "inner", perm=[1, 0]), kind, "a")
    _node(graph, "Abs", [inside], "y")
    graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, _SHAPE))
    yield _model(graph)


def _limit(trait: Trait) -> ProbeFormat:
    """The probe format in which no boundary has the trait."""
    plain = frozenset({"float"})
    match trait.what:
        case TraitKind.RANK:
            if trait.is_high_rank:
                most = HIGHEST_PLAIN_RANK
                return ProbeFormat(max_output_rank=most) if trait.output else ProbeFormat(max_input_rank=most)
            least = int(trait.value) + 1
            return ProbeFormat(min_output_rank=least) if trait.output else ProbeFormat(min_input_rank=least)
        case TraitKind.DTYPE:
            return ProbeFormat(output_dtypes=plain) if trait.output else ProbeFormat(input_dtypes=plain)
        case TraitKind.NAME:
            return ProbeFormat(longest_name=PLAIN_NAME if int(trait.value) > PLAIN_NAME else SHORT_NAME)
    return ProbeFormat(safe_names=True)


def _tensor(trait: Trait, name: str) -> tuple[str, int, tuple[int, ...]]:
    """The name, dtype and shape of an input or output with the trait."""
    match trait.what:
        case TraitKind.RANK:
            # as many elements as a small model computes with, and no leading dimensions of 1, which tools squeeze
            high = (2, *[1] * (int(trait.value) - 3), 2, 2)
            flat = (prod(_SHAPE),) if trait.output else _SHAPE[1:]
            return name, TensorProto.FLOAT, high if trait.is_high_rank else flat if int(trait.value) else ()
        case TraitKind.DTYPE:
            shape = _SHAPE if trait.value == "bool" else _TURNED
            return name, TensorProto.DataType.Value(trait.value.upper()), shape
        case TraitKind.NAME:
            return name.ljust(int(trait.value), "n"), TensorProto.FLOAT, _SHAPE
        case TraitKind.EMPTY:
            return name, TensorProto.FLOAT, (0, _SHAPE[1])
        case TraitKind.COUNT:
            return name, TensorProto.FLOAT, _SHAPE
    return f"{name}a{'b'.join(trait.value)}c", TensorProto.FLOAT, _SHAPE


def _weighted(graph: onnx.GraphProto, tensor: str) -> str:
    """The tensor with a weight added that `onnx.save` writes beside the model."""
    weight = numpy_helper.from_array(np.ones(_SHAPE, np.float32), "weight")
    set_external_data(weight, location="weights.data")
    graph.initializer.append(weight)
    return _node(graph, "Add", [tensor, "weight"], "weighted")


def _reshaped(graph: onnx.GraphProto, tensor: str, name: str, shape: tuple[int, ...]) -> str:
    graph.initializer.append(helper.make_tensor(f"{name}_shape", TensorProto.INT64, [len(shape)], shape))
    return _node(graph, "Reshape", [tensor, f"{name}_shape"], name)


def _emptied(graph: onnx.GraphProto, tensor: str, name: str) -> str:
    """No row of the tensor."""
    for part in ("starts", "ends", "axes"):
        graph.initializer.append(helper.make_tensor(f"{name}_{part}", TensorProto.INT64, [1], [0]))
    return _node(graph, "Slice", [tensor, f"{name}_starts", f"{name}_ends", f"{name}_axes"], name)


def _joined(graph: onnx.GraphProto, so_far: str, tensor: str, kind: int, name: str) -> str:
    """The tensor's part in what is computed so far."""
    if kind == TensorProto.BOOL:
        return _node(graph, "Where", [tensor, so_far, "x"], name)
    if kind != TensorProto.FLOAT:
        turned = _node(graph, "Transpose", [tensor], f"{name}_turned", perm=[1, 0])
        tensor = _node(graph, "Cast", [turned], f"{name}_cast", to=TensorProto.FLOAT)
    return _node(graph, "Add", [so_far, tensor], name)


def _node(graph: onnx.GraphProto, op: str, inputs: list[str], output: str, **attributes: Any) -> str:
    graph.node.append(helper.make_node(op, inputs, [output], name=f"node_{len(graph.node)}", **attributes))
    return output


def _model(graph: onnx.GraphProto, versions: Mapping[TraitKind, int] = PLAIN_VERSIONS) -> onnx.ModelProto:
    ir, opset = (versions.get(kind, plain) for kind, plain in PLAIN_VERSIONS.items())
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)
