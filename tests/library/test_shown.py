"""`print` of results is the terminal's form, and notebooks get HTML in which no name is markup."""

import re
from pathlib import Path

import pytest
from onnx import TensorProto, helper, save

import onnx_bisect
from onnxbisect.report.terminal import lines
from support import TESTS

HOSTILE = "<img src=x onerror=alert(1)>\x1b[2J"
ROOT = TESTS.parent


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("x", "y")]
    nodes = [helper.make_node("Sin", ["x"], ["a"], name=HOSTILE), helper.make_node("Abs", ["a"], ["y"])]
    path = tmp_path_factory.mktemp("shown") / "net.onnx"
    save(helper.make_model(helper.make_graph(nodes, "g", value[:1], value[1:])), path)
    return path


def test_a_result_prints_as_the_command_line_does_and_shows_a_table(model: Path) -> None:
    result = onnx_bisect.diagnose(model, backend="whitelist", options={"deny": "Sin"}, cache=False)
    assert str(result) == "\n".join(lines(result.report))
    assert str(result).startswith("net.onnx does not compile for whitelist")
    shown = result._repr_html_()
    assert "<table>" in shown
    assert "<td>Sin</td><td>1</td>" in shown
    assert result.certificate.sentence in shown
    assert repr(result).startswith("Result(")


def test_a_result_without_culprits_has_no_table(model: Path) -> None:
    result = onnx_bisect.diagnose(model, backend="whitelist", options={"deny": "Cos"}, cache=False)
    assert "net.onnx compiles for whitelist" in result._repr_html_()
    assert "<table>" not in result._repr_html_()


def test_a_repair_prints_and_shows_what_was_replaced(model: Path) -> None:
    repaired = onnx_bisect.fix(model, backend="whitelist", options={"deny": "Sin"}, cache=False)
    assert repaired.headline in str(repaired).splitlines()
    shown = repaired._repr_html_()
    assert shown.startswith("<pre>")
    assert "<img" not in shown
    assert "\x1b" not in shown + str(repaired)


def test_llms_txt_leads_to_files_that_are_there() -> None:
    text = (ROOT / "llms.txt").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 8
    assert [link for link in links if not (ROOT / link.partition("#")[0]).is_file()] == []
    assert text.startswith("# onnx-bisect\n\n> ")
