"""The overview as the template `_overview.html.j2` reads it, in a file and on the status page."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onnxbisect.language import _, marked
from onnxbisect.report.overview import Overview, OverviewOpCell
from onnxbisect.report.overview_lines import Line, asked, rows, state_name, summary

_VERDICTS = {
    "pass": marked("✓ compiles"),
    "fail": marked("✗ refused"),
    "needs_context": marked("✓ in context"),
    "unknown": marked("unknown"),
}
_ORDER = ("fail", "mixed", "unknown", "needs_context", "pass")


@dataclass(frozen=True, kw_only=True)
class TargetLine:
    """One target; `href` leads to its report, and is empty if there is none."""

    label: str
    state: str
    name: str
    answer: str
    asked: str
    href: str


@dataclass(frozen=True, kw_only=True)
class OpLine:
    """One op. `cells` has for each target a verdict and its text."""

    op: str
    nodes: int
    cells: Sequence[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class OverviewPage:
    """The values of the page."""

    targets: Sequence[TargetLine]
    culprits: Sequence[Line]
    ops: Sequence[OpLine]


def overview_page(overview: Overview, href: Callable[[str], str]) -> OverviewPage:
    """The page; `href` returns where the report of a label is."""
    return OverviewPage(
        targets=[
            TargetLine(
                label=target["label"],
                state=target["state"],
                name=state_name(target),
                answer=summary(target),
                asked=asked(target),
                href=href(target["label"]) if target["report"] else "",
            )
            for target in overview["targets"]
        ],
        culprits=rows(overview),
        ops=_ops(overview),
    )


def _ops(overview: Overview) -> list[OpLine]:
    """The ops, those that most targets refuse first."""
    labels = [target["label"] for target in overview["targets"]]
    lines = [
        OpLine(op=row["op"], nodes=row["nodes"], cells=[_cell(row["cells"][label], row["nodes"]) for label in labels])
        for row in overview.get("ops", ())  # earlier servers do not send it
    ]
    return sorted(lines, key=lambda line: sorted(_ORDER.index(verdict) for verdict, _text in line.cells))


def _cell(cell: OverviewOpCell, nodes: int) -> tuple[str, str]:
    verdict = cell["verdict"]
    return verdict, _("✗ {failing} of {nodes}", failing=cell["failing"], nodes=nodes) if verdict == "mixed" else _(
        _VERDICTS[verdict]
    )
