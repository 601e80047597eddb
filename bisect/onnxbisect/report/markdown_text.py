"""Text as Markdown that shows it literally."""

import re
from collections.abc import Iterable, Sequence

from onnxbisect.report.text import clean, clip


def code(text: str, *, cell: bool = False) -> str:
    """A code span that `text` cannot end; in table cells, pipes are escaped as GFM requires."""
    shown = clip(text, 500)
    if not shown:
        return ""
    ticks = "`" * (max((len(run) for run in re.findall(r"`+", shown)), default=0) + 1)
    padded = f" {shown} " if shown[0] in "` " or shown[-1] in "` " else shown
    return ticks + (padded.replace("|", "\\|") if cell else padded) + ticks


def fence(*lines: str, language: str = "sh") -> str:
    """A code block that its lines cannot close."""
    shown = "\n".join(map(clean, lines))
    ticks = "`" * max(3, max((len(run) for run in re.findall(r"`+", shown)), default=0) + 1)
    return f"{ticks}{language}\n{shown}\n{ticks}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the cells are Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def plain(text: str) -> str:
    """A sentence of this program, which may quote untrusted text."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", clean(text))
