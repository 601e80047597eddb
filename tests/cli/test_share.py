"""`share`: a culprit's file for the vendor."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from support.cli.command_line import Shell

TARGET = ["--backend", "whitelist", "--option", "fail_patterns=MatMul>Sin"]


@pytest.fixture
def culprit(shell: Shell) -> Path:
    weight = numpy_helper.from_array(np.ones((256, 96), np.float32), "secret_w")
    nodes = [helper.make_node("MatMul", ["x", "secret_w"], ["h"]), helper.make_node("Sin", ["h"], ["y"], "secret")]
    ends = [helper.make_tensor_value_info(*it) for it in (("x", 1, [128, 256]), ("y", TensorProto.FLOAT, [128, 96]))]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], [weight])
    path = shell.folder / "culprit.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_the_file_fails_alike_and_has_nothing_of_the_model(shell: Shell, culprit: Path) -> None:
    done = shell.call("share", str(culprit), *TARGET, "-o", "shared.onnx")
    assert (done.code, done.err) == (0, "")
    assert "cannot lower MatMul > Sin" in done.out
    shared = shell.folder / "shared.onnx"
    assert b"secret" not in shared.read_bytes()
    assert shared.stat().st_size < 500
    again = shell.call("run", "shared.onnx", *TARGET, "--no-cache")
    assert again.code == 1
    assert "cannot lower MatMul > Sin" in again.out


def test_what_is_not_refused_is_no_culprit(shell: Shell, culprit: Path) -> None:
    done = shell.call("share", str(culprit), "--backend", "whitelist", "--option", "deny=Cos", "-o", "shared.onnx")
    assert done.code == 2
    assert "is not refused" in done.sentence()
    assert not (shell.folder / "shared.onnx").exists()


def test_the_culprit_s_own_file_is_not_overwritten(shell: Shell, culprit: Path) -> None:
    before = culprit.read_bytes()
    done = shell.call("share", str(culprit), *TARGET, "-o", culprit.name)
    assert done.code == 2
    assert "own file" in done.sentence()
    assert culprit.read_bytes() == before
