"""Culprits by targets: rows that belong together, cells that say no more than the reports do, names that stay text."""

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_bisect import overview_schema
from onnxbisect.diagnosis import Certainty, CulpritKind, DiagnosedCulprit
from onnxbisect.model.model import Model
from onnxbisect.report.compare import AskedModel, TargetReport
from onnxbisect.report.document import document
from onnxbisect.report.overview import Overview, html, lines, markdown, overview
from onnxbisect.unitset import of, spell
from support.engine.report_factory import HOSTILE, PASS, chain, culprit, job_of, single

MODEL = chain(["Relu", "Exp", "Tanh", "Exp", "Tanh"])


def target(label: str, *culprits: DiagnosedCulprit, model: Model = MODEL) -> TargetReport:
    return TargetReport(label=label, backend=label, report=document(job_of(model, culprits)))


def table(*asked: TargetReport, model: Model = MODEL) -> Overview:
    found = overview(AskedModel.of(model), asked)
    reports = [it.report for it in asked if it.report is not None]
    assert found == overview(AskedModel.of_report(reports[0]), asked)
    jsonschema.validate(found, overview_schema())
    return found


def states(found: Mapping[str, Any]) -> dict[str, list[str]]:
    return {"+".join(row["ops"]): [cell["state"] for cell in row["cells"].values()] for row in found["culprits"]}


def test_one_row_for_an_op_that_two_targets_refuse_in_different_places() -> None:
    found = table(target("a", single(MODEL, [1, 3])), target("b", single(MODEL, [3])))
    assert states(found) == {"Exp": ["refused", "in_part"]}
    (row,) = found["culprits"]
    assert row["places"] == [["/net/block.1/Exp"], ["/net/block.3/Exp"]]
    assert (row["cells"]["b"]["refused"], row["cells"]["b"]["passing"]) == (1, 1)
    assert "1 of 2 refused" in "\n".join(lines(found))


def test_rows_that_a_third_target_joins_are_one() -> None:
    asked = [target("a", single(MODEL, [1])), target("b", single(MODEL, [3])), target("c", single(MODEL, [1, 3]))]
    for order in (asked, asked[::-1]):
        assert len(table(*order)["culprits"]) == 1


def test_who_refuses_a_part_of_it_refuses_it() -> None:
    pair = culprit(MODEL, [of([1, 2])], CulpritKind.INTERACTION)
    parts = [(1 << 1, PASS, "Exp alone"), (1 << 2, PASS, "Tanh alone")]
    a = TargetReport(label="a", backend="a", report=document(job_of(MODEL, [pair], more=parts)))
    found = table(a, target("b", single(MODEL, [1])), target("c"))
    assert states(found) == {"Exp+Tanh": ["refused", "refused", "passes"], "Exp": ["passes", "refused", "passes"]}


def test_too_large_is_no_refusal_of_what_is_in_it() -> None:
    whole = culprit(MODEL, [MODEL.universe.everything], CulpritKind.CAPACITY)
    found = table(target("a", whole), target("b", single(MODEL, [1])), target("c"))
    by_kind = {row["kind"]: [cell["state"] for cell in row["cells"].values()] for row in found["culprits"]}
    assert by_kind == {"capacity": ["refused", "unknown", "passes"], "single": ["unknown", "refused", "passes"]}


def test_what_was_not_confirmed_and_what_was_not_asked_is_said() -> None:
    unsure = single(MODEL, [1], certainty=Certainty.SUSPECTED)
    gone = TargetReport(label="c", backend="c", reason="c is not installed.")
    late = TargetReport(label="d", backend="d", reason="the run was interrupted before its turn", ended=True)
    found = table(target("a", unsure), target("b"), gone, late)
    assert states(found) == {"Exp": ["suspected", "passes", "unknown", "unknown"]}
    assert [it["state"] for it in found["targets"]] == ["fail", "pass", "unusable", "not_asked"]
    for form in ("\n".join(lines(found)), markdown(found), html(found)):
        assert "c is not installed." in form
        assert "interrupted before its turn" in form


