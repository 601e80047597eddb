"""A simulated compiler in two versions: the second takes Sin and refuses Cos, and both refuse Abs."""

import os
from dataclasses import replace

from onnxbisect_backends.contract import Description
from onnxbisect_backends.simulator.backend import WhitelistBackend

_REFUSED = {"1": "Sin,Abs", "2": "Cos,Abs"}


class Versioned(WhitelistBackend):
    """A simulated compiler of the version that `SIMULATED_VERSION` says."""

    def __init__(self, options: dict[str, str]) -> None:
        self._is = os.environ.get("SIMULATED_VERSION", "1")
        super().__init__({**options, "deny": _REFUSED[self._is]})

    def describe(self) -> Description:
        """As the version that is installed."""
        return replace(super().describe(), tool="simulated", version=self._is)
