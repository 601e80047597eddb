"""The commands of a compile as a script, for the vendor's support."""

from collections.abc import Sequence
from pathlib import Path

_HEAD = "#!/bin/sh\n# What the compiler was called with. Run it in this folder.\nset -e\n"


def write_script(folder: Path, commands: Sequence[str]) -> None:
    """Write `reproduce.sh`, with one command per line."""
    script = folder / "reproduce.sh"
    script.write_text(_HEAD + "".join(f"{command}\n" for command in commands), encoding="utf-8")
    script.chmod(0o755)
