"""How reports show causes: they lead where one explains several culprits, and are no noise where none does."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from onnxbisect.report import culprit_words
from onnxbisect.report.ci import junit, sarif
from onnxbisect.report.contents import Report
from onnxbisect.report.document import document
from onnxbisect.report.html import html
from onnxbisect.report.markdown import culprit_readme, markdown
from onnxbisect.report.terminal import lines
from support.engine.refusals import GATHERS, WINDOWS, model_of, rank, refusing, scalar_indices, wide
from support.engine.report_factory import HOSTILE, chain, job_of, single

SENTENCE = "tensors of rank 6 or more (13 of 13 places refused; nothing of rank 6 passed)"


@pytest.fixture
def windows(tmp_path: Path) -> Report:
    return document(wide(model_of(tmp_path, WINDOWS)))


def two_causes(folder: Path) -> Report:
    """Scalar indices, an op of which nothing passed, and an op that passed elsewhere in the same form."""
    model = model_of(folder, GATHERS.replace("y = Add(h, h)", "l = Add(h, h) m = Sin(l) y = Neg(m)"))
    return document(refusing(model, lambda it: scalar_indices(it) or it.op_type == "Sin" or it.output[0] == "g"))


def test_the_terminal_leads_with_the_cause(windows: Report) -> None:
    shown = lines(windows)
    start = shown.index(f"1 cause explains 13 culprits: {SENTENCE}")
    assert shown[start + 1] == "    compiles: the same ops with a tensor of rank 4 or less (5 places)"
    assert shown[start + 3].startswith("6 ops at 13 places, 13 units of")
    assert "Passes instead" not in shown


def test_the_terminal_lists_culprits_below_their_causes(tmp_path: Path) -> None:
    shown = lines(two_causes(tmp_path))
    headings = [
        "1 cause explains 4 of 6 culprits: Gather with scalar indices (4 of 4 places refused; none passed)",
        "    compiles: Gather with indices of rank 1 (1 place)",
        "Gather with scalar indices",
        "ops that never passed",
        "not explained by one condition",
    ]
    places = [shown.index(heading) for heading in headings]
    assert places == sorted(places)
    assert re.match(r" +\d+  Gather", shown[places[2] + 1])
    assert re.match(r" +\d+  Sin", shown[places[3] + 1])
    assert re.match(r" +\d+  Add", shown[places[4] + 1])


def test_where_each_culprit_has_its_own_cause_nothing_leads() -> None:
    model = chain(["Relu", "Exp", "Tanh"])
    report = document(job_of(model, [single(model, [1], "no Exp"), single(model, [2], "no Tanh")]))
    assert culprit_words.summary(report) == ""
    assert not any("cause" in line for line in lines(report))
    assert "cause" not in markdown(report).lower()
    assert "Causes" not in html(report)
    assert "Cause" not in sarif(report)


def test_the_page_has_the_cause_once_and_folds_what_it_explains(windows: Report) -> None:
    text = html(windows)
    assert text.count('<article class="card cause">') == 1
    assert re.search(rf"<h3>{re.escape(SENTENCE)}</h3>", text)
    cards = re.findall(r'<article class="card culprit".*?</article>', text, re.DOTALL)
    assert [card.count("<details><summary>Where, proof and file</summary>") for card in cards] == [0] + [1] * 12
    assert all(card.count("<details>") == card.count("</details>") for card in cards)
    assert f'href="#{windows["causes"][0]["contrast"][0]["probe"]}"' in text


def test_markdown_has_a_table_of_causes(windows: Report) -> None:
    text = markdown(windows)
    assert text.index("## Causes") < text.index("## Culprits")
    numbers = ", ".join(map(str, range(1, 14)))
    row = f"| `{SENTENCE}` | {numbers} | `the same ops with a tensor of rank 4 or less (5 places)` |  |"
    assert row in text.splitlines()
    assert f"Cause: `{SENTENCE}`" in culprit_readme(windows, 3)


def test_junit_and_sarif_say_the_cause(windows: Report) -> None:
    cases = ElementTree.fromstring(junit(windows)).iter("failure")  # noqa: S314 - our own output
    texts = [case.text or "" for case in cases]
    assert len(texts) == 14
    assert all(f"cause: {SENTENCE}" in text for text in texts)
    (run,) = json.loads(sarif(windows))["runs"]
    assert run["properties"]["causes"] == [SENTENCE]
    assert all(result["message"]["text"].endswith(f"Cause: {SENTENCE}") for result in run["results"])


def test_what_the_record_does_not_decide_is_said_in_every_form(tmp_path: Path) -> None:
    model = model_of(tmp_path, GATHERS)
    report = document(refusing(model, lambda it: it.op_type == "Gather" and rank(model, it.input[0]) == 3))
    other = "Gather with data of rank 3 or more"
    assert any(line == f"    or it is: {other}" for line in lines(report))
    for text in (markdown(report), html(report)):
        assert other in text


def test_reports_of_earlier_versions_are_shown_as_before(windows: Report) -> None:
    del windows["causes"]
    for culprit in windows["culprits"]:
        del culprit["cause"]
    assert "Passes instead" in lines(windows)
    for form in (markdown, html, sarif, junit):
        assert "tensors of rank" not in form(windows)


def test_a_cause_that_a_stranger_wrote_names_no_culprit_that_is_not_there(windows: Report) -> None:
    windows["causes"][0]["culprits"] = ["of-another-report"]
    windows["culprits"][0]["cause"] = 99
    text = "\n".join(lines(windows))
    assert "6 ops at 13 places, 13 units" in text
    for form in (markdown, html, sarif, junit):
        assert form(windows)


def test_hostile_words_of_a_cause_stay_text(windows: Report) -> None:
    cause = windows["causes"][0]
    cause["text"] = cause["nothing_passed"] = HOSTILE
    cause["contrast"][0] |= {"passes": HOSTILE, "condition": HOSTILE, "nodes": [HOSTILE]}
    cause["fits_too"] = [HOSTILE]
    active = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ufffe]")
    for text in (html(windows), markdown(windows), junit(windows), sarif(windows), "\n".join(lines(windows))):
        assert not active.search(text)
    assert "<img" not in html(windows)
