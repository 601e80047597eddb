"""Two reports beside each other: which culprits are gone, which are new, and which are still there.

Between the two the model may have been repaired, so that nodes have other names, or the compiler may be another
version, which says the same in other words. So a culprit is looked for in three ways, the surest first.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from onnxbisect.report.ranges import LISTED, chosen
from onnxbisect.verdict import Status

#: The value of `format`; a change that breaks readers counts the number up.
FORMAT = "onnx-bisect/compare@1"

_Culprit = Mapping[str, Any]


def compare(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    """What has become of the culprits of report `a` in report `b`; JSON-able. Names and messages are left as they are.

    `fixed` were in `a`, `new` are in `b`, `unchanged` in both: `by` says whether by `id` (ops, what they are given,
    complaint), by `nodes` (same ops, and nodes of the same name), or by `complaint` (same ops and complaint). Where a
    report's certificate does not say that nothing else is wrong, a culprit may be missing from it for want of asking:
    then `fixed` or `new` are not `certain`.
    """
    here, there = list(a["culprits"]), list(b["culprits"])
    pairs: list[tuple[_Culprit, _Culprit, str]] = []
    for by, alike in _WAYS.items():
        pairs += _matched(here, there, by, alike)
    order = {culprit["id"]: number for number, culprit in enumerate(b["culprits"])}
    unchanged = sorted(pairs, key=lambda pair: order[pair[1]["id"]])
    certain = {"fixed": _proven(b), "new": _proven(a)}
    return {
        "format": FORMAT,
        "headline": _headline(len(here), len(there), len(unchanged), certain),
        "a": _side(a),
        "b": _side(b),
        "same_model": a["model"]["sha256"] == b["model"]["sha256"],
        "same_target": a["target"] == b["target"],
        "certain": certain,
        "fixed": [_entry(culprit) for culprit in here],
        "new": [_entry(culprit) for culprit in there],
        "unchanged": [
            {"by": by, "places_before": len(old["occurrences"]), **_entry(culprit)} for old, culprit, by in unchanged
        ],
    }


def passed_in(culprit: Mapping[str, Any], report: Mapping[str, Any]) -> bool:
    """Whether the nodes of a culprit passed together, in a report on the same model that does not blame them."""
    place = {name: number for number, name in enumerate(report["units"]["names"])}
    units = {place.get(name, -1) for name in culprit["nodes"]}
    passing = (probe["units"] for probe in report["probes"] if probe["verdict"] == Status.PASS)
    return any(units <= set(chosen(text, len(place))) for text in passing)


def _headline(fixed: int, new: int, unchanged: int, certain: Mapping[str, bool]) -> str:
    doubts = [what for what, count in (("fixed", fixed), ("new", new)) if count and not certain[what]]
    unsure = f"; what is {' and '.join(doubts)} is not certain, since not everything was answered" if doubts else ""
    return f"{fixed} fixed, {new} new, {unchanged} unchanged{unsure}"


def _what(culprit: _Culprit) -> tuple[Hashable, ...]:
    return (culprit["kind"], *culprit["ops"])


def _by_id(culprit: _Culprit) -> Iterable[Hashable]:
    return [culprit["id"]]


def _by_nodes(culprit: _Culprit) -> Iterable[Hashable]:
    return [(_what(culprit), tuple(nodes)) for nodes in culprit["occurrences"] if all(nodes)]


def _by_complaint(culprit: _Culprit) -> Iterable[Hashable]:
    complaint = (culprit["failure"], culprit["fingerprint"])
    return [(_what(culprit), complaint)] if culprit["fingerprint"] else []


_WAYS: Mapping[str, Callable[[_Culprit], Iterable[Hashable]]] = {
    "id": _by_id,
    "nodes": _by_nodes,
    "complaint": _by_complaint,
}


def _matched(
    here: list[_Culprit], there: list[_Culprit], by: str, marks: Callable[[_Culprit], Iterable[Hashable]]
) -> list[tuple[_Culprit, _Culprit, str]]:
    """Pairs with a mark in common, in the order of `here`; taken out of both lists."""
    owners: dict[Hashable, list[_Culprit]] = {}
    for culprit in there:
        for mark in marks(culprit):
            owners.setdefault(mark, []).append(culprit)
    pairs: list[tuple[_Culprit, _Culprit, str]] = []
    taken: set[str] = set()
    for culprit in here:
        free = (it for mark in marks(culprit) for it in owners.get(mark, ()) if it["id"] not in taken)
        other = next(free, None)
        if other is not None:
            taken.add(other["id"])
            pairs.append((culprit, other, by))
    left = {old["id"] for old, _, _ in pairs}
    here[:] = [culprit for culprit in here if culprit["id"] not in left]
    there[:] = [culprit for culprit in there if culprit["id"] not in taken]
    return pairs


def _proven(report: Mapping[str, Any]) -> bool:
    return bool(report["certificate"]["status"] == "proven")


def _side(report: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "model": {key: report["model"][key] for key in ("name", "sha256")},
        "target": report["target"],
        "verdict": report["verdict"],
        "certificate": report["certificate"]["status"],
        "culprits": len(report["culprits"]),
    }


def _entry(culprit: _Culprit) -> dict[str, Any]:
    """What tells a culprit to a reader; the rest is in its report."""
    fields = ("id", "kind", "certainty", "ops", "failure", "fingerprint", "message")
    told = {key: culprit[key] for key in fields}
    return {**told, "nodes": culprit["nodes"][:LISTED], "places": len(culprit["occurrences"])}
