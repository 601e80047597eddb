"""The overview as text lines, as Markdown, and as one HTML file."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from onnxbisect.finished import translated
from onnxbisect.language import _, marked
from onnxbisect.report import words
from onnxbisect.report.html import environment
from onnxbisect.report.overview import Overview, OverviewTarget
from onnxbisect.report.text import (
    NARROWEST,
    Heading,
    Item,
    Quoted,
    Section,
    TextTable,
    as_markdown,
    duration,
    op_chain,
    plural,
    terminal_lines,
)
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
class OverviewRow:
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


def rows(overview: Overview) -> list[OverviewRow]:
    """The table's lines, those that most targets refuse first, then in model order."""
    found: dict[tuple[str, ...], OverviewRow] = {}
    labels = [target["label"] for target in overview["targets"]]
    for row in overview["culprits"]:
        states = tuple(row["cells"][label]["state"] for label in labels)
        ops = op_chain(row["ops"])
        key = (row["kind"], ops, *states)
        if key not in found:
            first = row["places"][0][0] if row["places"] and row["places"][0] else ""
            found[key] = OverviewRow(ops=ops, first=first, refused=[0] * len(labels), states=states)
        line = found[key]
        line.places += len(row["places"])
        line.variants += 1
        line.refused = [
            count + row["cells"][label]["refused"] for count, label in zip(line.refused, labels, strict=True)
        ]
    return sorted(found.values(), key=lambda line: -sum(state in ("refused", "in_part") for state in line.states))


def summary(overview: Overview, target: OverviewTarget) -> str:
    """`does not compile: 3 ops at 7 places, proven; 24 compiler calls, 12 s (9.8 s compiling)`, or why not."""
    state, report = state_name(target), target["report"]
    if report is None:
        return _("{state}: {sentence}", state=state, sentence=translated(target["sentence"]))
    stats = report["stats"]
    found = ""
    if report["culprits"]:  # what the target's column of the table shows
        label = target["label"]
        shown = [row for row in overview["culprits"] if row["cells"][label]["culprits"]]
        culprits = plural(len(shown), "culprit")
        if all(row["kind"] == "single" for row in shown):
            culprits = plural(len({tuple(row["ops"]) for row in shown}), "op")
        places = plural(sum(row["cells"][label]["refused"] for row in shown), "place")
        found = _(": {culprits}", culprits=_("{culprits} at {places}", culprits=culprits, places=places))
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
    return _(STATES.get(target["state"], target["state"]))


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


_VERDICTS = {
    "pass": marked("✓ compiles"),
    "fail": marked("✗ refused"),
    "needs_context": marked("✓ in context"),
    "unknown": marked("unknown"),
}
_ORDER = ("fail", "mixed", "unknown", "needs_context", "pass")


def overview_page(overview: Overview, href: Callable[[str], str]) -> dict[str, object]:
    """The values of the page: rows of the document with their words; `href` returns where the report of a label is."""
    ops = []
    for row in overview.get("ops", ()):  # earlier servers do not send it
        cells = []
        for target in overview["targets"]:
            cell = row["cells"][target["label"]]
            some = _("✗ {failing} of {nodes}", failing=cell["failing"], nodes=row["nodes"])
            cells.append((cell["verdict"], _(_VERDICTS[cell["verdict"]]) if cell["verdict"] in _VERDICTS else some))
        ops.append((row["op"], row["nodes"], cells))
    return {
        "targets": [
            {
                **target,
                "name": state_name(target),
                "answer": summary(overview, target),
                "asked": asked(target),
                "href": href(target["label"]) if target["report"] else "",
            }
            for target in overview["targets"]
        ],
        "culprits": rows(overview),
        # those that most targets refuse come first
        "ops": sorted(ops, key=lambda it: sorted((*_ORDER, verdict).index(verdict) for verdict, _said in it[2])),
    }


def lines(overview: Overview, *, width: int = 100, files: str = "") -> list[str]:
    """The overview in about `width` columns, without line ends; `files` says where its files were written.

    A target's line may be longer, and of the table only the column of nodes is shortened.
    """
    where = [_("Overview: {files}", files=files)] if files else []
    return terminal_lines([*_sections(overview, max(width, NARROWEST)), *where], width)


def _beside(label: str, name: str) -> str:
    return f"{label}/{name}"


def markdown(overview: Overview, link: Callable[[str, str], str] = _beside) -> str:
    """For a pull request or an issue.

    `link` returns where a file is, given a label and the file's name.
    """
    return as_markdown(_sections(overview, NARROWEST, link))


def _sections(overview: Overview, width: int, link: Callable[[str, str], str] | None = None) -> Iterator[Section]:
    targets = overview["targets"]
    yield Heading(headline(overview))
    where = {it["label"]: link(it["label"], "report.md") if link and it["report"] else "" for it in targets}
    yield [Item(Quoted(it["label"], where[it["label"]]), summary(overview, it), [asked(it)]) for it in targets]
    if found := rows(overview):
        cells: list[list[str | Quoted]] = [
            [Quoted(line.ops), str(line.places), Quoted(line.first), *(line.cell(it) for it in range(len(targets)))]
            for line in found
        ]
        ops, nodes = min(34, width // 3), _("first node")
        wide = [max(len(str(row[i])) for row in cells) for i in range(3, 3 + len(targets))]
        others = [max(len(it["label"]), size) + 2 for it, size in zip(targets, wide, strict=True)]
        left = width - sum(min(26, it) for it in others) - min(ops, max(len(line.ops) for line in found)) - 10
        yield TextTable(
            head=["op", "places", nodes, *(Quoted(it["label"]) for it in targets)],
            rows=cells,
            limits=[ops, 6, max(12, left), *([24] * len(targets))],
            right=(1,),
            keep_end=(2,),
        )


def html(overview: Overview, link: Callable[[str, str], str] = _beside) -> str:
    """One file that opens offline, without scripts; links to the reports of the targets, as `link` says."""
    return (
        environment()
        .get_template("overview.html.j2")
        .render(
            headline=headline(overview),
            overview=overview_page(overview, lambda label: link(label, "report.html")),
            doc=overview,
        )
    )
