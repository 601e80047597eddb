"""Writes the synthetic models of this folder: `python tests/models/make.py`. The others are exporters' own files."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

HERE = Path(__file__).parent

TEXTS = {
    # What exporters write for `x.reshape(x.shape[0], -1)`, with a dynamic batch.
    "computed_shape": """<ir_version: 8, opset_import: ["": 17]>
computed_shape (float[batch,3,4] x, float[batch,12] residual) => (float[m,n] y) {
  [zero] zero = Constant<value = int64 {0}>()
  [axes] axes = Constant<value = int64[1] {0}>()
  [rest] rest = Constant<value = int64[1] {-1}>()
  [relu] r = Relu(x)
  [shape] whole = Shape(r)
  [gather] first = Gather<axis = 0>(whole, zero)
  [unsqueeze] dim = Unsqueeze(first, axes)
  [concat] target = Concat<axis = 0>(dim, rest)
  [reshape] flat = Reshape(r, target)
  [add] y = Add(flat, residual)
}""",
    "bfloat16": """<ir_version: 10, opset_import: ["": 17]>
bfloat16 (bfloat16[2,4] x, float[2,4] plain) => (bfloat16[2,4] y, float[2,4] z) {
  [square] s = Mul(x, x)
  [sine] y = Sin(s)
  [relu] z = Relu(plain)
}""",
    "float16": """<ir_version: 8, opset_import: ["": 17]>
float16_net (float16[2,4] x) => (float[2,4] y) {
  [double] d = Add(x, x)
  [cast] c = Cast<to = 1>(d)
  [relu] y = Relu(c)
}""",
    "duplicate_names": """<ir_version: 8, opset_import: ["": 17]>
duplicate_names (float[4] x) => (float[4] y) {
  [same] a = Relu(x)
  [same] b = Sin(a)
  c = Cos(b)
  [same_1] y = Abs(c)
}""",
    # Only the branches call the function, each another overload of it.
    "overload_in_branch": """<ir_version: 10, opset_import: ["": 18, "my": 1]>
overload_in_branch (float[3] x, bool flag) => (float[3] y) {
  [relu] r = Relu(x)
  [if] y = If (flag) <
    then_branch = yes () => (float[3] t) { [yes] t = my.Act(r) },
    else_branch = no () => (float[3] e) { [no] e = my.Act(r) }
  >
}
<domain: "my", opset_import: ["": 18]>
Act (a) => (b) { b = Tanh(a) }
<domain: "my", opset_import: ["": 18]>
Act (a) => (b) { b = Sigmoid(a) }
""",
    "optional_type": """<ir_version: 10, opset_import: ["": 18]>
optional_type (float[2,3] x) => (float[2,3] y) {
  [wrap] o = Optional(x)
  [unwrap] g = OptionalGetElement(o)
  [relu] y = Relu(g)
}""",
    "strings": """<ir_version: 10, opset_import: ["": 20]>
strings (string[2] left, string[2] right, float[2] x) => (string[2] both, float[2] y) {
  [concat] both = StringConcat(left, right)
  [relu] y = Relu(x)
}""",
    # IR 3 demands that initializers are inputs, too.
    "initializers_as_inputs": """<ir_version: 3, opset_import: ["": 9]>
initializers_as_inputs (float[2,3] x, float[3] w) => (float[2,3] y)
<float[3] w = {1, 2, 3}>
{
  [mul] m = Mul(x, w)
  [relu] y = Relu(m)
}""",
    "data_dependent": """<ir_version: 8, opset_import: ["": 17]>
data_dependent (float[2,3] x) => (float[n] y, float[2,3] z) {
  [positive] p = Relu(x)
  [where] indices = NonZero(p)
  [rows] rows = Transpose(indices)
  [pick] y = GatherND(p, rows)
  [sine] z = Sin(x)
}""",
    "constants_everywhere": """<ir_version: 8, opset_import: ["": 17]>
constants_everywhere (float[2] x, bool flag) => (float[2] y, float[2] constant_output) {
  [shared] two = Constant<value_float = 2.0>()
  [inside] three = Constant<value_float = 3.0>()
  [output] constant_output = Constant<value_floats = [1.0, 2.0]>()
  [unread] nothing = Constant<value_int = 7>()
  [mul] a = Mul(x, two)
  [add] b = Add(a, two)
  [if] y = If (flag) <
    then_branch = yes () => (float[2] t) { [yes] t = Mul(b, three) },
    else_branch = no () => (float[2] e) { [no] e = Identity(b) }
  >
}""",
    # Two branches written in turns, as tools that sort by depth write them.
    "interleaved": """<ir_version: 8, opset_import: ["": 17]>
