"""Names of ops and of the culprits' folders."""

from collections.abc import Iterable

from onnxbisect.report.text import slug


def culprit_dir_name(number: int, ops: Iterable[str]) -> str:
    """The folder of culprit `number`, starting at 1, below `culprits/`: `02-ReduceMean-BatchNormalization`."""
    return f"{number:02d}-{slug('-'.join(ops))}"


def op_name(domain: str, op_type: str) -> str:
    """`Gather`, or `com.example::Twirl` outside the default domain."""
    return op_type if domain in ("", "ai.onnx") else f"{domain}::{op_type}"
