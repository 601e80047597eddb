"""onnxruntime as the engine uses it: optimisation off, little memory, and an end to every run."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import onnx

from onnxbisect.model.names import with_unique_names

#: Seconds after which a run is ended, as `Clock` counts: a Loop may have been told to go on for ever.
_SECONDS = 30.0
#: The share of the seconds left that one run may take: others are to come.
_SHARE = 0.5
_TICK = 0.05


class Clock:
    """Seconds for several runs together, from now on: those that pass, or those of the processor where it is busy with
    other things. What is found out about a model must not depend on how busy the machine is.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began = time.monotonic(), time.process_time()

    @property
    def left(self) -> float:
        """Seconds until there is no more running."""
        wall, processor = self._began
        return self._seconds - min(time.monotonic() - wall, time.process_time() - processor)


class Session:
    """A model that is ready to run on the CPU, its external data below `folder`. Raises what onnxruntime raises.

    `timed_out` tells whether the last run was ended by the clock.
    """

    def __init__(self, model: onnx.ModelProto, folder: Path) -> None:
        import onnxruntime as ort  # here, since processes that run no models do without it

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
        content = with_unique_names(model).SerializeToString()
        self._session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
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

        own, done = Clock(min(_SECONDS, clock.left * _SHARE)), Event()

        def end() -> None:
            while not done.wait(max(own.left, _TICK)):
                if own.left <= 0:
                    self.timed_out = True
                    options.terminate = True
                    return

        timer = Thread(target=end, daemon=True)
        timer.start()
        try:
            outputs: list[Any] = self._session.run(list(names), dict(feeds), options)
            return outputs
        finally:
            done.set()
            timer.join()