interleaved (float[4] x) => (float[4] y) {
  [stem] s = Relu(x)
  [left1] l1 = Sin(s)
  [right1] r1 = Cos(s)
  [left2] l2 = Abs(l1)
  [right2] r2 = Neg(r1)
  [left3] l3 = Tanh(l2)
  [right3] r3 = Sigmoid(r2)
  [join] y = Add(l3, r3)
}""",
}


def overloads() -> onnx.ModelProto:
    """The text form has no place for overloads: told apart here."""
    model = parser.parse_model(TEXTS["overload_in_branch"])
    for function, overload in zip(model.functions, ("smooth", "steep"), strict=True):
        function.overload = overload
        function.metadata_props.add(key="origin", value=overload)
    branches = {attribute.name: attribute.g for attribute in model.graph.node[1].attribute}
    branches["then_branch"].node[0].overload = "smooth"
    branches["else_branch"].node[0].overload = "steep"
    return model


def external_data() -> onnx.ModelProto:
    """Two weights in one file beside the model, the second at an offset."""
    weights = np.arange(32, dtype=np.float32) / 32
    (HERE / "external" / "external_data.bin").write_bytes(weights.tobytes())
    tensors = []
    for number in range(2):
        tensor = TensorProto(name=f"w{number}", data_type=1, dims=[4, 4], data_location=TensorProto.EXTERNAL)
        for key, value in (("location", "external_data.bin"), ("offset", str(64 * number)), ("length", "64")):
            tensor.external_data.add(key=key, value=value)
        tensors.append(tensor)
    model = parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
external_data (float[1,4] x) => (float[1,4] y) {
  [first] a = MatMul(x, w0)
  [relu] b = Relu(a)
  [second] y = MatMul(b, w1)
}""")
    model.graph.initializer.extend(tensors)
    return model


def quantized() -> onnx.ModelProto:
    """Weights behind DequantizeLinear, the same convolution twice, and a quantization annotation."""
    scale = numpy_helper.from_array(np.array(0.1, np.float32), "scale")
    zero = numpy_helper.from_array(np.array(0, np.int8), "zero")
    graph = helper.make_graph(
        [], "quantized", [helper.make_tensor_value_info("t0", 1, [1, 3, 8, 8])], [], [scale, zero]
    )
    random = np.random.default_rng(0)
    for number in range(2):
        weight = random.integers(-128, 128, (3, 3, 3, 3)).astype(np.int8)
        graph.initializer.append(numpy_helper.from_array(weight, f"w{number}"))
        graph.initializer.append(numpy_helper.from_array(np.array(0.01 + number / 100, np.float32), f"w_scale{number}"))
        bias = random.standard_normal(3).astype(np.float32)
        graph.initializer.append(numpy_helper.from_array(bias, f"bias{number}"))
        graph.node.extend(
            [
                helper.make_node(
                    "QuantizeLinear", [f"t{number}", "scale", "zero"], [f"q{number}"], f"quantize{number}"
                ),
                helper.make_node("DequantizeLinear", [f"q{number}", "scale", "zero"], [f"d{number}"], f"data{number}"),
                helper.make_node(
                    "DequantizeLinear", [f"w{number}", f"w_scale{number}", "zero"], [f"v{number}"], f"weight{number}"
                ),
                helper.make_node(
                    "Conv",
                    [f"d{number}", f"v{number}", f"bias{number}"],
                    [f"t{number + 1}"],
                    f"conv{number}",
                    pads=[1, 1, 1, 1],
                ),
            ]
        )
    graph.output.append(helper.make_tensor_value_info("t2", 1, [1, 3, 8, 8]))
    graph.quantization_annotation.add(tensor_name="t1").quant_parameter_tensor_names.add(
        key="SCALE_TENSOR", value="scale"
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main() -> None:
    """Write every file."""
    models = {name: parser.parse_model(text) for name, text in TEXTS.items()}
    models |= {"overload_in_branch": overloads(), "external/external_data": external_data(), "quantized": quantized()}
    for name, model in models.items():
        (HERE / f"{name}.onnx").write_bytes(model.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
