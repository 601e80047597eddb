"""Reports beside each other: those of several targets on one model; and of two, which culprits are gone, which are new,
and which are still there (`onnx-bisect/compare@1`).

Between the reports the model may have been repaired, so that nodes have other names, or the compiler may be another
version with other messages. So culprits are matched in three ways, the most reliable first.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

from typing_extensions import TypedDict

from onnxbisect.diagnosis import Certainty, CertificateStatus, CulpritKind, TargetEntry
from onnxbisect.finished import translated
from onnxbisect.language import _, english
from onnxbisect.report import words
from onnxbisect.report.contents import LISTED, Report
from onnxbisect.report.culprit_contents import CulpritEntry
from onnxbisect.report.text import Heading, Item, Quoted, Section, TextTable, op_chain, plural
from onnxbisect.unitset import UnitSet, is_subset, lowest, of, size, union, units_in
from onnxbisect.verdict import Kind, Status

if TYPE_CHECKING:
    from onnxbisect.model.model import Model  # brings onnx along, which readers of reports do without

#: The value of `format`; an incompatible change increments the number.
FORMAT: Final = "onnx-bisect/compare@1"

Way = Literal["id", "nodes", "complaint"]


class ComparedModel(TypedDict):
    """The model of one report."""

    name: str
    sha256: str


class ComparedSide(TypedDict):
    """One of the two reports."""

    model: ComparedModel
    target: TargetEntry
    verdict: Status
    certificate: CertificateStatus
    culprits: int


class ComparedCulprit(TypedDict):
    """What tells a culprit to a reader; the rest is in its report."""

    id: str
    kind: CulpritKind
    certainty: Certainty
    ops: list[str]
    failure: Kind
    fingerprint: str
    message: str
    nodes: list[str]
    """At most 50."""
    places: int


class UnchangedCulprit(ComparedCulprit):
    """A culprit that both reports have."""

    by: Way
    """What tells that it is the same one."""
    places_before: int


class Certain(TypedDict):
    """Whether the lists are certain: false where a culprit may be missing from an incomplete report."""

    fixed: bool
    new: bool


class Comparison(TypedDict):
    """What has become of the culprits of report `a` in report `b`."""

    format: Literal["onnx-bisect/compare@1"]
    headline: str
    a: ComparedSide
    b: ComparedSide
    same_model: bool
    same_target: bool
    certain: Certain
    """False where a culprit may be missing from an incomplete report."""
    fixed: list[ComparedCulprit]
    new: list[ComparedCulprit]
    unchanged: list[UnchangedCulprit]


def compare(a: Report, b: Report) -> Comparison:
    """What has become of the culprits of report `a` in report `b`; JSON-able. Names and messages are left as they are.

    `fixed` were in `a`, `new` are in `b`, `unchanged` in both: `by` says whether by `id` (ops, what they are given,
    complaint), by `nodes` (same ops, and nodes of the same name), or by `complaint` (same ops and complaint). Where a
    report's certificate does not say that nothing else is wrong, a culprit may be missing from it for want of asking:
    then `fixed` or `new` are not `certain`.
    """
    here, there = list(a["culprits"]), list(b["culprits"])
    pairs: list[tuple[CulpritEntry, CulpritEntry, Way]] = []
    for by, alike in _WAYS.items():
        pairs += _matched(here, there, by, alike)
    order = {culprit["id"]: number for number, culprit in enumerate(b["culprits"])}
    unchanged = sorted(pairs, key=lambda pair: order[pair[1]["id"]])
    certain: Certain = {"fixed": _proven(b), "new": _proven(a)}
    headline = english(
        "{fixed} fixed, {new} new, {unchanged} unchanged", fixed=len(here), new=len(there), unchanged=len(unchanged)
    )
    counted = ((english("fixed"), here, certain["fixed"]), (english("new"), there, certain["new"]))
    if doubts := [what for what, culprits, sure in counted if culprits and not sure]:
        headline = english(
            "{sentence}; what is {phrases} is not certain, since not everything was answered",
            sentence=headline,
            phrases=" and ".join(doubts),
        )
    return {
        "format": FORMAT,
        "headline": headline,
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


def _passing(report: Report) -> list[UnitSet]:
    """The sets of units that compiled, decoded once: a large model has many culprits and many probes of many units."""
    count = len(report["units"]["names"])
    return [units_in(probe["units"], count) for probe in report["probes"] if probe["verdict"] == Status.PASS]


def passed_in(report: Report) -> Callable[[CulpritEntry], bool]:
    """Says of a culprit whether its nodes passed together, in a report on the same model that does not blame them."""
    place = {name: number for number, name in enumerate(report["units"]["names"])}
    passing = _passing(report)

    def passed(culprit: CulpritEntry) -> bool:
        if not place.keys() >= set(culprit["nodes"]):
            return False
        units = of(place[name] for name in culprit["nodes"])
        return any(is_subset(units, others) for others in passing)

    return passed


def _what(culprit: CulpritEntry) -> tuple[Hashable, ...]:
    return (culprit["kind"], *culprit["ops"])


_WAYS: Mapping[Way, Callable[[CulpritEntry], Iterable[Hashable]]] = {
    "id": lambda culprit: [culprit["id"]],
    "nodes": lambda culprit: [(_what(culprit), tuple(nodes)) for nodes in culprit["occurrences"] if all(nodes)],
    "complaint": lambda culprit: (
        [(_what(culprit), culprit["failure"], culprit["fingerprint"])] if culprit["fingerprint"] else []
    ),
}


def _matched(
    here: list[CulpritEntry], there: list[CulpritEntry], by: Way, marks: Callable[[CulpritEntry], Iterable[Hashable]]
) -> list[tuple[CulpritEntry, CulpritEntry, Way]]:
    """Pairs with a common mark, in the order of `here`; removes them from both lists."""
    owners: dict[Hashable, list[CulpritEntry]] = {}
    for culprit in there:
        for mark in marks(culprit):
            owners.setdefault(mark, []).append(culprit)
    pairs: list[tuple[CulpritEntry, CulpritEntry, Way]] = []
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


def _proven(report: Report) -> bool:
    return bool(report["certificate"]["status"] == "proven")


def _side(report: Report) -> ComparedSide:
    return {
        "model": {"name": report["model"]["name"], "sha256": report["model"]["sha256"]},
        "target": report["target"],
        "verdict": report["verdict"],
        "certificate": report["certificate"]["status"],
        "culprits": len(report["culprits"]),
    }


def _entry(culprit: CulpritEntry) -> ComparedCulprit:
    """What tells a culprit to a reader; the rest is in its report."""
    return {
        "id": culprit["id"],
        "kind": culprit["kind"],
        "certainty": culprit["certainty"],
        "ops": culprit["ops"],
        "failure": culprit["failure"],
        "fingerprint": culprit["fingerprint"],
        "message": culprit["message"],
        "nodes": culprit["nodes"][:LISTED],
        "places": len(culprit["occurrences"]),
    }


#: Most culprits of each kind that are listed.
_MOST_ROWS = 100


def compare_sections(found: Comparison, width: int = 100) -> Iterator[Section]:
    """The comparison for people; `width` is that of the table."""
    yield Heading(translated(found["headline"]))
    sides = []
    for name, side in (("a", found["a"]), ("b", found["b"])):
        outcomes = {"pass": _("compiles"), "fail": plural(side["culprits"], "culprit")}
        verdict = outcomes.get(side["verdict"], _("no answer"))
        asked = ", ".join(filter(None, (words.target(side["target"]), words.tool(side["target"]))))
        about = _(
            "{model} on {target}: {verdict}, {certificate}",
            model=side["model"]["name"],
            target=asked,
            verdict=verdict,
            certificate=words.named(side["certificate"]),
        )
        sides.append(Item(Quoted(name), Quoted(about)))
    yield sides
    kinds = (
        (_("fixed") if found["certain"]["fixed"] else _("fixed (not certain)"), found["fixed"]),
        (_("new") if found["certain"]["new"] else _("new (not certain)"), found["new"]),
        (_("unchanged"), found["unchanged"]),
    )
    rows: list[list[str | Quoted]] = []
    for kind, culprits in kinds:
        for it in culprits[:_MOST_ROWS]:
            before, places = it.get("places_before", it["places"]), plural(it["places"], "place")
            places += "" if before == it["places"] else _(", was {before}", before=before)
            node, said = Quoted("".join(it["nodes"][:1])), Quoted(words.failure(it))
            rows.append([kind, Quoted(op_chain(it["ops"])), places, node, said])
    if rows:
        head = ["", _("ops"), _("places"), _("first node"), _("the compiler says")]
        yield TextTable(head=head, rows=rows, limits=[19, 34, 18, 40, max(20, width - 60)], keep_end=(3,))
    for kind, culprits in kinds:
        if (more := len(culprits) - _MOST_ROWS) > 0:
            yield _("{kind}: {more} more", kind=kind, more=more)


@dataclass(frozen=True, kw_only=True)
class AskedModel:
    """The model that all targets compiled. `names` has the node name of each unit."""

    name: str
    sha256: str
    nodes: int
    names: Sequence[str]

    @classmethod
    def of(cls, model: "Model") -> "AskedModel":
        """From the model itself."""
        nodes = model.proto.graph.node
        names = tuple(nodes[unit.node].name for unit in model.units)
        return cls(name=model.path.name, sha256=model.sha256, nodes=len(nodes), names=names)

    @classmethod
    def of_report(cls, report: Report) -> "AskedModel":
        """From the report of any target, if the model is not at hand."""
        about = report["model"]
        return cls(name=about["name"], sha256=about["sha256"], nodes=about["nodes"], names=report["units"]["names"])


@dataclass(frozen=True, kw_only=True)
class TargetReport:
    """One target under its label. `report` is its document; if None, `reason` says why, and `ended` that its turn never
    came.
    """

    label: str
    backend: str
    report: Report | None = None
    reason: str = ""
    ended: bool = False

    @property
    def state(self) -> Status | Literal["unusable", "not_asked"]:
        """The verdict of the whole model; or it cannot be used here; or the run was interrupted before its turn."""
        return self.report["verdict"] if self.report else "not_asked" if self.ended else "unusable"

    @property
    def sentence(self) -> str:
        """What the certificate says, or why there is no report."""
        return self.report["certificate"]["sentence"] if self.report else self.reason

    @cached_property
    def passing(self) -> list[UnitSet]:
        """The sets of units that compiled, largest first."""
        return sorted(_passing(self.report) if self.report else (), key=size, reverse=True)

    @cached_property
    def passed(self) -> UnitSet:
        """The units that were in one of these sets."""
        return union(self.passing)

    @cached_property
    def culprits(self) -> Mapping[int, list[tuple[int, UnitSet, CulpritEntry]]]:
        """Every occurrence of every culprit by its lowest unit, with its number in the report, and its culprit."""
        found: dict[int, list[tuple[int, UnitSet, CulpritEntry]]] = {}
        culprits = self.report["culprits"] if self.report else ()
        for number, (culprit, text) in enumerate((it, text) for it in culprits for text in it["occurrence_units"]):
            if units := self.units(text):
                found.setdefault(lowest(units), []).append((number, units, culprit))
        return found

    def units(self, text: str) -> UnitSet:
        """The set in text of the report."""
        return units_in(text, len(self.report["units"]["names"]) if self.report else 0)
