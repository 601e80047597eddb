"""Reports of others are shown in every form: of earlier versions, which lack some keys, and of hostile processes."""

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from typing_extensions import is_typeddict

from onnxbisect.language import CHINESE, ENGLISH, within
from onnxbisect.report import overview_forms, parts
from onnxbisect.report.compare import compare, compare_sections
from onnxbisect.report.contents import Report
from onnxbisect.report.files import FORMS
from onnxbisect.report.markdown import culprit_readme
from onnxbisect.report.overview import AskedModel, TargetReport, overview
from onnxbisect.report.terminal import lines
from onnxbisect.report.text import as_markdown

GOLDEN = Path(__file__).parent / "golden"


def types_in(kind: Any) -> Iterator[Any]:
    if is_typeddict(kind):
        yield kind
    for part in get_args(kind):
        yield from types_in(part)


def optional(kind: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The ways to the keys that may be missing."""
    for key, hint in get_type_hints(kind).items():
        if key in kind.__optional_keys__:
            yield (*at, key)
        for inner in types_in(hint):
            yield from optional(inner, (*at, key))


def without(value: Any, way: tuple[str, ...]) -> Any:
    if isinstance(value, list):
        return [without(item, way) for item in value]
    if not isinstance(value, dict):
        return value
    key, *rest = way
    return {it: without(inner, tuple(rest)) if it == key else inner for it, inner in value.items() if rest or it != key}


def show(report: Report) -> None:
    """Every form, which raises no error."""
    asked = [TargetReport(label="a", backend="b", report=report)]
    several, about = overview(AskedModel.of_report(report), asked), AskedModel.of_report(report)
    table = parts.parts_table([parts.ModelPart(label="m", name="n", subject=about, asked=asked)], {"a": "A"})
    for form in FORMS.values():
        assert form(report)
    assert lines(report)
    assert as_markdown(compare_sections(compare(report, report)))
    assert overview_forms.html(several)
    assert overview_forms.markdown(several)
    assert parts.html(table, lambda *way: "/".join(way))
    for number in range(1, len(report["culprits"]) + 1):
        assert culprit_readme(report, number)


WAYS = sorted(set(optional(Report)))


@pytest.mark.parametrize("language", [ENGLISH, CHINESE])
@pytest.mark.parametrize("name", ["report", "report_of_a_changed_file"])
def test_any_key_that_may_be_missing_is_missed_by_no_form(name: str, language: str) -> None:
    report = json.loads((GOLDEN / f"{name}.json").read_text("utf-8"))
    assert ("tables",) in WAYS
    with within(language):
        bare = report
        for way in WAYS:
            show(without(report, way))
            bare = without(bare, way)
        show(bare)


@pytest.mark.parametrize(
    ("count", "edges"),
    [(0, []), (2, [(0, 1), (1, 0)]), (1, [(0, 0)]), (2, [(0, 2)]), (2, [(-1, 1)]), (3000, [(0, 1)] * 3000)],
)
def test_what_is_no_picture_is_not_drawn(count: int, edges: list[tuple[int, int]]) -> None:
    report = json.loads((GOLDEN / "report.json").read_text("utf-8"))
    assert FORMS["report.html"](report).count('<svg class="around') == 3
    report["culprits"][0]["surroundings"] |= {
        "nodes": [{"name": "n", "op": "Abs", "role": "culprit"}] * count,
        "edges": [{"from": source, "to": target, "tensor": "t", "type": ""} for source, target in edges],
    }
    assert FORMS["report.html"](report).count('<svg class="around') == 2


def test_sets_of_units_that_no_model_has_take_no_memory() -> None:
    report = json.loads((GOLDEN / "report.json").read_text("utf-8"))
    many = "0-9999999"
    report["units"]["states"] = dict.fromkeys(report["units"]["states"], many)
    report["unresolved"] = many
    for entry in (*report["culprits"], *report["needs_context"], *report["probes"], *report["flaky"]):
        entry["units"] = many
        entry.update({key: [many] for key in ("occurrence_units",) if key in entry})
        entry.update({key: many for key in ("inferred_units",) if key in entry})
    tracemalloc.start()
    show(report)
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50e6
