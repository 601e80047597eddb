"""The compilers of `compilers/*.toml` that come from PyPI: they keep the contract, and say what we read.

Their environments are made by `onnx-bisect backends install openvino iree mnn nncase`.
"""

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect_backends.contract import Backend, Limits
from onnxbisect_backends.registry import make
from onnxbisect_backends.testing import BackendConformance, with_op

pytestmark = pytest.mark.compiler


def usable(name: str, **options: str) -> Backend:
    backend = make(name, options)
    if complaint := backend.check():
        pytest.skip(complaint)
    return backend


class TestOpenVino(BackendConformance):
    def backend(self) -> Backend:
        return usable("openvino")

    def refused(self) -> onnx.ModelProto:
        return with_op("Det")


class TestIree(BackendConformance):
    def backend(self) -> Backend:
        return usable("iree")

    def refused(self) -> onnx.ModelProto:
        return with_op("Det")


class TestMnn(BackendConformance):
    def backend(self) -> Backend:
        return usable("mnn")

    def refused(self) -> onnx.ModelProto:
        return with_op("Multinomial")


class TestNncase(BackendConformance):
    def backend(self) -> Backend:
        return usable("nncase")

    def refused(self) -> onnx.ModelProto:
        return with_op("Det")


def two_unknown() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Det", ["x"], ["a"], name="det"),
        helper.make_node("Fancy", ["a"], ["y"], name="fancy", domain="my.domain"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3, 3))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (2,))
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("my.domain", 1)]
    return helper.make_model(helper.make_graph(nodes, "net", [x], [y]), opset_imports=opsets, ir_version=8)


def compress() -> onnx.ModelProto:
    """An op whose output has a size that only the run tells, and one after it."""
    nodes = [
        helper.make_node("Compress", ["x", "c"], ["a"], name="compress", axis=0),
        helper.make_node("Relu", ["a"], ["y"], name="relu"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, 3))
    c = helper.make_tensor_value_info("c", TensorProto.BOOL, (4,))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (None, 3))
    return helper.make_model(
        helper.make_graph(nodes, "net", [x, c], [y]), opset_imports=[helper.make_opsetid("", 13)], ir_version=8
    )


def ask(backend: Backend, model: onnx.ModelProto, folder: Path) -> Verdict:
    probe, workdir = folder / "model.onnx", folder / "work"
    workdir.mkdir()
    onnx.save(model, probe)
    return backend.judge(backend.compile(probe, workdir, Limits(seconds=120)))


def test_openvino_names_every_op_that_it_lacks(tmp_path: Path) -> None:
    verdict = ask(usable("openvino"), two_unknown(), tmp_path)

    assert (verdict.status, verdict.kind) == (Status.FAIL, Kind.UNSUPPORTED)
    assert set(verdict.hints.ops) == {"Det", "my.domain::Fancy"}


def test_openvino_says_what_it_lacks_a_form_of_and_why(tmp_path: Path) -> None:
    pads = helper.make_tensor("pads", TensorProto.INT64, [8], [0, 0, 1, 1, 0, 0, 1, 1])
    model = with_op("Relu")
    model.graph.node[1].CopyFrom(helper.make_node("Pad", ["a", "pads"], ["b"], name="/n/pad", mode="wrap"))
    model.graph.initializer.append(pads)
    model.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, (1, 3, 18, 18)))
    model.opset_import[0].version = 19

    verdict = ask(usable("openvino"), model, tmp_path)

    assert (verdict.status, verdict.kind) == (Status.FAIL, Kind.UNSUPPORTED)
    assert (verdict.hints.ops, verdict.hints.tensors) == (("Pad",), ("b",))
    assert verdict.message.endswith("Unsupported padding mode: [wrap]")


def test_iree_names_the_op_that_its_error_is_about(tmp_path: Path) -> None:
    verdict = ask(usable("iree"), compress(), tmp_path)

    assert verdict.status is Status.FAIL
    assert verdict.hints.ops == ("Compress",)


def test_iree_does_not_accuse_the_consumer_of_an_op_that_it_does_not_know(tmp_path: Path) -> None:
    verdict = ask(usable("iree"), with_op("FancyAct", domain="vendor.npu"), tmp_path)

    assert (verdict.status, verdict.kind, verdict.hints.ops) == (Status.FAIL, Kind.UNSUPPORTED, ())


def test_nncase_names_the_node_that_it_cannot_emit(tmp_path: Path) -> None:
    model = with_op("Tanh")
    model.graph.node[-1].CopyFrom(helper.make_node("Clip", ["b", "low"], ["y"], name="/a.b/clip"))
    model.graph.initializer.append(helper.make_tensor("low", TensorProto.FLOAT, [], [0.0]))

    verdict = ask(usable("nncase"), model, tmp_path)

    assert (verdict.status, verdict.kind) == (Status.FAIL, Kind.UNSUPPORTED)
    assert (verdict.hints.ops, verdict.hints.nodes) == (("Clip",), ("/a.b/clip",))


def test_iree_compiles_for_its_virtual_machine_too(tmp_path: Path) -> None:
    assert ask(usable("iree", backend="vmvx"), TestIree().accepted(), tmp_path).passed
