"""The examples of docs/library.md and docs/rules.md run as they stand there, one block after the other."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import onnx
import pytest

import onnx_bisect

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "library.md"


@pytest.mark.long
def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    here = [block for block in blocks if "Client(" not in block]
    assert len(here) == len(blocks) - 1 == 11
    names: dict[str, Any] = {}
    shown = []
    with ThreadPoolExecutor(1) as pool:  # Playwright keeps a loop running in this thread after tests of the site
        for block in here:
            pool.submit(exec, compile(block, str(DOCS), "exec"), names).result()
            shown.append(capsys.readouterr().out)
    assert "\nfail\nbounded: 343 of 375 units were seen" in shown[0]
    assert (tmp_path / "report.html").stat().st_size > 1000
    assert len(onnx.load(tmp_path / "culprit.onnx").graph.node) == 1
    assert len(list((tmp_path / "out" / "culprits").glob("*/model.onnx"))) == 7
    assert "'/mask_head/Gather_1'" in shown[1]
    assert shown[2] == "unsupported no Gather\n"
    assert shown[3] == "[('Gather', 10, 2)]\n"
    assert shown[4].startswith("cancelled (")
    assert "does not compile" in shown[5]
    assert "compiles" in shown[6]
    assert shown[6].count("gather-slice") == 5
    assert "Gather" not in {node.op_type for node in onnx.load(tmp_path / "repaired.onnx").graph.node}
    assert {path.name for path in (tmp_path / "repair").iterdir()} >= {"repaired.onnx", "repair.md", "repair.json"}
    assert shown[7].startswith("True ")
    assert (tmp_path / "pieces" / "run.py").exists()
    assert shown[8].startswith("1 ")
    assert (tmp_path / "shared.onnx").exists()
    assert shown[9] == "9 ['Constant', 'Relu'] ['Gather']\n"
    assert (tmp_path / "mychip.toml").exists()
    assert [node.op_type for node in onnx.load(tmp_path / "piece.onnx").graph.node] == ["Sin", "Cos"]


@pytest.mark.long
def test_the_example_of_the_rules_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs" / "rules.md").read_text()
    block = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    exec(compile(block, "rules.md", "exec"), {})  # noqa: S102 - it is our own document
    assert capsys.readouterr().out.splitlines() == re.findall(r"^print.*  # (.*)$", block, re.MULTILINE)


def test_the_page_names_every_error_and_event() -> None:
    text = DOCS.read_text()
    errors = [
        name
        for name in onnx_bisect.__all__
        if isinstance(kind := getattr(onnx_bisect, name), type) and issubclass(kind, onnx_bisect.OnnxBisectError)
    ]
    events = [kind.__name__ for kind in onnx_bisect.Event.__args__]
    assert [name for name in (*errors, *events) if f"`{name}`" not in text] == []
