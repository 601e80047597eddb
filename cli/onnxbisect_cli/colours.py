"""Colours of a report on a terminal. rich leaves them out elsewhere, and where NO_COLOR is set."""

import sys

from rich.console import Console
from rich.text import Text

#: How a line begins, below the headline, and its style.
_STYLES = (
    ("  proven:", "green"),
    ("  bounded:", "yellow"),
    ("  unknown:", "yellow"),
    ("  next:", "bold"),
    ("        onnx-bisect ", "cyan"),
    ("  refused ", "red"),
    ("  unknown ", "yellow"),
    ("  compiles ", "green"),
)


def print_report(text: str, *, compiles: bool | None) -> None:
    """Write a report's lines to standard output; `compiles` is the verdict of its headline, None if there is none."""
    if not sys.stdout.isatty():
        sys.stdout.write(text)
        return
    console = Console(highlight=False)
    headline = {True: "bold green", False: "bold red", None: "bold yellow"}[compiles]
    for number, line in enumerate(text.splitlines()):
        found = (style for prefix, style in _STYLES if line.startswith(prefix))
        style = headline if number == 0 else next(found, "")
        console.print(Text(line, style=style), soft_wrap=True)
