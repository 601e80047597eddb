"""Creates the backend that a caller names or passes, says how commands call it again, and lists those installed."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Self, cast

import numpy as np

from onnxbisect.errors import BackendUnusableError, OptionError
from onnxbisect.fingerprint import fingerprint
from onnxbisect.report.contents import Reproduce
from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect_backends import registry
from onnxbisect_backends.commands.any_command import CommandBackend
from onnxbisect_backends.commands.toml_backend import TomlBackend
from onnxbisect_backends.contract import Backend, Description, Limits, Outcome
from onnxbisect_backends.options import OptionHelp, option_text

#: Takes the path of a model and returns whether it compiles. A Verdict can add the kind of failure and what the log
#: names.
CompileFunction = Callable[[Path], bool | Verdict]


@dataclass(frozen=True, kw_only=True)
class _Returned(Outcome):
    """An outcome with the verdict that the function returned."""

    verdict: Verdict


class CallableBackend:
    """Calls the function in a thread of this process, with a file that is deleted when it returns.

    If the function raises, the probe has no verdict. A running call cannot be interrupted: time limits and
    cancellation do not end it, and its result is discarded if the search has ended meanwhile.
    """

    options: dict[str, Any] = {}  # noqa: RUF012 - the protocol's attribute, never written to

    def __init__(self, compiles: CompileFunction) -> None:
        self._compiles = compiles
        self.name = getattr(compiles, "__name__", type(compiles).__name__)

    def describe(self) -> Description:
        """The function's name. Its version is unknown, so `diagnose` stores none of its verdicts."""
        return Description(tool=self.name, version="", dynamic_shapes=True)

    def check(self) -> str | None:
        """None: a function can always be called."""
        return None

    def compile(self, probe: Path, workdir: Path, limits: Limits) -> Outcome:
        """Call the function with the probe's path. Raises OptionError if it returns neither a bool nor a Verdict."""
        began = time.monotonic()
        returned: object = self._compiles(probe)
        seconds = time.monotonic() - began
        if isinstance(returned, bool | np.bool_):
            status = Status.PASS if returned else Status.FAIL
            message = "" if returned else f"{self.name} returned False."
            returned = Verdict(status=status, kind=None if returned else Kind.ERROR, message=message)
        if not isinstance(returned, Verdict):
            raise OptionError(
                f"The backend function {self.name} returned {returned!r}; it must return True, False or a Verdict."
            )
        said = returned.fingerprint or (fingerprint(returned.message) if returned.failed else "")
        verdict = replace(returned, seconds=returned.seconds or seconds, fingerprint=said)
        return _Returned(exit_code=0, seconds=seconds, verdict=verdict)

    def judge(self, outcome: Outcome) -> Verdict:
        """The verdict that the function returned."""
        if not isinstance(outcome, _Returned):
            raise TypeError("an outcome of another backend")
        return outcome.verdict


#: A backend's name, the path of a TOML file, a backend, or a function that compiles.
BackendChoice = str | PathLike[str] | Backend | CompileFunction


def chosen_backend(backend: BackendChoice, options: Mapping[str, object]) -> Backend:
    """Create the backend, or return a given object. Raises OptionError for an unknown backend or a wrong option."""
    if isinstance(backend, str | PathLike):
        return registry.make(fspath(backend), texts(options))
    if options:
        raise OptionError("options are for a backend by name or file; one of your own, or a function, has its own.")
    if hasattr(backend, "compile") and hasattr(backend, "describe"):
        return cast("Backend", backend)
    if callable(backend):
        return CallableBackend(backend)
    raise OptionError(f"{backend!r} is no backend: give a name, the path of a TOML file, a Backend or a function.")


def texts(options: Mapping[str, object]) -> dict[str, str]:
    """The options as strings, in the form that `--option` takes."""
    return {key: option_text(value) for key, value in options.items()}


def started_from(backend: Backend) -> Reproduce | None:
    """The field `reproduce`, with absolute paths; None for an installed backend."""
    if isinstance(backend, CommandBackend):
        return {"folder": str(backend.folder)}
    if isinstance(backend, TomlBackend) and not registry.is_shipped(backend.file):
        return {"backend": str(backend.file)}
    return None


class BackendState(StrEnum):
    """Whether a backend can be used, the best state first."""

    USABLE = "usable"
    #: Unknown, because the backend requires options.
    WITH_OPTIONS = "usable with options"
    #: Its compiler is not installed or does not run here.
    NOT_USABLE = "not usable"
    #: The backend's own code fails.
    BROKEN = "broken"


@dataclass(frozen=True, kw_only=True)
class BackendInfo:
    """An installed backend. `reason` says why it is not usable without options, or at all; `description` is None then.

    `isolated`: a service can confine its compiles.
    """

    name: str
    state: BackendState
    summary: str = ""
    reason: str = ""
    options: tuple[OptionHelp, ...] = ()
    isolated: bool = False
    description: Description | None = None

    @classmethod
    def of(cls, backend: registry.LoadedBackend | registry.BrokenBackend) -> Self:
        """What the backend is; it may start its tool to read its version."""
        if isinstance(backend, registry.BrokenBackend):
            return cls(name=backend.name, state=BackendState.BROKEN, reason=backend.reason)
        description = None
        state, reason = BackendState.USABLE, ""
        try:
            made = backend.factory({})
            if complaint := made.check():
                raise BackendUnusableError(complaint)
            description = made.describe()
        except BackendUnusableError as error:
            state, reason = BackendState.NOT_USABLE, str(error)
        except OptionError as error:  # a required option is missing
            state, reason = BackendState.WITH_OPTIONS, str(error)
        except Exception as error:  # a third party's bug must not hide the others
            state, reason = BackendState.BROKEN, f"{type(error).__name__}: {error}"
        return cls(
            name=backend.name,
            state=state,
            summary=backend.summary,
            reason=reason,
            options=backend.options,
            isolated=backend.isolated,
            description=description,
        )


def backends() -> tuple[BackendInfo, ...]:
    """All installed backends, usable ones first. Some backends start their tool to read its version."""
    with ThreadPoolExecutor(max_workers=4) as pool:
        found = list(pool.map(BackendInfo.of, registry.available().values()))
    order = list(BackendState)
    return tuple(sorted(found, key=lambda it: order.index(it.state)))
