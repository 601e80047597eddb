"""What the command line says to its user: the language (`--lang`, else the environment's), sentences and tables."""

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Annotated

import typer

from onnxbisect.language import LANGUAGES, named, of_environment, within
from onnxbisect_cli.parameters import ListFormat

if TYPE_CHECKING:
    from onnxbisect.report.text import Section

_ENDLESS = 1 << 20
_chosen: ContextVar[str] = ContextVar("chosen", default="")


def _choose(text: str | None) -> None:
    if text is None:
        return
    language = named(text)
    if not language:
        raise typer.BadParameter(f"it is one of {', '.join(LANGUAGES)}.")
    _chosen.set(language)


#: The option of commands that show reports.
Lang = Annotated[
    str | None,
    typer.Option(
        "--lang",
        metavar="en|zh_CN",
        callback=_choose,
        help="The language of reports and messages; otherwise that of LC_ALL, LC_MESSAGES or LANG.",
    ),
]


def say(sentence: str) -> None:
    """Print a line for the user on standard error."""
    from onnxbisect.finished import translated  # which `--help` does not need
    from onnxbisect.report.text import clean

    with spoken():
        print(f"onnx-bisect: {clean(translated(sentence))}", file=sys.stderr, flush=True)


def show_line(line: str) -> None:
    """Print a line of progress on standard error as it is."""
    from onnxbisect.report.text import clean

    print(clean(line), file=sys.stderr, flush=True)


@contextmanager
def spoken() -> Iterator[None]:
    """A block in which text is made for the user to read."""
    with within(_chosen.get() or of_environment()):
        yield


def terminal_width() -> int:
    """The terminal's width in columns, limited because wide lines are hard to read."""
    return min(shutil.get_terminal_size(fallback=(100, 24)).columns, 140)


def show_document(
    form: ListFormat,
    document: Callable[[], object],
    sections: "Callable[[int], Iterable[Section]]",
    *,
    indent: int = 1,
) -> None:
    """Print a document as JSON, or its sections, which are chosen for a width in columns."""
    from onnxbisect.report.text import NARROWEST, as_markdown, terminal_lines  # which `--help` does not need

    if form is ListFormat.JSON:
        print(json.dumps(document(), indent=indent))
        return
    with spoken():
        if form is ListFormat.MD:
            print(as_markdown(sections(100)), end="")
        else:
            width = max(terminal_width(), NARROWEST)
            print("\n".join(terminal_lines(sections(width), width)))


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print the table. The first column is never folded, because other commands take it as input.

    It is as wide as the terminal; without a terminal no line is wrapped.
    """
    from rich.console import Console  # which `--help` does not need
    from rich.markup import escape
    from rich.table import Table

    from onnxbisect.report.text import clean

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
