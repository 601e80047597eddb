"""Doubts a failing probe: is it a valid model at all, or did the cut break it?

A probe that onnx.checker or onnxruntime refuse though they accept the whole model was broken by cutting; what a
compiler says of it is no evidence. What they refuse in the whole model too (custom ops, features that they lack) is
the model's own, and they are not heard.
"""

from functools import cached_property
from pathlib import Path

from onnxbisect.unitset import UnitSet, size

#: Probes of more nodes are not loaded into onnxruntime: there, one bad cut among many nodes hides in a long start.
SMALL = 64


class Validity:
    """The two referees for pieces of one model; loads the whole model only when a piece is refused."""

    def __init__(self, model: Path, everything: UnitSet) -> None:
        self._model = model
        self._everything = everything

    def objection(self, units: UnitSet, probe: Path) -> str | None:
        """Why the probe file is no fair question, in a sentence; None where it is one."""
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
    """What onnx.checker says against the file, None if nothing. By path, so that external data may be large."""
    import onnx

    try:
        onnx.checker.check_model(str(path))
    except Exception as error:  # it raises its own, protobuf's and plain RuntimeErrors
        return _first_line(error)
    return None


def runtime_refusal(path: Path) -> str | None:
    """What onnxruntime says against loading the file on the CPU, optimisation off; None if nothing."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exception classes are not public
        return _first_line(error)
    return None


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
