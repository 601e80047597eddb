"""Checks a failing probe: is it a valid model, or did the cut break it?

If onnx.checker or onnxruntime refuses a probe and accepts the whole model, the cut broke the probe, and the compiler's
answer is no evidence. What they also refuse in the whole model (custom ops, unsupported features) is ignored.
"""

from functools import cached_property
from pathlib import Path

from onnxbisect.model.session import Session
from onnxbisect.model.wording import brief
from onnxbisect.unitset import UnitSet, size

#: Most nodes of a probe that is loaded into onnxruntime; larger ones take too long.
SMALL = 64


class Validity:
    """Both checks for pieces of one model; loads the whole model only when a piece is refused."""

    def __init__(self, model: Path, everything: UnitSet) -> None:
        self._model = model
        self._everything = everything

    def objection(self, units: UnitSet, probe: Path) -> str | None:
        """Why the probe file is invalid, as a sentence; None if it is valid."""
        if units == self._everything:
            return None
        refusal = checker_refusal(probe)
        if refusal is not None and self._whole_is_checked:
            return f"onnx.checker refuses this cut, though not the whole model: {refusal}"
        if size(units) <= SMALL:
            refusal = runtime_refusal(probe)
            if refusal is not None and self._whole_is_loaded:
                return f"onnxruntime refuses this cut, though not the whole model: {refusal}"
        return None

    @cached_property
    def _whole_is_checked(self) -> bool:
        return checker_refusal(self._model) is None

    @cached_property
    def _whole_is_loaded(self) -> bool:
        return runtime_refusal(self._model) is None


def checker_refusal(path: Path) -> str | None:
    """onnx.checker's error for the file, None if there is none. By path, so that external data may be large."""
    import onnx

    try:
        onnx.checker.check_model(str(path))
    except Exception as error:  # it raises its own errors, protobuf's and RuntimeError
        return brief(str(error)) or type(error).__name__
    return None


def runtime_refusal(path: Path) -> str | None:
    """onnxruntime's error when it loads the file on the CPU without optimisation; None if there is none."""
    import onnx

    try:
        Session(onnx.load(path, load_external_data=False), path.parent)
    except Exception as error:  # its exception classes are not public
        return brief(str(error)) or type(error).__name__
    return None
