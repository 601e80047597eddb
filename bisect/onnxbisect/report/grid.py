"""Plain text in columns, and lists that are broken into lines."""

from collections.abc import Sequence

from rich.cells import cell_len

from onnxbisect.language import _
from onnxbisect.report.text import clean


def padded(text: str, width: int) -> str:
    """The text with spaces behind it, in `width` columns: a Chinese character takes two."""
    return text + " " * (width - cell_len(text))


def aligned(
    rows: Sequence[Sequence[str]],
    limits: Sequence[int],
    *,
    indent: int = 2,
    right: Sequence[int] = (),
    keep_end: Sequence[int] = (),
) -> list[str]:
    """Rows in aligned columns, each at most as wide as its limit; `keep_end` columns lose their start instead."""
    cleaned = [[clean(cell) for cell in row] for row in rows]
    widths = [min(limit, max(cell_len(row[i]) for row in cleaned)) for i, limit in enumerate(limits)]
    shown = []
    for row in cleaned:
        cells = []
        for i, cell in enumerate(row):
            text = _end_of(cell, widths[i]) if i in keep_end else _start_of(cell, widths[i])
            cells.append(" " * (widths[i] - cell_len(text)) + text if i in right else padded(text, widths[i]))
        shown.append(" " * indent + "  ".join(cells))
    return shown


def wrapped(label: str, items: Sequence[str], width: int, *, at_most: int, end: str = "") -> list[str]:
    """Items separated by commas in at most `at_most` lines under `label`; the rest is counted."""
    shown = [label]
    for index, item in enumerate(items):
        piece = item + ("," if index < len(items) - 1 else end)
        if cell_len(shown[-1]) + cell_len(piece) > width and shown[-1].strip():
            if len(shown) == at_most:
                # No room was reserved for the count, so it may exceed the width by some columns.
                shown[-1] += " " + _("and {more} more{end}", more=len(items) - index, end=end)
                return shown
            shown.append(" " * cell_len(label))
        shown[-1] += ("" if shown[-1].endswith(" ") else " ") + piece
    return shown


def _start_of(text: str, width: int) -> str:
    """As much of the start as fits into the columns."""
    if cell_len(text) <= width:
        return text
    kept = text[: max(width - 1, 0)]
    while cell_len(kept) > max(width - 1, 0):
        kept = kept[:-1]
    return kept + "…"


def _end_of(text: str, width: int) -> str:
    """As much of the end as fits into the columns."""
    if cell_len(text) <= width:
        return text
    kept = text[len(text) - max(width - 1, 0) :]
    while cell_len(kept) > max(width - 1, 0):
        kept = kept[1:]
    return "…" + kept
