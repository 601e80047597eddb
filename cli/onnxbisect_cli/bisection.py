"""A diagnosis on a terminal, or those of several versions: shows the progress, and ends it properly on Ctrl-C."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx_bisect
from onnx_bisect.models import Source
from onnxbisect.errors import OptionError
from onnxbisect.input_value import InputValue
from onnxbisect.report.history import history_document, history_sections
from onnxbisect.terms import CallTerms, OtherValues, SearchTerms
from onnxbisect_backends import registry
from onnxbisect_backends.commands.any_command import CommandBackend
from onnxbisect_backends.contract import Backend
from onnxbisect_cli.exit_status import Interruption
from onnxbisect_cli.parameters import ListFormat
from onnxbisect_cli.progress import Shown
from onnxbisect_cli.speech import show_document

#: Exit statuses of `regress`: the version of every change was found; some were not.
FOUND, OPEN = 0, 3


@dataclass(frozen=True, kw_only=True)
class SearchRequest:
    """The user's request. Exactly one of `backend` (a name or a TOML file) and `command` names the compiler.

    The other fields are those of `onnx_bisect.diagnose`.
    """

    model: Path
    backend: str | None = None
    command: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    input_shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    input_values: Mapping[str, InputValue] = field(default_factory=dict)
    jobs: int = 1
    terms: CallTerms = field(default_factory=SearchTerms)
    cache: bool = True
    files: bool = False
    artifacts: Path | None = None
    calibration: Path | None = None
    alternatives: OtherValues | None = None

    @property
    def target_words(self) -> list[str]:
        """How a command line names the backend and its options; empty for a command, which comes last."""
        words = [] if self.backend is None else ["--backend", self.backend]
        for key, value in self.options.items():
            words += ["--option", f"{key}={value}"]
        return words

    @property
    def keywords(self) -> dict[str, Any]:
        """What `diagnose`, `fix` and `regress` take of it; OptionError if the compiler is missing or wrong."""
        named = self.backend if self.backend and not self.command else None
        return {
            "backend": named or backend_of(self),
            "options": self.options if named else {},
            "input_shapes": self.input_shapes,
            "input_values": self.input_values,
            "jobs": self.jobs,
            "calibration": self.calibration,
            "cache": self.cache,
            **vars(self.terms),
        }


def bisected(request: SearchRequest, model: Source | None = None) -> tuple[onnx_bisect.Result, Interruption]:
    """The result, and the signal that ended the search, if any. Raises OnnxBisectError before any compile.

    `model` is the request's model if it was loaded before.
    """
    cancellation = onnx_bisect.Cancellation()
    with Shown(cancellation) as shown:
        result = onnx_bisect.diagnose(
            model or request.model,
            files=request.files,
            artifacts=request.artifacts,
            alternatives=request.alternatives,
            progress=shown,
            cancellation=cancellation,
            **request.keywords,
        )
    return result, shown.interruption


def backend_of(request: SearchRequest) -> Backend:
    """The backend that the request names; OptionError if it is missing or wrong."""
    backend = backend_named(request.command, request.backend, request.options)
    if backend is None:
        raise OptionError(
            "No compiler is named: give --backend NAME ('onnx-bisect backends' lists them) or a command after '--'."
        )
    return backend


def backend_named(command: Sequence[str], backend: str | None, options: Mapping[str, str]) -> Backend | None:
    """The backend of a command line, None if it names none; OptionError if it is wrong."""
    if command:
        if backend is not None or options:
            raise OptionError("A command after '--' is the backend itself: leave --backend and --option out.")
        return CommandBackend(command)
    if backend is not None:
        return registry.make(backend, dict(options))
    if options:
        raise OptionError("--option is for a backend: name it with --backend.")
    return None


@dataclass(frozen=True, kw_only=True)
class VersionRange:
    """Versions from the first to the last; empty for the oldest or newest."""

    first: str
    last: str

    @classmethod
    def of(cls, text: str) -> "VersionRange":
        """Parses `A..B`, `A..` or `..B`."""
        first, dots, last = text.partition("..")
        if not dots:
            raise OptionError(f"--versions {text!r} is not FIRST..LAST.")
        return cls(first=first.strip(), last=last.strip())


def regress(search: SearchRequest, versions: VersionRange, form: ListFormat) -> int:
    """Find the version since which each part is refused, or accepted; returns the exit status.

    The history goes to standard output, progress to standard error.
    """
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
    show_document(form, lambda: history_document(history), lambda _width: history_sections(history))
    if shown.interruption.number is not None:
        return shown.interruption.exit_code
    return FOUND if history.finished else OPEN
