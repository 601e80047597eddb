"""Compilers as a third party's package brings them: one whose every word is hostile, and two that take their time."""

import time
from pathlib import Path
from typing import Any

from onnxbisect_backends.commands.toml_backend import TomlBackend
from onnxbisect_backends.contract import Outcome
from onnxbisect_backends.simulator.backend import SimulatorOptions, WhitelistBackend


class Hostile(TomlBackend):
    """<img src=x onerror=alert('summary')>"""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(Path(__file__).with_name("hostile.toml"), options)


class Slow(WhitelistBackend):
    """The whitelist backend, in a queue of its own: its `delay` keeps nobody else waiting."""

    name = "slow"


class GatedOptions(SimulatorOptions):
    """`gate` is a folder of the test's."""

    gate: Path = Path()


class Gated(WhitelistBackend):
    """The whitelist backend, whose first compile goes through; all others wait until somebody makes `gate/open`."""

    name = "gated"
    #: It makes a file of the test's, which nothing that is isolated can.
    isolated = False
    Options = GatedOptions

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__({name: value for name, value in options.items() if name != "gate"})
        self._gate = Path(options.get("gate", "."))

    def compile(self, *asked: Any) -> Outcome:
        """As the whitelist backend does, later."""
        try:
            (self._gate / "passed").mkdir()
        except FileExistsError:
            while not (self._gate / "open").exists():
                time.sleep(0.05)
        return super().compile(*asked)
