"""Sentences and table lines that all forms of the overview share."""

from dataclasses import dataclass

from onnxbisect.finished import translated
from onnxbisect.language import _, marked
from onnxbisect.report import words
from onnxbisect.report.overview import Overview, OverviewTarget
from onnxbisect.report.text import duration, plural
from onnxbisect.verdict import Status

#: How the headline of a model ends that compiles, and whose numbers are wrong.
_OTHER_NUMBERS = "and computes other numbers"

STATES = {
    "pass": marked("compiles"),
    "fail": marked("does not compile"),
    "unresolved": marked("no answer"),
    "unusable": marked("cannot be asked"),
    "not_asked": marked("not asked"),
}


@dataclass(kw_only=True)
class Line:
    """Rows of the overview that read the same: variants of one op with the same results on every target."""

    ops: str
    first: str
    places: int = 0
    variants: int = 0
    refused: list[int]
    states: tuple[str, ...]

    def cell(self, target: int) -> str:
        """The result on one target: `refused`, `3 of 5 refused`, `passes`, `unknown`."""
        match self.states[target]:
            case "in_part":
                return _("{refused} of {places} refused", refused=self.refused[target], places=self.places)
            case state:
                return words.named(state)


def rows(overview: Overview) -> list[Line]:
    """The table's lines, those that most targets refuse first, then in model order."""
    found: dict[tuple[str, ...], Line] = {}
    labels = [target["label"] for target in overview["targets"]]
    for row in overview["culprits"]:
        states = tuple(row["cells"][label]["state"] for label in labels)
        ops = " + ".join(row["ops"][:4]) + (
            (" " + _("+ {more} more", more=len(row["ops"]) - 4)) if len(row["ops"]) > 4 else ""
        )
        key = (row["kind"], ops, *states)
        if key not in found:
            first = row["places"][0][0] if row["places"] and row["places"][0] else ""
            found[key] = Line(ops=ops, first=first, refused=[0] * len(labels), states=states)
        line = found[key]
        line.places += len(row["places"])
        line.variants += 1
        line.refused = [
            count + row["cells"][label]["refused"] for count, label in zip(line.refused, labels, strict=True)
        ]
    return sorted(found.values(), key=lambda line: -sum(state in ("refused", "in_part") for state in line.states))


def summary(target: OverviewTarget) -> str:
    """`does not compile: 3 culprits, proven; 24 compiler calls, 12 s (9.8 s compiling)`, or why there is no answer."""
    state, report = state_name(target), target["report"]
    if report is None:
        return _("{state}: {sentence}", state=state, sentence=translated(target["sentence"]))
    stats = report["stats"]
    found = _(": {culprits}", culprits=plural(report["culprits"], "culprit")) if report["culprits"] else ""
    cost = _(
        "{calls}, {seconds} ({compiling} compiling)",
        calls=plural(stats["compiler_calls"], "compiler call"),
        seconds=duration(stats["wall_seconds"]),
        compiling=duration(stats["compile_seconds"]),
    )
    certificate = words.named(report["certificate"])
    return _("{state}{found}, {certificate}; {cost}", state=state, found=found, certificate=certificate, cost=cost)


def asked(target: OverviewTarget) -> str:
    """`rknn (target=rk3588), RKNN-Toolkit2 2.3.2`; empty if nothing is known about the tool."""
    if target["report"] is None:
        return ""
    about = target["report"]["target"]
    return f"{words.target(about)}, {words.tool(about)}"


def state_name(target: OverviewTarget) -> str:
    """`does not compile`, `cannot be asked`."""
    if target["report"] is not None and target["report"]["headline"].endswith(_OTHER_NUMBERS):
        return _("compiles and computes other numbers")
    return _(STATES[target["state"]])


def headline(overview: Overview) -> str:
    """The result in one sentence."""
    states = [target["state"] for target in overview["targets"]]
    open_ = sum(state not in ("pass", "fail") for state in states)
    unknown = _("; no answer for {open_}", open_=open_) if open_ else ""
    passing = states.count(Status.PASS)
    return _(
        "{name} compiles for {passing} of {targets}{unknown}",
        name=overview["model"]["name"],
        passing=passing,
        targets=plural(len(states), "target"),
        unknown=unknown,
    )
