"""`onnx-bisect regress`: the version since which a compiler refuses, or accepts, each part of a model."""

import json
import sys
from dataclasses import dataclass

import onnx_bisect
from onnxbisect.errors import OptionError
from onnxbisect.report.history import history_document, history_lines, history_markdown
from onnxbisect_cli.arguments import ListFormat
from onnxbisect_cli.bisection import SearchRequest
from onnxbisect_cli.progress import Shown
from onnxbisect_cli.reports import terminal_width

#: Exit statuses: the version of every change was found; some were not.
FOUND, OPEN = 0, 3


@dataclass(frozen=True, kw_only=True)
class Range:
    """Versions from the first to the last; empty for the oldest or newest."""

    first: str
    last: str

    @classmethod
    def of(cls, text: str) -> "Range":
        """Parses `A..B`, `A..` or `..B`."""
        first, dots, last = text.partition("..")
        if not dots:
            raise OptionError(f"--versions {text!r} is not FIRST..LAST.")
        return cls(first=first.strip(), last=last.strip())


def run(search: SearchRequest, versions: Range, form: ListFormat) -> int:
    """Search the versions; returns the exit status. The history goes to standard output, progress to standard error."""
    cancellation = onnx_bisect.Cancellation()
    try:
        with Shown(cancellation) as shown:
            history = onnx_bisect.regress(
                search.model,
                versions=(versions.first, versions.last),
                progress=shown,
                cancellation=cancellation,
                **search.keywords,
            )
    except KeyboardInterrupt:  # outside a search: during an installation, or between two searches
        print("onnx-bisect: interrupted; verdicts and installed versions are kept.", file=sys.stderr)
        return 130
    match form:
        case ListFormat.JSON:
            print(json.dumps(history_document(history), indent=1))
        case ListFormat.MD:
            print(history_markdown(history), end="")
        case ListFormat.TEXT:
            print("\n".join(history_lines(history, width=terminal_width())))
    if shown.interruption.number is not None:
        return shown.interruption.exit_code
    return FOUND if history.finished else OPEN
