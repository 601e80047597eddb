"""Prints tables on standard output, as wide as the terminal; without a terminal no line is wrapped."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from onnxbisect.report.text import clean

_ENDLESS = 1 << 20


def show(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print the table. The first column is never folded, because other commands take it as input."""
    table = Table(box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=number == 0)
    for row in rows:
        table.add_row(*(escape(clean(cell)) for cell in row))
    console = Console()
    if console.is_terminal:
        console.print(table)
        return
    console.width = _ENDLESS
    with console.capture() as printed:
        console.print(table)
    print("\n".join(line.rstrip() for line in printed.get().splitlines()))
