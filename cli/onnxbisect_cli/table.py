"""A table on standard output: as wide as the terminal, and where there is none, as wide as it needs to be."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from onnxbisect.report.text import clean

_ENDLESS = 1 << 20


def show(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """The first column is for other commands to take, so it is never folded."""
    table = Table(box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=number == 0)
    for row in rows:
        table.add_row(*(escape(clean(cell)) for cell in row))
    console = Console()
    if not console.is_terminal:
        console.width = _ENDLESS
    console.print(table)
