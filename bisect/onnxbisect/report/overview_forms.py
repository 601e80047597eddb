"""The overview for people: as plain lines, as Markdown, as one HTML file."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from onnxbisect.report import words
from onnxbisect.report.markdown import code, table
from onnxbisect.report.rendering import environment
from onnxbisect.report.terminal import aligned
from onnxbisect.report.text import clean, clip, duration, plural

_NARROW = 60

_STATES = {
    "pass": "compiles",
    "fail": "does not compile",
    "unresolved": "no answer",
    "unusable": "cannot be asked",
    "not_asked": "not asked",
}


@dataclass(kw_only=True)
class Line:
    """Rows of the overview that a reader cannot tell apart: variants of one op, with the same answers everywhere."""

    ops: str
    first: str
    places: int = 0
    variants: int = 0
    refused: list[int]
    states: tuple[str, ...]

    def cell(self, target: int) -> str:
        """What one target says: `refused`, `3 of 5 refused`, `passes`, `unknown`."""
        match self.states[target]:
            case "in_part":
                return f"{self.refused[target]} of {self.places} refused"
            case state:
                return state


def rows(overview: Mapping[str, Any]) -> list[Line]:
    """The table's lines: what most targets refuse comes first, then model order."""
    found: dict[tuple[str, ...], Line] = {}
    labels = [target["label"] for target in overview["targets"]]
    for row in overview["culprits"]:
        states = tuple(row["cells"][label]["state"] for label in labels)
        ops = " + ".join(row["ops"][:4]) + (f" + {len(row['ops']) - 4} more" if len(row["ops"]) > 4 else "")
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


def summary(target: Mapping[str, Any]) -> str:
    """`does not compile: 3 culprits, proven; 24 compiler calls, 12 s`, or why there is no answer."""
    state, report = _STATES[target["state"]], target["report"]
    if report is None:
        return f"{state}: {target['sentence']}"
    stats = report["stats"]
    found = f": {plural(report['culprits'], 'culprit')}" if report["culprits"] else ""
    cost = f"{plural(stats['compiler_calls'], 'compiler call')}, {duration(stats['wall_seconds'])}"
    return f"{state}{found}, {report['certificate']}; {cost}"


def asked(target: Mapping[str, Any]) -> str:
    """`rknn (target=rk3588), RKNN-Toolkit2 2.3.2`; empty where nothing is known of the tool."""
    return f"{words.target(target['report'])}, {words.tool(target['report'])}" if target["report"] else ""


def headline(overview: Mapping[str, Any]) -> str:
    """The answer in one sentence."""
    states = [target["state"] for target in overview["targets"]]
    open_ = sum(state not in ("pass", "fail") for state in states)
    unknown = f"; no answer for {open_}" if open_ else ""
    return (
        f"{overview['model']['name']} compiles for {states.count('pass')} of {plural(len(states), 'target')}{unknown}"
    )


def lines(overview: Mapping[str, Any], *, width: int = 100, files: str = "") -> list[str]:
    """The overview in about `width` columns, without line ends; `files` says where its files were written.

    A target's line is read whole, and so is every column of the table but that of the nodes.
    """
    width = max(width, _NARROW)
    targets = overview["targets"]
    shown = [clean(headline(overview))]
    label = max(len(target["label"]) for target in targets)
    for target in targets:
        shown.append(f"  {clean(target['label']):<{label}}  {clean(summary(target))}")
        if about := asked(target):
            shown.append(f"  {'':<{label}}  {clip(about, width - label - 4)}")
    if table := rows(overview):
        cells = [
            ("op", "places", "first node", *(target["label"] for target in targets)),
            *(_cells(line, len(targets)) for line in table),
        ]
        limits = [min(34, width // 3), 6, 0, *([24] * len(targets))]
        taken = sum(min(limit, max(len(row[i]) for row in cells)) + 2 for i, limit in enumerate(limits))
        limits[2] = max(12, width - taken)
        shown += ["", *aligned(cells, limits, right=(1,), keep_end=(2,))]
    if files:
        shown += ["", f"Overview: {clean(files)}"]
    return [line.rstrip() for line in shown]


def _beside(label: str, name: str) -> str:
    return f"{label}/{name}"


def markdown(overview: Mapping[str, Any], link: Callable[[str, str], str] = _beside) -> str:
    """For a pull request or an issue. All that comes from the model or a compiler is in code spans. `link` says where
    the report of a label and of a file name is.
    """
    targets = overview["targets"]
    head = ("target", "asked", "answer", "report")
    about = [
        (
            code(target["label"], cell=True),
            code(asked(target), cell=True),
            summary(target)
            if target["report"]
            else f"{_STATES[target['state']]}: {code(target['sentence'], cell=True)}",
            f"[{target['label']}]({link(target['label'], 'report.md')})" if target["report"] else "",
        )
        for target in targets
    ]
    blocks = [f"# {code(overview['model']['name'])} on {plural(len(targets), 'target')}", table(head, about)]
    if found := rows(overview):
        blocks += [
            "## Culprits by target",
            table(
                ("ops", "places", "first node", *(code(target["label"], cell=True) for target in targets)),
                (
                    (
                        code(line.ops, cell=True),
                        str(line.places),
                        code(line.first, cell=True),
                        *(line.cell(target) for target in range(len(targets))),
                    )
                    for line in found
                ),
            ),
        ]
    return "\n\n".join(blocks) + "\n"


def html(overview: Mapping[str, Any], link: Callable[[str, str], str] = _beside) -> str:
    """One file that opens offline, without scripts; links to the reports of the targets, as `link` says."""
    made = environment()
    made.globals |= {
        "asked": asked,
        "headline": headline,
        "link": link,
        "rows": rows,
        "states": _STATES,
        "summary": summary,
    }
    return made.get_template("overview.html.j2").render(doc=overview)


def _cells(line: Line, targets: int) -> tuple[str, ...]:
    return (line.ops, str(line.places), line.first, *(line.cell(target) for target in range(targets)))
