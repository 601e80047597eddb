"""The language in which the command line speaks to its user: `--lang`, else the environment's."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated

import typer

from onnxbisect.language import LANGUAGES, named, of_environment, within

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


@contextmanager
def spoken() -> Iterator[None]:
    """A block in which text is made for the user to read."""
    with within(_chosen.get() or of_environment()):
        yield
