"""What a culprit's folder is called."""

from collections.abc import Iterable

from onnxbisect.report.text import slug


def culprit_dir_name(number: int, ops: Iterable[str]) -> str:
    """Where culprit `number` (the first is 1) is kept below `culprits/`: `02-ReduceMean-BatchNormalization`."""
    return f"{number:02d}-{slug('-'.join(ops))}"
