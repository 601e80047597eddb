"""Reports of others are shown in every form: of earlier versions, which lack some keys, and of hostile processes."""

import contextlib
import copy
import itertools
import json
import math
import re
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from typing_extensions import is_typeddict

from onnxbisect.errors import OnnxBisectError
from onnxbisect.json_form import checked, from_json
from onnxbisect.language import CHINESE, ENGLISH, within
from onnxbisect.precision import pictures
from onnxbisect.precision.report import PrecisionReport
from onnxbisect.precision.report import markdown as precision_markdown
from onnxbisect.remedies import summary
from onnxbisect.remedies.document import RepairDocument
from onnxbisect.report import parts
from onnxbisect.report.compare import AskedModel, TargetReport, compare, compare_sections
from onnxbisect.report.contents import Report
from onnxbisect.report.files import FORMS
from onnxbisect.report.markdown import culprit_readme
from onnxbisect.report.overview import html as overview_html
from onnxbisect.report.overview import markdown as overview_markdown
from onnxbisect.report.overview import overview
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
    assert overview_html(several)
    assert overview_markdown(several)
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


def put(report: Any, way: tuple[str | int, ...], value: Any) -> Any:
    changed = at = copy.deepcopy(report)
    for key in way[:-1]:
        at = at[key]
    at[way[-1]] = value
    return changed


@pytest.mark.parametrize(
    ("way", "values", "place"),
    [
        (("units", "states", "culprit"), ["x", "1-x", "-", "9" * 5000, "1 2"], "units.states['culprit']"),
        (("unresolved",), ["1--2"], "unresolved"),
        (("culprits", 0, "occurrence_units", 0), ["x"], "culprits[0].occurrence_units[0]"),
        (("culprits", 0, "inferred_units"), ["x"], "culprits[0].inferred_units"),
        (("causes", 0, "refused_units"), ["x"], "causes[0].refused_units"),
        (("probes", 0, "seconds"), [math.nan, math.inf, 10**400, "1", None], "probes[0].seconds"),
        (("stats", "wall_seconds"), [math.nan, -math.inf, 1e300], "stats.wall_seconds"),
        (("model", "opsets", ""), [10**400, [13]], "model.opsets['']"),
        (("culprits", 0, "nodes"), [[]], "culprits[0].nodes"),
        (("needs_context", 0, "nodes"), [[]], "needs_context[0].nodes"),
        (("partition", 0, "nodes"), [[]], "partition[0].nodes"),
        (("units", "ops"), [[]], "units"),
        (("units", "states"), [{}], "units"),
        (("causes", 0, "telling"), [True], "causes[0]"),  # without anything that passed
    ],
)
def test_a_damaged_report_is_known_by_its_first_wrong_place(
    way: tuple[str | int, ...], values: list[Any], place: str
) -> None:
    report = json.loads((GOLDEN / "report.json").read_text("utf-8"))
    assert checked(report, Report) is report
    for value in values:
        with pytest.raises(ValueError, match=f"^{re.escape(place)}$"):
            checked(put(report, way, value), Report)


@pytest.mark.parametrize(
    "way",
    [
        ("verdict",),
        ("culprits", 0, "kind"),
        ("culprits", 0, "failure"),
        ("culprits", 0, "certainty"),
        ("culprits", 0, "surroundings", "nodes", 0, "role"),
        ("causes", 0, "state"),
        ("op_table", 0, "verdict"),
        ("preflight", 0, "severity"),
        ("probes", 0, "verdict"),
        ("certificate", "status"),
    ],
)
def test_words_of_a_later_version_are_shown_as_they_are(way: tuple[str | int, ...]) -> None:
    report = put(json.loads((GOLDEN / "report.json").read_text("utf-8")), way, "new")
    if way[-1] == "failure":
        report["culprits"][0] |= {"message": "", "fingerprint": ""}
    elif way[-1] == "role":
        report["culprits"][0]["surroundings"]["nodes"][0]["op"] = ""
    show(checked(report, Report))


def test_words_of_another_state_of_units_are_shown_as_they_are() -> None:
    report = json.loads((GOLDEN / "report.json").read_text("utf-8"))
    report["units"]["states"]["new"] = "0-2"
    show(checked(report, Report))


def places(value: Any, way: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The ways to all values, of lists to the first of each."""
    inner = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, item in inner:
        yield (*way, key)
        yield from places(item, (*way, key))


@pytest.mark.long
def test_what_is_taken_for_a_report_is_shown_in_every_form() -> None:
    report = json.loads((GOLDEN / "report.json").read_text("utf-8"))
    report["model"] |= {"input_shapes": {"x": [1, 3]}, "input_values": {"y": [1, 0.5, True]}, "path": "models/m.onnx"}
    report["reproduce"] = {"backend": "../b.toml", "folder": "..", "report": "out"}
    report["culprits"][0] |= {
        "refused_within": [{"op": "Abs", "node": "n", "body": "then_branch"}],
        "replace_by": {"rules": ["r"], "gives": ["Mul"], "exactness": "exact"},
        "variant": [{"what": "input 1", "value": None}],
    }
    wrong: tuple[Any, ...] = (None, "", "x", "1-x", [], {}, -1, 1.5, math.nan, 10**30, True, "\ud800")
    taken = 0
    for way, value in itertools.product(places(report), wrong):
        with contextlib.suppress(ValueError):
            other = checked(put(report, way, value), Report)
            taken += 1
            try:
                show(other)
            except Exception as error:
                raise AssertionError(f"{way} = {value!r}") from error
    assert taken > 500


HOSTILE: tuple[Any, ...] = (None, "", "x", [], {}, -1, 1.5, math.nan, math.inf, 10**400, True, "\ud800")


@pytest.mark.parametrize("value", HOSTILE)
def test_a_damaged_repair_is_shown_or_refused(value: object) -> None:
    data = json.loads((GOLDEN / "repair.json").read_text("utf-8"))
    assert summary.lines(RepairDocument.of_json(data))
    for way in places(data):
        try:
            document = RepairDocument.of_json(put(data, way, value))
        except OnnxBisectError:
            continue
        assert summary.lines(document)
        assert summary.markdown(document)


@pytest.mark.parametrize("value", HOSTILE)
def test_a_damaged_precision_is_shown_or_refused(value: object) -> None:
    data = json.loads((GOLDEN / "precision.json").read_text("utf-8"))
    assert from_json(data, PrecisionReport).headline
    for way in places(data):
        try:
            report = from_json(put(data, way, value), PrecisionReport)
            assert report.headline is not None
        except (ValueError, TypeError, KeyError, AttributeError, IndexError):  # as the page does
            continue
        assert precision_markdown(report)
        assert pictures.html(report)
        assert pictures.trade(report)


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
