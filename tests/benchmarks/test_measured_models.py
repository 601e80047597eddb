"""Models made for measuring are valid and have what is measured in them; a case is run as a user would."""

import onnx
import pytest

import engine
import models
import peers
from cases import InProcess, run_command_line, shipped
from onnxbisect.model import load


def test_a_chain_has_its_length_and_each_bad_op_once(tmp_path):
    models.long_chain(tmp_path / "chain.onnx", 300)
    chain = onnx.load(tmp_path / "chain.onnx")
    onnx.checker.check_model(chain, full_check=True)
    ops = [node.op_type for node in chain.graph.node]
    assert len(ops) == 300
    assert [ops.count(op) for op in ("Asinh", "Cosh", "Atan", "Erf")] == [1, 1, 1, 1]
    assert 50 <= len(load(tmp_path / "chain.onnx").universe.variant_members) <= 70


def test_layers_are_alike_and_have_weights_of_their_own(tmp_path):
    for layers in (1, 3):
        models.transformer(tmp_path / f"{layers}.onnx", layers)
        onnx.checker.check_model(onnx.load(tmp_path / f"{layers}.onnx"), full_check=True)
    one, three = (load(tmp_path / f"{layers}.onnx") for layers in (1, 3))
    assert len(three.universe) == 3 * len(one.universe)
    assert len(three.universe.variant_members) == len(one.universe.variant_members)
    weights = {tensor.name: tensor.raw_data for tensor in three.proto.graph.initializer}
    assert weights["layer0.q.w"] != weights["layer1.q.w"]


def test_gigabytes_take_no_room(tmp_path):
    size = models.gigabytes(tmp_path / "model.onnx", layers=250)
    data = (tmp_path / "model.data").stat()
    assert size == data.st_size > 2.5e9
    assert data.st_blocks * 512 < 1e6
    onnx.checker.check_model(str(tmp_path / "model.onnx"))


def test_the_engine_is_measured_on_a_whole_search():
    found = engine.measure(200)
    assert found.culprits == 4
    assert found.calls > 8
    assert found.total <= found.worst
    assert min(found.plan, found.key, found.cut, found.write) > 0


@pytest.mark.long
@pytest.mark.parametrize("name", ["c2", "c4"])
def test_the_command_line_and_the_compiler_in_this_process_agree(name):
    case = shipped(name)
    report, process = run_command_line(case), InProcess(case)
    assert report.found == case.truth
    assert report.proven
    scan = peers.recursive_bisection(process.model.universe, process.refused)
    assert process.nodes(scan.found) == case.truth
    assert scan.calls > report.calls
