"""Samples of a probe's input values: files beside the probe, written by the driver where a target wants them.

`model.onnx` has its samples in `model.samples/0.npz`, `1.npz`, …: each maps the probe's input names, as they are in
the probe file, to arrays of their dtype and full shape.
"""

from pathlib import Path


def samples_folder(probe: Path) -> Path:
    """Where the samples of a probe are, or would be."""
    return probe.with_suffix(".samples")


def samples_of(probe: Path) -> tuple[Path, ...]:
    """The sample files of a probe in order; none where the driver wrote none."""
    return tuple(sorted(samples_folder(probe).glob("*.npz"), key=lambda path: int(path.stem)))
