"""Plain text in columns, and lists that are broken into lines."""

from collections.abc import Sequence

from onnxbisect.report.text import clip, clip_left


def aligned(
    rows: Sequence[Sequence[str]],
    limits: Sequence[int],
    *,
    indent: int = 2,
    right: Sequence[int] = (),
    keep_end: Sequence[int] = (),
) -> list[str]:
    """Rows in aligned columns, each at most as wide as its limit; `keep_end` columns lose their start instead."""
    widths = [min(limit, max(len(row[i]) for row in rows)) for i, limit in enumerate(limits)]
    shown = []
    for row in rows:
        cells = []
        for i, cell in enumerate(row):
            text = clip_left(cell, widths[i]) if i in keep_end else clip(cell, widths[i])
            cells.append(text.rjust(widths[i]) if i in right else text.ljust(widths[i]))
        shown.append(" " * indent + "  ".join(cells))
    return shown


def wrapped(label: str, items: Sequence[str], width: int, *, at_most: int, end: str = "") -> list[str]:
    """Items separated by commas in at most `at_most` lines under `label`; the rest is counted."""
    shown = [label]
    for index, item in enumerate(items):
        piece = item + ("," if index < len(items) - 1 else end)
        if len(shown[-1]) + len(piece) > width and shown[-1].strip():
            if len(shown) == at_most:
                # No room was reserved for the count, so it may exceed the width by some columns.
                shown[-1] += f" and {len(items) - index} more{end}"
                return shown
            shown.append(" " * len(label))
        shown[-1] += ("" if shown[-1].endswith(" ") else " ") + piece
    return shown
