"""Two compilers as a third party's package brings them: one whose every word is hostile, and one that takes long."""

from pathlib import Path

from onnxbisect_backends.toml_backend import TomlBackend
from onnxbisect_backends.whitelist import WhitelistBackend


class Hostile(TomlBackend):
    """<img src=x onerror=alert('summary')>"""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(Path(__file__).with_name("hostile.toml"), options)


class Slow(WhitelistBackend):
    """The whitelist backend, in a queue of its own: its `delay` keeps nobody else waiting."""

    name = "slow"
