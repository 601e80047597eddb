"""Small models for the tests of cutting and of keys, and a way to run any model tensor by tensor."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper, parser

from onnxbisect.cut import Cutter
from onnxbisect.model import Model, load
from onnxbisect.model.runnable import Fill, feed
from support import TESTS

#: Real and synthetic files, small enough to be cut hundreds of times.
FILES = sorted([*TESTS.glob("models/*.onnx"), *TESTS.glob("cases/*.onnx")])

#: Bytes of one weight of the model that `huge` makes.
HUGE_SIDE = 1600
HUGE_WEIGHT = HUGE_SIDE * HUGE_SIDE * 4

CHAIN = """<ir_version: 8, opset_import: ["": 17]>
chain (float[2,3] x) => (float[2,3] y) {
  a = Relu(x)
  b = Sigmoid(a)
  c = Tanh(b)
  d = Add(c, a)
  y = Neg(d)
}"""

#: A shape computed by nodes: `shape` has a known value.
RESHAPE = """<ir_version: 8, opset_import: ["": 17]>
reshaped (float[2,3,4] x) => (float[2,12] y) {
  whole = Shape(x)
  zero = Constant<value_ints = [0]>()
  first = Gather(whole, zero)
  rest = Constant<value_ints = [-1]>()
  shape = Concat<axis = 0>(first, rest)
  r = Relu(x)
  y = Reshape(r, shape)
}"""

#: Both branches capture: a weight, a computed tensor, a Constant; only the first calls Twice.
BRANCHES = """<ir_version: 10, opset_import: ["": 18, "my": 1]>
branches (float[3] x) => (float[3] y)
<float[3] w = {1, 2, 3}, bool[1] unused_flag = {0}>
{
  scaled = Mul(x, w)
  total = ReduceSum<keepdims = 0>(x)
  limit = Constant<value_float = 0.25>()
  high = Greater(total, limit)
  y = If(high) <
    then_branch = yes () => (float[3] t) { a = Add(scaled, w)  b = my.Twice(a)  t = Mul(b, limit) },
    else_branch = no () => (float[3] e) { e = Sub(scaled, x) }
  >
}
<domain: "my", opset_import: ["": 18, "my": 1]>
Twice (a) => (b) { c = Identity(a)  b = my.Double(c) }
<domain: "my", opset_import: ["": 18]>
Double (a) => (b) { b = Add(a, a) }
<domain: "my", opset_import: ["": 18]>
Unasked (a) => (b) { b = Abs(a) }
"""


def save(folder: Path, model: str | onnx.ModelProto, name: str = "model.onnx") -> Path:
    """A file of a model given as text or protobuf; unnamed nodes get the name of their first output."""
    proto = parser.parse_model(model) if isinstance(model, str) else model
    for node in proto.graph.node:
        node.name = node.name or f"make_{node.output[0]}"
    path = folder / name
    onnx.save(proto, path)
    return path


def read(folder: Path, model: str | onnx.ModelProto, name: str = "model.onnx") -> Model:
    """Save and take in."""
    return load(save(folder, model, name))


def bound(path: Path) -> Model:
    """Take in a file, with 2 for each dimension that it leaves open."""
    model = load(path)
    if not model.unbound:
        return model
    shapes = {
        value.name: [dim.dim_value or 2 for dim in value.type.tensor_type.shape.dim]
        for value in model.proto.graph.input
        if value.name in model.unbound
    }
    return load(path, input_shapes=shapes)


def session(content: bytes) -> ort.InferenceSession:
    """The reference: one thread, nothing optimised, no weights repacked, so that equal graphs give equal bits."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.disable_prepacking", "1")
    return ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def all_tensors(model: Model) -> dict[str, Any]:
    """The value of every tensor of the whole model, inputs included, from one run on intake's own inputs.

    Where a shape depends on data, only these give the shapes that intake saw.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    shown = {value.name for value in (*proto.graph.output, *proto.graph.input)}
    for node in model.proto.graph.node:
        for name in node.output:
            if name and name not in shown:
                value = proto.graph.output.add(name=name)
                if name in model.types:
                    value.type.CopyFrom(model.types[name])
    runner = session(proto.SerializeToString())
    declared = {value.name: value for value in model.proto.graph.input}
    feeds = {
        value.name: feed(declared[value.name], Fill.RANDOM)
        if value.type.startswith("tensor(") and all(isinstance(dim, int) for dim in value.shape)
        else random_input(value.name, value.type, value.shape)
        for value in runner.get_inputs()
    }
    names = [value.name for value in runner.get_outputs()]
    return {**dict(zip(names, runner.run(names, feeds), strict=True)), **feeds}


def random_input(name: str, kind: str, shape: Iterable[object]) -> Any:
    """A fixed input: floats of both signs, integers 0 or 1."""
    dims = [dim if isinstance(dim, int) else 2 for dim in shape]
    random = np.random.default_rng(len(name))
    if kind.startswith("seq("):
        return [random.standard_normal((2, 2)).astype(np.float32) for _ in range(2)]
    dtype = {"tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16"}.get(kind)
    if dtype:
        return random.standard_normal(dims).astype(dtype)
    return random.integers(0, 2, dims).astype(kind.removeprefix("tensor(").removesuffix(")"))


def same_bits(one: Any, other: Any) -> bool:
    """Whether two results of onnxruntime are the same to the last bit."""
    if one is None or other is None:
        return one is other
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same_bits, one, other))
    one, other = np.asarray(one), np.asarray(other)
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool(one.tolist() == other.tolist() if one.dtype == object else one.tobytes() == other.tobytes())


def assert_same_results(
    piece: onnx.ModelProto, values: Mapping[str, Any], original: Callable[[str], str] = str
) -> None:
    """The piece gives the tensors that the whole model gave."""
    runner = session(piece.SerializeToString())
    outputs = runner.get_outputs()
    feeds = {value.name: values[original(value.name)] for value in runner.get_inputs()}
    for value, result in zip(outputs, runner.run(None, feeds), strict=True):
        assert same_bits(result, values[original(value.name)]), value.name


def node_names(piece: onnx.ModelProto) -> list[str]:
    return [node.name for node in piece.graph.node]


def input_names(piece: onnx.ModelProto) -> list[str]:
    return [value.name for value in piece.graph.input]


def output_names(piece: onnx.ModelProto) -> list[str]:
    return [value.name for value in piece.graph.output]


def weight_names(piece: onnx.ModelProto) -> list[str]:
    return [tensor.name for tensor in piece.graph.initializer]


def external(name: str, shape: list[int], offset: int, location: str = "weights.bin") -> TensorProto:
    """A float tensor whose bytes lie in another file."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", 4 * int(np.prod(shape)))):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def matmuls(weights: Iterable[TensorProto], size: int) -> onnx.ModelProto:
    """A chain of MatMul by these square weights."""
    weights = list(weights)
    nodes = [
        helper.make_node("MatMul", [f"t{i}", weight.name], [f"t{i + 1}"], name=f"mul{i}")
        for i, weight in enumerate(weights)
    ]
    io = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size]) for name in ("t0", f"t{len(weights)}")]
    graph = helper.make_graph(nodes, "matmuls", io[:1], io[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def huge(folder: Path) -> Model:
    """250 weights of 10 MB, in a file of 2.5 GB that is all holes and costs no disk."""
    data = folder / "weights.bin"
    # LoadedModel runs the model, with all weights in memory: it sees small ones, which become large afterwards.
    path = save(folder, matmuls([external(f"w{i}", [2, 2], 0) for i in range(250)], 2))
    with data.open("wb") as file:
        file.truncate(16)
    model = load(path)
    for index, tensor in enumerate(model.proto.graph.initializer):
        tensor.CopyFrom(external(tensor.name, [HUGE_SIDE, HUGE_SIDE], index * HUGE_WEIGHT))
    with data.open("r+b") as file:
        file.truncate(250 * HUGE_WEIGHT)
    return model


def cut_names(model: Model, *names: str, **wanted: Any) -> onnx.ModelProto:
    """The piece of these nodes."""
    units = sum(1 << model.unit_of_node[name] for name in names)
    return Cutter(model).cut(units, **wanted).proto


def weight(name: str, array: np.ndarray) -> TensorProto:
    return numpy_helper.from_array(array, name)
