"""Values come back from JSON as they were."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from onnxbisect.json_form import from_json, to_json
from onnxbisect.report.contents import Report
from onnxbisect.unitset import of
from onnxbisect.universe import Universe
from onnxbisect.verdict import Hints, Kind, Status, Table, Verdict
from support.db.scenes import FAIL, PASS, UNSURE
from support.engine.report_factory import chain

FULL = Verdict(
    status=Status.FAIL,
    kind=Kind.FALLBACK,
    fingerprint="f",
    message="m\0\ud800",
    hints=Hints(ops=("Sin",), nodes=("n/1:0",), tensors=("t",)),
    seconds=1.5,
    tables=(Table(title="t", columns=("a", "b"), rows=(("1", "|"), ("", "☃")), counted="a"),),
)


def test_a_universe_comes_back_as_it_was() -> None:
    universe = replace(
        chain(["Relu", "Exp"]).universe,
        required_producers={1: 1},
        advertised=frozenset("ba"),
        doubted=of([2, 70, 5000]),
        weightless=(1, 2),
    )
    again = from_json(json.loads(json.dumps(to_json(universe))), Universe)
    assert asdict(again) == asdict(universe)


def test_a_unit_that_no_model_has_takes_no_memory() -> None:
    data = to_json(chain(["Relu"]).universe) | {"doubted": [10**12]}
    with pytest.raises(ValueError, match="no set of units"):
        from_json(data, Universe)


@pytest.mark.parametrize("verdict", [FULL, PASS.verdict, FAIL.verdict, UNSURE.verdict])
def test_verdicts_come_back_as_they_were(verdict: Verdict) -> None:
    assert from_json(json.loads(json.dumps(to_json(verdict))), Verdict) == verdict


def test_a_typed_dictionary_is_read_as_it_is_and_only_if_its_types_are_right() -> None:
    report = json.loads((Path(__file__).parent / "golden" / "report.json").read_text("utf-8"))
    assert from_json(report, Report) is report
    newer = {**report, "more": 1, "verdict": "a state of a later version"}
    assert from_json(newer, Report) is newer
    for wrong, place in (
        ({**report, "probes": [3]}, "probes[0]"),
        ({**report, "stats": {**report["stats"], "rounds": None}}, "stats.rounds"),
        ([report], ""),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(place)}$"):
            from_json(wrong, Report)
