"""The `stand-in` backend, as a third party's package brings one: workers find it by its entry point.

Unlike the whitelist backend it starts a process for each compile, which can be killed.
"""

from collections.abc import Sequence
from pathlib import Path

from onnxbisect_backends.commands.toml_backend import TomlBackend
from onnxbisect_backends.options import OptionHelp


class StandIn(TomlBackend):
    """A compiler in a process of its own that refuses some ops."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(Path(__file__).with_name("stand-in.toml"), options)

    @staticmethod
    def known_options() -> Sequence[OptionHelp]:
        return (
            OptionHelp(name="deny", default="none", help="ops that it refuses, as A-B"),
            OptionHelp(name="delay", default="0", help="seconds that a compile takes"),
        )
