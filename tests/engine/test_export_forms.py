"""The forms of an export's report: a page that quotes hostile text, and SARIF at the lines of the user's code."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from onnxbisect.export.failure import CodeLine, FailureKind
from onnxbisect.export.report import (
    Blamed,
    Component,
    ExportedPart,
    ExportReport,
    Tried,
    html,
    markdown,
    sarif,
    terminal,
)
from onnxbisect.language import CHINESE, within
from support.engine.report_factory import HOSTILE
from support.site.text import english_left

GATE = Blamed(
    path="layers.0.gate",
    cls="Gate",
    places=("layers.0.gate", "layers.1.gate"),
    signature="float32[2, 4]",
    kind=FailureKind.BRANCH,
    place=CodeLine(file="/home/me/work/net/model.py", line=112, source="if x[:, 0].mean() > 0:"),
    message="Could not guard on data-dependent expression",
    remedy="torch.where",
    tried=(Tried(setting="exporter=legacy", exports=False),),
)
REPORT = ExportReport(
    source="net/model.py:build",
    model="Net",
    torch="2.13.0",
    settings="dynamo",
    modules=5,
    exports=3,
    seconds=1.0,
    proven=True,
    culprits=(GATE,),
    undecided=(),
    parts=(ExportedPart(path="", cls="Net", without=("layers.0.gate",), samples=4, compiles="it compiles for qnn"),),
    components=(Component(path="layers", cls="ModuleList", exports=True, failing=("layers.0.gate",)),),
    never=("aux",),
)


def result(report: ExportReport, root: str = "") -> Any:
    found = json.loads(sarif(report, root))
    jsonschema.validate(found, json.loads(Path(__file__).with_name("sarif-2.1.0.schema.json").read_text("utf-8")))
    return found["runs"][0]["results"][0]


@pytest.mark.parametrize(
    ("root", "uri"),
    [
        ("", "file:///home/me/work/net/model.py"),
        ("/home/me/work", "net/model.py"),
        ("/home/me/wo", "file:///home/me/work/net/model.py"),
    ],
)
def test_sarif_points_to_the_line(root: str, uri: str) -> None:
    found = result(REPORT, root)
    place = found["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == uri
    assert place["region"] == {"startLine": 112, "snippet": {"text": "if x[:, 0].mean() > 0:"}}
    assert found["ruleId"] == "branch on values"
    assert "torch.where" in found["message"]["text"]
    names = [it["fullyQualifiedName"] for it in found["locations"][0]["logicalLocations"]]
    assert names == ["layers.0.gate", "layers.1.gate"]


def test_a_module_without_a_line_is_at_the_file_of_the_function() -> None:
    found = result(replace(REPORT, culprits=(replace(GATE, place=None),)))
    assert found["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "net/model.py"


def test_the_page_has_line_code_and_remedy() -> None:
    text = html(REPORT)
    for said in (
        "model.py:112",
        "if x[:, 0].mean() &gt; 0:",
        "torch.where",
        "layers.0.gate",
        "aux",
        "compiles for qnn",
    ):
        assert said in text


def test_short_names_do_not_cut_the_head_of_the_table() -> None:
    short = Component(path="a", cls="B", exports=True, failing=())
    assert "  component  class  exports\n  a          B      yes" in "\n".join(
        terminal(replace(REPORT, components=(short,)))
    )


def test_a_terminal_and_markdown_show_the_same() -> None:
    compiled = ExportedPart(path="layers", cls="ModuleList", without=(), samples=1, compiles="yes")
    report = replace(REPORT, parts=(*REPORT.parts, compiled), undecided=(("aux", "No answer."),), notes=("Noted.",))
    shown, written = (re.findall(r"\w+", text) for text in ("\n".join(terminal(report)), markdown(report)))
    assert shown == written
    assert {"Gate", "Could", "legacy", "aux", "Noted", "torch"} <= set(shown)


def test_hostile_text_stays_text() -> None:
    place = CodeLine(file=HOSTILE, line=1, source=HOSTILE)
    bad = replace(GATE, path=HOSTILE, cls=HOSTILE, place=place, message=HOSTILE, remedy=HOSTILE, places=(HOSTILE,))
    report = replace(REPORT, culprits=(bad,), model=HOSTILE, never=(HOSTILE,))
    result(report)
    text = html(report)
    assert "<img" not in text
    assert "<script" not in text
    sentences = re.sub(r"(`+)[^`\n].*?\1", "", markdown(report))  # what is left once code spans are taken out
    assert re.search(r"\\<img", sentences)
    assert not re.search(r"(?<!\\)<(img|script)", sentences)


def test_a_model_that_exports_has_no_results() -> None:
    report = replace(REPORT, culprits=())
    assert json.loads(sarif(report))["runs"][0]["results"] == []
    assert "exports to ONNX" in html(report)


def test_the_report_is_chinese_but_for_what_torch_and_the_code_say() -> None:
    with within(CHINESE):
        shown = "\n".join([*terminal(REPORT), markdown(REPORT)])
        assert len(list(english_left(html(REPORT)))) == 2  # what torch and the compiler say
    for theirs in (GATE.message, "it compiles for qnn", str(GATE.place and GATE.place.source)):
        shown = shown.replace(theirs, "")
    assert "按数值分支" in shown
    assert not re.search("[a-z]{3,} [a-z]{3,}", shown)
