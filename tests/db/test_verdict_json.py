"""Verdicts as columns hold them."""

import json

import pytest

from onnxbisect.verdict import Hints, Kind, Status, Table, Verdict
from support.db.scenes import FAIL, PASS, UNSURE

FULL = Verdict(
    status=Status.FAIL,
    kind=Kind.FALLBACK,
    fingerprint="f",
    message="m\0\ud800",
    hints=Hints(ops=("Sin",), nodes=("n/1:0",), tensors=("t",)),
    seconds=1.5,
    tables=(Table(title="t", columns=("a", "b"), rows=(("1", "|"), ("", "☃")), counted="a"),),
)


@pytest.mark.parametrize("verdict", [FULL, PASS.verdict, FAIL.verdict, UNSURE.verdict])
def test_verdicts_come_back_as_they_were(verdict: Verdict) -> None:
    assert Verdict.from_json(json.loads(json.dumps(verdict.to_json()))) == verdict
