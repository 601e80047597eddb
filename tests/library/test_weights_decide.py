"""Targets that quantise may refuse one layer for its weights and take another of the same shape."""

from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import GraphProto, TensorProto, helper, numpy_helper

import onnx_bisect
from onnx_bisect import Certainty
from onnx_bisect.backend_choice import CallableBackend
from onnxbisect_backends.contract import Description

LAYERS = 24


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(tmp_path / "cache"))


class Quantising(CallableBackend):
    """A compiler whose answers depend on the values of weights."""

    def describe(self) -> Description:
        return Description(tool=self.name, version="", weights_matter=True)


def layers(to: Path, outliers: Collection[int]) -> Path:
    """MatMul and Relu, again and again; some weights have a value so large that int8 has no scale for them."""
    chance = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    for layer in range(LAYERS):
        values = chance.standard_normal((4, 4)).astype(np.float32)
        values[0, 0] = 1e6 if layer in outliers else values[0, 0]
        weights.append(numpy_helper.from_array(values, f"w{layer}"))
        product, last_made = f"mm{layer}", f"relu{layer}"
        nodes.append(helper.make_node("MatMul", [last, f"w{layer}"], [product], name=product))
        nodes.append(helper.make_node("Relu", [product], [last_made], name=last_made))
        last = last_made
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("x", last)]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), to)
    return to


def quantising(accepts: Callable[[GraphProto], bool], asked: list[Path]) -> Quantising:
    def compiler(path: Path) -> bool:
        asked.append(path)
        return accepts(onnx.load(path).graph)

    return Quantising(compiler)


@pytest.mark.parametrize("outliers", [(0,), (7,), (3, 7), (11,)])
def test_only_the_layers_with_such_weights_are_to_blame(tmp_path: Path, outliers: tuple[int, ...]) -> None:
    asked: list[Path] = []

    def accepts(graph: GraphProto) -> bool:
        return all(np.abs(numpy_helper.to_array(weight)).max() < 1e5 for weight in graph.initializer)

    report = onnx_bisect.diagnose(layers(tmp_path / "m.onnx", outliers), backend=quantising(accepts, asked))

    places = {node for culprit in report.culprits for place in culprit.occurrences for node in place}
    assert places == {f"mm{layer}" for layer in outliers}
    assert {(culprit.kind, culprit.certainty) for culprit in report.culprits} == {("single", Certainty.CONFIRMED)}
    assert report.certificate.proven
    assert len(asked) <= 36


def test_an_op_refused_whatever_its_weights_are_is_not_asked_for_each(tmp_path: Path) -> None:
    asked: list[Path] = []

    def accepts(graph: GraphProto) -> bool:
        return all(node.op_type != "MatMul" for node in graph.node)

    report = onnx_bisect.diagnose(layers(tmp_path / "m.onnx", ()), backend=quantising(accepts, asked))

    (culprit,) = report.culprits
    assert (len(culprit.occurrences), culprit.certainty) == (LAYERS, Certainty.CONFIRMED)
    assert report.certificate.proven
    assert len(asked) <= 14
