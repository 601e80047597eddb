"""Input samples beside every probe, for targets that want them: quantisers, and those that compare numbers."""

from collections.abc import Mapping
from pathlib import Path

from onnxbisect.model import Model
from onnxbisect.model.values import TensorValues
from onnxbisect_backends.calibration import read_calibration
from onnxbisect_backends.samples import write_samples

_MADE_UP = (
    "The input samples that the compiler was given come from made-up inputs of the model; "
    "--calibration gives it your own."
)


class Sampling:
    """Knows what the cut tensors of one model are in each of `count` samples: the user's, or made up.

    `digest` is that of the user's samples, empty without: verdicts rest on them.
    """

    def __init__(self, model: Model, calibration: Path | None, count: int) -> None:
        """Raises OptionError where the user's files do not fit the model."""
        self.digest = ""
        self._own = calibration is not None
        if calibration is None:
            self._values = TensorValues(model, count=count)
        else:
            found = read_calibration(calibration, model.proto.graph.input, count)
            self.digest = found.digest
            self._values = TensorValues(model, given=found.samples)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user must know of the samples that were written."""
        return (*(() if self._own else (_MADE_UP,)), *self._values.notes)

    def write(self, probe: Path, renamed: Mapping[str, str]) -> None:
        """Write the samples of a probe beside it. One thread at a time."""
        write_samples(probe, renamed, self._values)


def sampling(model: Model, calibration: Path | None, count: int) -> Sampling | None:
    """What writes samples for a target that wants `count` of them; None where it wants none."""
    return Sampling(model, calibration, count) if count else None
