"""Compilers that fuse ops, on ONNX files: what is refused outside of a pattern is no culprit inside of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

import onnx_bisect
from onnx_bisect import Certainty, CertificateStatus, Hints, Kind, Status, Verdict

Rule = Callable[[GraphProto], bool]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(tmp_path / "cache"))


def saved(
    nodes: list[NodeProto], x: list[int], y: list[int], weights: dict[str, np.ndarray[Any, Any]], to: Path
) -> Path:
    given, made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, it) for name, it in (("x", x), ("y", y)))
    initializers = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "g", [given], [made], initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), to)
    return to


def gated(to: Path) -> Path:
    """Three blocks of Conv and SiLU, then the product `gate` of two feature maps."""
    weights: dict[str, np.ndarray[Any, Any]] = {}

    def conv(source: str, name: str) -> NodeProto:
        weights[f"{name}_w"] = np.ones((2, 2, 1, 1), np.float32)
        return helper.make_node("Conv", [source, f"{name}_w"], [name], name=name)

    nodes, last = [], "x"
    for block in range(3):
        mapped, sigmoid, product = (f"{op}{block}" for op in ("conv", "sigmoid", "silu"))
        nodes += [
            conv(last, mapped),
            helper.make_node("Sigmoid", [mapped], [sigmoid], name=sigmoid),
            helper.make_node("Mul", [mapped, sigmoid], [product], name=product),
        ]
        last = product
    nodes += [
        conv(last, "one"),
        helper.make_node("Relu", ["one"], ["positive"], name="positive"),
        conv("positive", "other"),
        helper.make_node("Mul", ["positive", "other"], ["gate"], name="gate"),
        conv("gate", "y"),
    ]
    return saved(nodes, [1, 2, 4, 4], [1, 2, 4, 4], weights, to)


def normalised(to: Path) -> Path:
    """Four layer normalisations, each behind a MatMul, then `pool` with the ReduceMean that they have."""
    weights: dict[str, np.ndarray[Any, Any]] = {"two": np.array(2, np.float32), "epsilon": np.array(1e-5, np.float32)}
    nodes, last = [], "x"

    def add(op: str, inputs: list[str], name: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def mean(source: str, name: str) -> str:
        return add("ReduceMean", [source], name, axes=[-1], keepdims=1)

    for layer in range(4):
        weights[f"w{layer}"] = np.eye(4, dtype=np.float32)
        last = add("MatMul", [last, f"w{layer}"], f"matmul{layer}")
        difference = add("Sub", [last, mean(last, f"mean{layer}")], f"sub{layer}")
        variance = mean(add("Pow", [difference, "two"], f"pow{layer}"), f"variance{layer}")
        deviation = add("Sqrt", [add("Add", [variance, "epsilon"], f"add{layer}")], f"sqrt{layer}")
        last = add("Div", [difference, deviation], f"div{layer}")
    add("Tanh", [mean(add("Relu", [last], "relu"), "pool")], "y")
    return saved(nodes, [1, 3, 4], [1, 3, 1], weights, to)


def producers(graph: GraphProto) -> dict[str, NodeProto]:
    return {output: node for node in graph.node for output in node.output}


def outside_of_silu(graph: GraphProto) -> list[str]:
    """The names of the Sigmoid and Mul nodes that are not in a SiLU."""
    made = producers(graph)
    fused: set[str] = set()
    for node in graph.node:
        factor = made.get(node.input[1]) if node.op_type == "Mul" else None
        if factor is not None and factor.op_type == "Sigmoid" and factor.input[0] == node.input[0]:
            fused |= {factor.name, node.name}
    return [node.name for node in graph.node if node.op_type in ("Sigmoid", "Mul") and node.name not in fused]


def refuses_what_is_no_silu(graph: GraphProto) -> bool:
    return bool(outside_of_silu(graph))


def whole_normalisations(graph: GraphProto) -> int:
    """How many are in the graph with all seven nodes."""
    made = producers(graph)
    found = 0
    for node in graph.node:
        at = made.get(node.input[1]) if node.op_type == "Div" else None
        for op in ("Sqrt", "Add", "ReduceMean", "Pow"):
            at = made.get(at.input[0]) if at is not None and at.op_type == op else None
        found += at is not None and at.op_type == "Sub" and at.input[1] in made
    return found


def refuses_a_mean_by_itself(graph: GraphProto) -> bool:
    return sum(node.op_type == "ReduceMean" for node in graph.node) > 2 * whole_normalisations(graph)


def crashes_in_fusing(graph: GraphProto) -> bool:
    return whole_normalisations(graph) > 0


def lone_means(graph: GraphProto) -> list[str]:
    """The names of the ReduceMean nodes where one is not in a normalisation; a whole normalisation has two."""
    means = [node.name for node in graph.node if node.op_type == "ReduceMean"]
    whole = 2 * whole_normalisations(graph)
    return [name for name in means if name == "pool"] or means if len(means) > whole else []


LAYER = ("mean", "sub", "pow", "variance", "add", "sqrt", "div")


@pytest.mark.parametrize(
    ("model", "refuses", "truth", "most"),
    [
        (gated, refuses_what_is_no_silu, {("gate",)}, 18),
        (normalised, refuses_a_mean_by_itself, {("pool",)}, 18),
        (normalised, crashes_in_fusing, {tuple(f"{it}{layer}" for it in LAYER) for layer in range(4)}, 36),
    ],
    ids=["silu", "normalisation", "fusion-pass"],
)
def test_only_what_is_to_blame_is_named(
    model: Callable[[Path], Path], refuses: Rule, truth: set[tuple[str, ...]], most: int, tmp_path: Path
) -> None:
    def compiles(path: Path) -> bool:
        return not refuses(onnx.load(path).graph)

    result = onnx_bisect.diagnose(model(tmp_path / "model.onnx"), backend=compiles)
    [culprit] = result.culprits
    assert set(culprit.occurrences) == truth
    assert (culprit.certainty, result.certificate.status) == (Certainty.CONFIRMED, CertificateStatus.PROVEN)
    assert result.stats.compiler_calls <= most


@pytest.mark.parametrize(
    ("model", "refused", "truth"),
    [(gated, outside_of_silu, "gate"), (normalised, lone_means, "pool")],
    ids=["silu", "normalisation"],
)
def test_alike_nodes_that_a_complete_log_leaves_out_are_not_blamed(
    model: Callable[[Path], Path], refused: Callable[[GraphProto], list[str]], truth: str, tmp_path: Path
) -> None:
    def compiles(path: Path) -> Verdict:
        names = refused(onnx.load(path).graph)
        if not names:
            return Verdict(status=Status.PASS)
        message = " ".join(f"node {name} is not supported" for name in names)
        return Verdict(status=Status.FAIL, kind=Kind.UNSUPPORTED, message=message, hints=Hints(nodes=tuple(names)))

    result = onnx_bisect.diagnose(model(tmp_path / "model.onnx"), backend=compiles)
    [culprit] = result.culprits
    assert culprit.occurrences == ((truth,),)
    assert culprit.message == f"node {truth} is not supported"
    assert (culprit.certainty, result.certificate.status) == (Certainty.CONFIRMED, CertificateStatus.PROVEN)
    assert result.stats.compiler_calls <= 10
