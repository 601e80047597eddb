"""Nodes that onnxruntime does not know: splits and repairs are proven around them, and nothing else is."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper, parser

from onnxbisect.errors import ModelError
from onnxbisect.model import Model, load
from onnxbisect.model.facts import TensorFacts
from onnxbisect.model.opaque import around
from onnxbisect.proof import compare, random_feeds
from onnxbisect.remedies import OrtProver, Samples
from onnxbisect.split import runner, split
from onnxbisect.unitset import of
from support.examples import examples

SHAPE = (2, 3)
OPS = ("Sigmoid", "Tanh", "Exp", "Neg", "Add", "Mul", "Softsign")


def gate(x: np.ndarray, *more: np.ndarray, slope: float = 1.0) -> np.ndarray:
    """What the custom op computes."""
    return np.tanh(sum(more, x) * np.float32(slope)).astype(np.float32)


@st.composite
def graphs(draw: st.DrawFn) -> onnx.ModelProto:
    """Small graphs with custom ops in any place, with one or two inputs, of which one may be a weight."""
    names, nodes = ["x"], []
    custom = draw(st.sets(st.integers(0, 6), min_size=1, max_size=3))
    for number in range(7):
        first, second = draw(st.sampled_from(names)), draw(st.sampled_from([*names, "w"]))
        if number in custom:
            inputs = [first, second] if draw(st.booleans()) else [first]
            node = helper.make_node(
                "Gate", inputs, [f"t{number}"], domain="my", slope=draw(st.sampled_from([0.5, 2.0]))
            )
        else:
            op = draw(st.sampled_from(OPS))
            node = helper.make_node(op, [first, second] if op in ("Add", "Mul") else [first], [f"t{number}"])
        node.name = f"n{number}"
        nodes.append(node)
        names.append(f"t{number}")
    # one sum of all, so that all nodes are needed
    nodes.append(helper.make_node("Sum", names[1:], ["y"], name="sum"))
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in (*names, "y")]
    weight = numpy_helper.from_array(np.linspace(-1, 1, 6, dtype=np.float32).reshape(SHAPE), "w")
    graph = helper.make_graph(nodes, "net", value[:1], value[-1:], [weight], value_info=value[1:-1])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def computed(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """The output, node by node, by numpy for the custom op and by onnx's reference for the rest."""
    from onnx.reference import ReferenceEvaluator

    values: dict[str, np.ndarray] = {"x": x, "w": numpy_helper.to_array(proto.graph.initializer[0])}
    for node in proto.graph.node:
        inputs = [values[name] for name in node.input]
        if node.domain == "my":
            values[node.output[0]] = gate(*inputs, slope=float(node.attribute[0].f))
        else:
            kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in dict.fromkeys(node.input)]
            ends = [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)]
            single = helper.make_model(
                helper.make_graph([node], "one", kinds, ends), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
            )
            (made,) = ReferenceEvaluator(single).run(None, dict(zip(node.input, inputs, strict=True)))
            values[node.output[0]] = np.asarray(made)
    return values["y"]


@given(proto=graphs(), refused=st.sets(st.integers(0, 7), max_size=3))
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_pieces_around_custom_ops_are_proven_and_compute_the_model(
    tmp_path_factory: pytest.TempPathFactory, proto: onnx.ModelProto, refused: set[int]
) -> None:
    folder = tmp_path_factory.mktemp("net")
    onnx.save(proto, folder / "net.onnx")
    model = load(folder / "net.onnx")
    custom = {number for number, unit in enumerate(model.units) if proto.graph.node[unit.node].domain == "my"}
    passed = of(set(range(len(model.units))) - custom - refused)
    if not passed:
        return

    manifest = split(model, [passed], folder / "split")

    assert manifest.proof.proven, manifest.proof.reason
    assert sum(piece.kind == "custom" for piece in manifest.pieces) == len(custom)
    x = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    runner.functions["my:Gate"] = gate
    found = runner.run(folder / "split", {"x": x})
    runner.session.cache_clear()
    np.testing.assert_allclose(found["y"], computed(proto, x), rtol=1e-4, atol=1e-5)


