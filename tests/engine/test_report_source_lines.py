"""The lines of source that culprits come from, each once, and what is said where a file has none."""

import linecache
from pathlib import Path

import onnx
import pytest
from onnx import helper

from onnxbisect.diagnosis import CulpritKind
from onnxbisect.model.modules import origin
from onnxbisect.report.ci import gitlab, junit, sarif
from onnxbisect.report.contents import Report
from onnxbisect.report.culprit_words import rows, source_lines
from onnxbisect.report.document import document
from onnxbisect.report.html import html
from onnxbisect.report.markdown import culprit_readme, markdown
from onnxbisect.report.terminal import lines
from onnxbisect.unitset import of
from support.engine.report_factory import chain, culprit, job_of, single

ROOT = Path(__file__).parents[2]
PICK, SCALE = ("pick", 112, "x[:, i, :]"), ("scale", 7, "attn = attn / math.sqrt(c)")


def traced(*places: tuple[str, int, str] | None, producer: str = "pytorch", code: bool = True) -> Report:
    """A Softmax for each place that fails; its node name has no module."""
    model = chain(
        [helper.make_node("Softmax", [], [], axis=0) for _ in places], {i: f"n{i}" for i in range(len(places))}
    )
    model.proto.producer_name = producer
    for number, (node, place) in enumerate(zip(model.proto.graph.node, places, strict=True)):
        if place is None:
            continue
        function, line, said = place
        trace = f'File "/home/me/model.py", line {line}, in {function}' + (f"\n    {said}" if code else "")
        node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=trace)
        node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=f"['', 'layers.{number}.attn', 'softmax']")
    return document(job_of(model, [single(model, list(range(len(places))), "axis 0")]))


def every_form(report: Report) -> dict[str, str]:
    return {
        "terminal": "\n".join(lines(report)),
        "html": html(report),
        "markdown": markdown(report),
        "readme": culprit_readme(report, 1),
        "junit": junit(report),
        "sarif": sarif(report),
        "gitlab": gitlab(report),
    }


def test_one_line_that_made_many_nodes_is_one_entry() -> None:
    report = traced(*[SCALE] * 30, PICK)
    found = source_lines(report["culprits"][0])
    assert [it.counted for it in found] == [
        f"model.py:7 (layers.0.attn and 19 more) (30 nodes)  {SCALE[2]}",
        f"model.py:112 (layers.30.attn)  {PICK[2]}",
    ]


def test_a_line_is_listed_behind_many_modules_of_another() -> None:
    report = traced(*[SCALE] * 25, PICK, *[SCALE] * 3)
    assert [it.nodes for it in source_lines(report["culprits"][0])] == [28, 1]


def test_every_form_shows_line_and_code() -> None:
    for form, text in every_form(traced(PICK)).items():
        assert "model.py:112" in text, form
        assert "x[:, i, :]" in text.replace("\\\\[", "[").replace("\\\\]", "]"), form


def test_without_code_the_function_is_named() -> None:
    for form, text in every_form(traced(PICK, code=False)).items():
        assert "model.py:112 in pick" in text, form


def test_a_file_without_lines_says_once_how_to_get_them() -> None:
    report = traced(None)
    forms = every_form(report)
    for form in ("terminal", "html", "markdown"):
        assert forms[form].count("dynamo=True") == 1, form
        assert "verbose=True" in forms[form], form


@pytest.mark.parametrize("report", [traced(PICK, None), traced(None, producer="tf2onnx"), traced(None, producer="")])
def test_nothing_is_said_where_there_are_lines_or_where_torch_did_not_write_the_file(report: Report) -> None:
    assert "dynamo=True" not in "".join(every_form(report).values())


def test_variants_of_one_op_show_the_lines_of_all() -> None:
    model = chain([helper.make_node("Softmax", [], [], axis=axis) for axis in (0, 1)])
    for node, line in zip(model.proto.graph.node, (3, 4), strict=True):
        trace = f'File "model.py", line {line}, in forward\n    line {line}'
        node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=trace)
    kind = CulpritKind.SINGLE
    report = document(job_of(model, [culprit(model, [of([place])], kind, "refused") for place in (0, 1)]))
    (row,) = [row for _, found in rows(report) for row in found]
    assert [it.where for it in row.sources] == ["model.py:3", "model.py:4"]


def test_reports_of_earlier_versions_count_no_nodes() -> None:
    report = traced(PICK)
    del report["culprits"][0]["origin"][0]["nodes"]
    assert [it.nodes for it in source_lines(report["culprits"][0])] == [1]


def test_the_lines_in_the_demos_model_are_those_of_its_code() -> None:
    nodes = onnx.load(ROOT / "examples" / "sam_decoder.onnx", load_external_data=False).graph.node
    found = [origin(node) for node in nodes if node.metadata_props]
    assert len(found) > 400
    for place in found:
        assert place.file == "examples/sam_decoder.py"
        assert place.line is not None
        assert place.code == linecache.getline(str(ROOT / place.file), place.line).strip()