@pytest.mark.parametrize("form", [lambda found: "\n".join(lines(found)), markdown, html])
def test_names_are_text(form: Any) -> None:
    model = chain(["Relu", "Exp"], {1: HOSTILE})
    gone = TargetReport(label="c", backend="c", reason=HOSTILE)
    text = form(table(target("a", single(model, [1]), model=model), gone, model=model))
    assert "<img" not in text or form is not html
    assert not [char for char in text.replace("\n", "") if unicodedata.category(char) in {"Cc", "Cf"}]


@pytest.mark.parametrize("form", [lambda found: "\n".join(lines(found)), markdown, html])
def test_seconds_within_the_compiler_stand_beside_its_calls(form: Any) -> None:
    assert re.search(r"\d compiler calls?, 3\.5 s \(7\.2 s compiling\)", form(table(target("a"), target("b"))))


def test_variants_of_one_op_are_one_line_for_people() -> None:
    culprits: Sequence[DiagnosedCulprit] = [single(MODEL, [1]), single(MODEL, [3])]
    found = table(target("a", *culprits), target("b"))
    assert len(found["culprits"]) == 2
    assert sum("Exp" in line for line in lines(found)) == 1


def test_every_op_has_what_each_target_says_of_it() -> None:
    gone = TargetReport(label="c", backend="c", reason="c is not installed.")
    found = table(target("a", single(MODEL, [1])), target("b", single(MODEL, [1, 3]), single(MODEL, [2])), gone)
    assert {row["op"]: [tuple(cell.values()) for cell in row["cells"].values()] for row in found["ops"]} == {
        "Exp": [("mixed", 1), ("fail", 2), ("unknown", 0)],
        "Relu": [("pass", 0), ("pass", 0), ("unknown", 0)],
        "Tanh": [("pass", 0), ("mixed", 1), ("unknown", 0)],
    }
    shown = html(found).partition("Ops by target")[2]
    places = [shown.index(f"<code>{op}</code>") for op in ("Exp", "Tanh", "Relu")]
    assert places == sorted(places)
    assert "✗ 1 of 2" in shown


def test_an_overview_of_before_has_no_ops() -> None:
    found = table(target("a", single(MODEL, [1])), target("b"))
    del found["ops"]
    jsonschema.validate(found, overview_schema())
    assert "Ops by target" not in html(found)


def test_links_go_where_the_reports_are() -> None:
    found = table(target("a", single(MODEL, [1])), target("b"))
    assert 'href="a/report.html"' in html(found)
    assert "[`b`](b/report.md)" in markdown(found)
    assert 'href="report?target=b&amp;form=report.html"' in html(found, "report?target={}&form={}".format)


PLACES = st.lists(st.frozensets(st.integers(0, 5), min_size=1, max_size=3), min_size=1, max_size=4, unique=True)


@given(st.lists(st.tuples(PLACES, st.booleans()), max_size=5), st.lists(st.frozensets(st.integers(0, 5)), max_size=4))
def test_cells_by_the_definition(
    culprits: list[tuple[list[frozenset[int]], bool]], passed: list[frozenset[int]]
) -> None:
    """Every place beside every culprit and every probe."""
    report = json.loads((Path(__file__).parent / "golden" / "report.json").read_text("utf-8"))
    one, probe = report["culprits"][0], report["probes"][0]
    report["culprits"] = [
        {
            **one,
            "id": str(number),
            "ops": ["Op"] * max(map(len, places)),
            "kind": "capacity" if large else "single",
            "occurrence_units": [spell(of(place)) for place in places],
        }
        for number, (places, large) in enumerate(culprits)
    ]
    report["probes"] = [{**probe, "verdict": "pass", "units": spell(of(units))} for units in passed]
    names = report["units"]["names"]
    found = overview(AskedModel.of_report(report), [TargetReport(label="a", backend="b", report=report)])
    for row in found["culprits"]:
        refused, passing, involved = 0, 0, []
        for place in (frozenset(map(names.index, nodes)) for nodes in row["places"]):
            within = [
                str(number)
                for number, (places, large) in enumerate(culprits)
                if large == (row["kind"] == "capacity") and any(it <= place for it in places)
            ]
            refused += bool(within)
            passing += not within and any(place <= units for units in passed)
            involved += within
        cell = row["cells"]["a"]
        assert (cell["refused"], cell["passing"], cell["culprits"]) == (refused, passing, list(dict.fromkeys(involved)))
