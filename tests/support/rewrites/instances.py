"""Models of one node with data, on which a rule is tried; and what is drawn for them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from support.rewrites.measured import outputs_of

Draw = Callable[[st.SearchStrategy], object]
Scale = Callable[[Mapping[str, np.ndarray]], np.ndarray]

EDGES = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e38, -1e38, 0.5, -0.5, 1.5, 2.5, -1.5, 1.0, -1.0, 1e-20)
FINITE = tuple(edge for edge in EDGES if np.isfinite(edge))


@dataclass(frozen=True)
class Constant:
    """An input that the model stores."""

    array: np.ndarray


@dataclass(frozen=True)
class Instance:
    """One node, called `n`, whose inputs are fed or stored. `scale` is the magnitude that a rule's bound is of, `known`
    are values that intake would have computed.
    """

    model: onnx.ModelProto
    feeds: Mapping[str, np.ndarray]
    scale: np.ndarray | float | None = None
    known: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass
class Case:
    """Where one rule is to hold and where not."""

    rule: str
    inside: Callable[[st.DrawFn], Instance]
    outside: Callable[[st.DrawFn], Instance]


CASES: dict[str, Case] = {}


def case(rule: str, outside: Callable[[st.DrawFn], Instance]) -> Callable[[Callable[[st.DrawFn], Instance]], None]:
    """Register what `inside` draws for a rule."""

    def registered(inside: Callable[[st.DrawFn], Instance]) -> None:
        assert rule not in CASES
        CASES[rule] = Case(rule, inside, outside)

    return registered


def node(
    op: str,
    *inputs: np.ndarray | Constant | None,
    outputs: int = 1,
    opset: int = 17,
    domain: str = "",
    scale: np.ndarray | float | None = None,
    functions: Sequence[onnx.FunctionProto] = (),
    named: Mapping[str, Any] = MappingProxyType({}),
    **attributes: Any,
) -> Instance:
    """The model of one node: arrays are fed, Constants stored, None left out; `named` are attributes as well."""
    inputs = tuple(np.asarray(value) if isinstance(value, np.generic) else value for value in inputs)
    names = ["" if value is None else f"x{slot}" for slot, value in enumerate(inputs)]
    feeds = {f"x{slot}": value for slot, value in enumerate(inputs) if isinstance(value, np.ndarray)}
    stored = {f"x{slot}": value.array for slot, value in enumerate(inputs) if isinstance(value, Constant)}
    made = [f"y{slot}" for slot in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op, names, made, name="n", domain=domain, **attributes, **named)],
        "g",
        [helper.make_tensor_value_info(name, dtype_of(array), array.shape) for name, array in feeds.items()],
        [helper.make_empty_tensor_value_info(name) for name in made],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    opsets = {"": opset, **({domain: 1} if domain else {})}
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid(name, version) for name, version in opsets.items()], ir_version=9
    )
    model.functions.extend(functions)
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    if domain or any(_is_untyped(value.type, opset) for value in inferred.graph.output):  # few others' infer all shapes
        computed = outputs_of(model, feeds)
        del inferred.graph.output[:]
        inferred.graph.output.extend(
            helper.make_tensor_value_info(name, dtype_of(array), array.shape)
            for name, array in zip(made, computed, strict=True)
        )
    return Instance(inferred, feeds, scale)


def dynamic(instance: Instance) -> Instance:
    """The same with no dimension fixed."""
    model = onnx.ModelProto()
    model.CopyFrom(instance.model)
    for value in [*model.graph.input, *model.graph.output]:
        for number, dim in enumerate(value.type.tensor_type.shape.dim):
            dim.dim_param = f"d{number}"
    return Instance(model, instance.feeds, instance.scale)


def in_halves(instance: Instance) -> Instance:
    """The same with float16 for float32; raises what onnxruntime raises where the op has no such form."""
    model = onnx.ModelProto()
    model.CopyFrom(instance.model)
    graph = model.graph
    feeds = {name: _half(array) for name, array in instance.feeds.items()}
    stored = [numpy_helper.from_array(_half(numpy_helper.to_array(it)), it.name) for it in graph.initializer]
    del graph.initializer[:], graph.value_info[:]
    graph.initializer.extend(stored)
    for value in graph.input:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    names = [value.name for value in graph.output]
    del graph.output[:]
    graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    computed = outputs_of(model, feeds)
    del graph.output[:]
    graph.output.extend(
        helper.make_tensor_value_info(name, dtype_of(array), array.shape)
        for name, array in zip(names, computed, strict=True)
    )
    known = {name: _half(array) for name, array in instance.known.items()}
    return Instance(model, feeds, instance.scale, known)


def in_type(instance: Instance, dtype: int) -> Instance:
    """The graph with float16 or bfloat16 for float32; values of bfloat16 are fed in float32."""
    model = onnx.ModelProto()
    model.CopyFrom(instance.model)
    graph = model.graph
    del graph.value_info[:]
    narrow = helper.tensor_dtype_to_np_dtype(dtype)
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            array = numpy_helper.to_array(tensor).astype(narrow)
            tensor.CopyFrom(helper.make_tensor(tensor.name, dtype, array.shape, array.tobytes(), raw=True))
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = dtype
    fed = np.float16 if dtype == TensorProto.FLOAT16 else np.float32
    feeds = {
        name: array.astype(narrow).astype(fed) if array.dtype == np.float32 else array
        for name, array in instance.feeds.items()
    }
    return Instance(onnx.shape_inference.infer_shapes(model, data_prop=True), feeds, instance.scale)


def _half(array: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return array.astype(np.float16) if array.dtype == np.float32 else array


def _is_untyped(kind: onnx.TypeProto, opset: int) -> bool:
    """Whether onnx's inference does not know the op, or not in this old a form."""
    return not kind.tensor_type.elem_type or (opset < 10 and not kind.tensor_type.HasField("shape"))