NET = """<ir_version: 8, opset_import: ["": 17, "my": 1]>
net (float[2,3] x) => (float[2,3] y) <float[2,3] g> {
  [a] a = Softsign(x)
  [g] g = my.Gate (a)
  [y] y = Tanh(g)
}"""


def saved(folder: Path, text: str = NET, name: str = "net") -> Model:
    onnx.save(parser.parse_model(text), folder / f"{name}.onnx")
    return load(folder / f"{name}.onnx")


def prover(model: Model, *samples: dict[str, np.ndarray]) -> OrtProver:
    def given_samples() -> Samples:
        made_up = [*random_feeds(around(model.proto, model.types.get).graph.input, 2)]
        return Samples(usual=[*({**made_up[0], **it} for it in samples), *made_up])

    return OrtProver(onnx.load(model.path), TensorFacts.of(model), given_samples, folder=model.path.parent)


def test_a_change_before_a_custom_op_is_compared_there(tmp_path: Path) -> None:
    """The output says nothing of it: what the custom op makes is not computed again."""
    model = saved(tmp_path)
    same = parser.parse_model(NET.replace("Softsign(x)", "Softsign(x)"))
    other = parser.parse_model(NET.replace("Softsign(x)", "Tanh(x)"))
    assert prover(model).compared(same).holds
    assert not prover(model).compared(other).holds
    feeds = [*random_feeds(around(model.proto).graph.input, 2)]
    assert compare(onnx.load(model.path), same, feeds).agrees
    assert not compare(onnx.load(model.path), other, feeds).agrees


def test_tensors_recorded_on_other_inputs_prove_nothing(tmp_path: Path) -> None:
    model = saved(tmp_path)
    x = np.ones(SHAPE, np.float32)
    right: dict[str, np.ndarray] = {"x": x, "a": x / 2, "g": gate(x / 2)}
    assert prover(model, right).compared(onnx.load(model.path)).holds
    wrong = prover(model, {**right, "a": x}).compared(onnx.load(model.path))
    assert not wrong.holds
    assert "the recorded tensor 'a' is not what the model computes" in wrong.problem
    proof = split(model, [of([0, 2])], tmp_path / "split", samples=[{**right, "a": x}]).proof
    assert (proof.proven, "recorded tensor 'a'" in proof.reason) == (False, True)


def test_a_type_that_nobody_knows_is_one_sentence() -> None:
    proto = parser.parse_model(NET.replace("<float[2,3] g>", ""))
    with pytest.raises(
        ModelError, match="my::Gate 'g' is no op of onnxruntime, and type or shape of its output 'g' are not"
    ):
        around(proto)


def test_recorded_tensors_declare_what_the_file_does_not(tmp_path: Path) -> None:
    """Without them the output would be assumed to be like the input."""
    text = NET.replace("<float[2,3] g>", "").replace("(float[2,3] y)", "(float[n,m] y)")
    proto = parser.parse_model(text)
    onnx.save(proto, tmp_path / "net.onnx")
    recorded = {"x": np.ones(SHAPE, np.float32), "g": np.ones((4, 5), np.float32)}
    model = load(tmp_path / "net.onnx", sample=lambda inputs, bound, tensors: recorded)
    assert [dim.dim_value for dim in model.types["y"].tensor_type.shape.dim] == [4, 5]


@pytest.mark.parametrize(
    ("declared", "known"),
    [
        ("float[a,b]", [2, 3]),
        ("float[2,b]", [2, 3]),
        ("float[4,b]", [4, 0]),
        ("float[a,b,c]", [0, 0, 0]),
        ("int64[a,b]", [0, 0]),
    ],
)
def test_an_output_whose_sizes_are_declared_by_names_may_be_like_the_input(
    tmp_path: Path, declared: str, known: list[int]
) -> None:
    """Exporters write a custom op's output so; what is declared of dtype, rank and sizes is still believed."""
    text = NET.replace("<float[2,3] g>", f"<{declared} g>").replace("(float[2,3] y)", f"({declared} y)")
    onnx.save(parser.parse_model(text), tmp_path / "net.onnx")
    dims = load(tmp_path / "net.onnx").types["g"].tensor_type.shape.dim
    assert [dim.dim_value for dim in dims] == known
