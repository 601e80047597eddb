"""Input samples beside every probe, for targets that want them: quantisers, and those that compare numbers."""

from collections.abc import Mapping
from pathlib import Path

from onnxbisect.model import Model
from onnxbisect.model.values import TensorValues
from onnxbisect_backends.calibration import Calibration, calibration_of, read_calibration
from onnxbisect_backends.contract import Backend, own_samples
from onnxbisect_backends.samples import write_samples

_MADE_UP = (
    "The input samples that the compiler was given come from made-up inputs of the model; "
    "--calibration gives it your own."
)


class Sampling:
    """Knows what the cut tensors of one model are in each of `count` samples: the user's, or made up.

    `digest` is that of the user's samples, empty without: verdicts rest on them.
    """

    def __init__(self, model: Model, given: Calibration | None, count: int) -> None:
        self._own = given is not None
        self.digest = "" if given is None else given.digest
        self._values = TensorValues(model, given=() if given is None else given.samples, count=count)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user must know of the samples that were written."""
        return (*(() if self._own else (_MADE_UP,)), *self._values.notes)

    def write(self, probe: Path, renamed: Mapping[str, str]) -> None:
        """Write the samples of a probe beside it. One thread at a time."""
        write_samples(probe, renamed, self._values)


def sampling(model: Model, calibration: Path | None, count: int, backend: Backend | None = None) -> Sampling | None:
    """What writes samples for a target that wants `count` of them; None where it wants none.

    They are the user's at `calibration`, or those that the options of the backend name, or made up. Raises OptionError
    where they do not fit the model.
    """
    if not count:
        return None
    inputs = model.proto.graph.input
    if calibration is not None:
        return Sampling(model, read_calibration(calibration, inputs, count), count)
    named = None if backend is None else own_samples(backend, inputs, count)
    return Sampling(model, None if named is None else calibration_of(named), count)