def dtype_of(array: np.ndarray) -> int:
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def shape(draw: st.DrawFn, least: int = 1, most: int = 4, dim: int = 5) -> tuple[int, ...]:
    return tuple(draw(st.lists(st.integers(1, dim), min_size=least, max_size=most)))


def opset(draw: st.DrawFn, *choices: int) -> int:
    return draw(st.sampled_from(choices or (7, 11, 13, 17, 18, 21, 24)))


def floats(
    draw: st.DrawFn,
    dims: Sequence[int],
    *,
    spread: float = 4.0,
    edges: Sequence[float] = EDGES,
    dtype: type = np.float32,
    low: float | None = None,
    high: float | None = None,
) -> np.ndarray:
    """Numbers around zero, or between two others, with edge values strewn among them."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    drawn = random.normal(size=tuple(dims)) * spread if low is None else random.uniform(low, high, size=tuple(dims))
    array = np.array(drawn)
    flat = array.reshape(-1)
    if len(edges) and flat.size:
        count = draw(st.integers(0, flat.size))
        places = random.permutation(flat.size)[:count]
        flat[places] = random.choice(np.array(edges, np.float64), size=count)
    with np.errstate(over="ignore"):
        return array.astype(dtype)


def integers(draw: st.DrawFn, dims: Sequence[int], low: int, high: int, dtype: type = np.int64) -> np.ndarray:
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return np.asarray(random.integers(low, high, size=tuple(dims), endpoint=True)).astype(dtype)


def anything(draw: st.DrawFn, dims: Sequence[int]) -> np.ndarray:
    """Data of any of the element types that data movement must leave alone."""
    kind = draw(st.sampled_from([np.float32, np.float16, np.float64, np.int64, np.int32, np.uint8, np.bool_]))
    if np.dtype(kind).kind == "f":
        return floats(draw, dims, dtype=kind)
    if kind == np.bool_:
        return integers(draw, dims, 0, 1).astype(np.bool_)
    return integers(draw, dims, 0 if np.dtype(kind).kind == "u" else -100, 100, kind)


__all__ = [
    "CASES",
    "EDGES",
    "FINITE",
    "Case",
    "Constant",
    "Instance",
    "anything",
    "case",
    "dynamic",
    "floats",
    "in_halves",
    "in_type",
    "integers",
    "node",
    "opset",
    "shape",
]
