"""Uses a Python function `my_callable(path) -> bool | Verdict` as a compiler."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from onnxbisect.errors import OptionError
from onnxbisect.fingerprint import fingerprint
from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect_backends.contract import Description, Limits, Outcome

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
