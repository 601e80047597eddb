"""Names of ops, of the culprits' folders and of the model's file."""

from collections.abc import Iterable
from pathlib import Path

from onnxbisect.report.text import slug


def culprit_dir_name(number: int, ops: Iterable[str]) -> str:
    """The folder of culprit `number`, starting at 1, below `culprits/`: `02-ReduceMean-BatchNormalization`."""
    return f"{number:02d}-{slug('-'.join(ops))}"


def path_below(path: Path) -> str | None:
    """The path as it was given, if it is one below the folder of the command; None for a bare name, and elsewhere."""
    below = not path.is_absolute() and ".." not in path.parts and len(path.parts) > 1
    return path.as_posix() if below else None


def op_name(domain: str, op_type: str) -> str:
    """`Gather`, or `com.example::Twirl` outside the default domain."""
    return op_type if domain in ("", "ai.onnx") else f"{domain}::{op_type}"
