"""A Python function as a compiler: `my_callable(path) -> bool | Verdict` is the whole integration."""

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

#: Given the path of a model, whether it compiles. A Verdict says more: in which way it fails, and what the log names.
CompileFunction = Callable[[Path], bool | Verdict]


@dataclass(frozen=True, kw_only=True)
class _Returned(Outcome):
    """An outcome that was judged already."""

    verdict: Verdict


class CallableBackend:
    """Calls the function in a thread of this process, with a file that is deleted when it returns.

    A function that raises gives no answer about that probe. It cannot be interrupted, so neither time limits nor
    cancelling end a call; a call that runs on while its search has ended goes unheard.
    """

    options: dict[str, Any] = {}  # noqa: RUF012 - the protocol's attribute, never written to

    def __init__(self, compiles: CompileFunction) -> None:
        self._compiles = compiles
        self.name = getattr(compiles, "__name__", type(compiles).__name__)

    def describe(self) -> Description:
        """Nothing is known of the function; its answers are not kept for other searches (`diagnose`)."""
        return Description(tool=self.name, version="", dynamic_shapes=True)

    def check(self) -> str | None:
        """A function is always there."""
        return None

    def compile(self, probe: Path, workdir: Path, limits: Limits) -> Outcome:
        """Call the function."""
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
        """What the function returned."""
        if not isinstance(outcome, _Returned):
            raise TypeError("an outcome of another backend")
        return outcome.verdict
