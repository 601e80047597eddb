"""onnxruntime as the engine uses it: optimisation off, little memory, and an end to every run."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np
import onnx

#: Seconds after which a run is ended: a Loop may have been told to go on for ever.
_SECONDS = 30.0
#: The share of the seconds left that one run may take: others are to come.
_SHARE = 0.5


class Clock:
    """Seconds for several runs together, from now on."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds until there is no more running."""
        return self._end - time.monotonic()


class Session:
    """A model that is ready to run on the CPU, its external data below `folder`. Raises what onnxruntime raises.

    `timed_out` tells whether the last run was ended by the clock.
    """

    def __init__(self, model: onnx.ModelProto, folder: Path) -> None:
        import onnxruntime as ort  # here, for whoever reads models and runs none

        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        # Nodes that only look at a tensor run as soon as it is there, so that it can be freed.
        options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
        options.enable_cpu_mem_arena = False
        options.enable_mem_pattern = False
        options.log_severity_level = 4
        options.add_session_config_entry("session.disable_prepacking", "1")
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
        self._session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        self.timed_out = False

    @property
    def outputs(self) -> dict[str, str]:
        """Name and type of each output, as onnxruntime spells it."""
        return {output.name: output.type for output in self._session.get_outputs()}

    def run(self, names: Sequence[str], feeds: Mapping[str, np.ndarray], clock: Clock) -> list[Any]:
        """The named outputs, in order; ended after a share of what is left on the clock."""
        self.timed_out = False
        import onnxruntime as ort

        options = ort.RunOptions()

        def end() -> None:
            self.timed_out = True
            options.terminate = True

        timer = Timer(max(0.0, min(_SECONDS, clock.left * _SHARE)), end)
        timer.daemon = True
        timer.start()
        try:
            outputs: list[Any] = self._session.run(list(names), dict(feeds), options)
            return outputs
        finally:
            timer.cancel()
            timer.join()
