"""The overview as text lines, as Markdown, and as one HTML file."""

from collections.abc import Callable

from onnxbisect.language import _
from onnxbisect.report.grid import aligned
from onnxbisect.report.markdown_text import code, table
from onnxbisect.report.overview import Overview
from onnxbisect.report.overview_lines import Line, asked, headline, rows, state_name, summary
from onnxbisect.report.overview_page import overview_page
from onnxbisect.report.rendering import environment
from onnxbisect.report.text import clean, clip, plural

_NARROW = 60


def lines(overview: Overview, *, width: int = 100, files: str = "") -> list[str]:
    """The overview in about `width` columns, without line ends; `files` says where its files were written.

    A target's line may be longer, and of the table only the column of nodes is shortened.
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
            ("op", "places", _("first node"), *(target["label"] for target in targets)),
            *(_cells(line, len(targets)) for line in table),
        ]
        limits = [min(34, width // 3), 6, 0, *([24] * len(targets))]
        taken = sum(min(limit, max(len(row[i]) for row in cells)) + 2 for i, limit in enumerate(limits))
        limits[2] = max(12, width - taken)
        shown += ["", *aligned(cells, limits, right=(1,), keep_end=(2,))]
    if files:
        shown += ["", _("Overview: {files}", files=clean(files))]
    return [line.rstrip() for line in shown]


def _beside(label: str, name: str) -> str:
    return f"{label}/{name}"


def markdown(overview: Overview, link: Callable[[str, str], str] = _beside) -> str:
    """For a pull request or an issue. Text from the model or a compiler is in code spans.

    `link` returns where a file is, given a label and the file's name.
    """
    targets = overview["targets"]
    head = ("target", "asked", "answer", "report")
    about = [
        (
            code(target["label"], cell=True),
            code(asked(target), cell=True),
            summary(target) if target["report"] else f"{state_name(target)}: {code(target['sentence'], cell=True)}",
            f"[{target['label']}]({link(target['label'], 'report.md')})" if target["report"] else "",
        )
        for target in targets
    ]
    blocks = [
        ("# " + _("{name} on {targets}", name=code(overview["model"]["name"]), targets=plural(len(targets), "target"))),
        table(head, about),
    ]
    if found := rows(overview):
        blocks += [
            ("## " + _("Culprits by target")),
            table(
                ("ops", "places", _("first node"), *(code(target["label"], cell=True) for target in targets)),
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


def _cells(line: Line, targets: int) -> tuple[str, ...]:
    return (line.ops, str(line.places), line.first, *(line.cell(target) for target in range(targets)))
