"""Writes input samples beside every probe, for targets that quantise or compare outputs."""

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
    """The values of one model's tensors in each of `count` samples: the user's, or generated ones.

    `digest` is that of the user's samples, empty without; it is part of the identity of verdicts.
    """

    def __init__(self, model: Model, given: Calibration | None, count: int) -> None:
        self._own = given is not None
        self.digest = "" if given is None else given.digest
        self._values = TensorValues(model, given=() if given is None else given.samples, count=count)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user about the samples."""
        return (*(() if self._own else (_MADE_UP,)), *self._values.notes)

    def write(self, probe: Path, renamed: Mapping[str, str]) -> None:
        """Write the samples of a probe beside it. Not thread-safe."""
        write_samples(probe, renamed, self._values, own=self._own)


def sampling(model: Model, calibration: Path | None, count: int, backend: Backend | None = None) -> Sampling | None:
    """The samples for a target that needs `count` of them beside each probe; None if it needs none.

    They are the user's at `calibration`, or those that the backend's options name, or generated. Raises OptionError if
    they do not fit the model.
    """
    if not count:
        return None
    inputs = model.proto.graph.input
    if calibration is not None:
        return Sampling(model, read_calibration(calibration, inputs, count, bound=model.input_values), count)
    named = None if backend is None else own_samples(backend, inputs, count)
    return Sampling(model, None if named is None else calibration_of(named), count)
