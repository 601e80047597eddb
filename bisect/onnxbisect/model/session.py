"""Sessions of onnxruntime without optimisation, with little memory, and with a time limit for each run."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import onnx

from onnxbisect.model.declared_types import in_declared_types
from onnxbisect.model.loadable import loadable
from onnxbisect.model.names import with_unique_names

#: Time limit of a run as measured by `Clock`, because a Loop may be endless.
_SECONDS = 30.0
#: Share of the remaining seconds that one run may take, so that later runs have some left.
_SHARE = 0.5
_TICK = 0.05


class Clock:
    """Counts down seconds that several runs share.

    The smaller of elapsed time and this process's processor time counts, so that results do not depend on how busy the
    machine is.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began = time.monotonic(), time.process_time()

    @property
    def left(self) -> float:
        """The remaining seconds; negative when the time is up."""
        wall, processor = self._began
        return self._seconds - min(time.monotonic() - wall, time.process_time() - processor)


class Session:
    """A model loaded for the CPU, with its external data below `folder`. Raises onnxruntime's exceptions.

    Nodes in float16 and bfloat16 are computed in these types (`in_declared_types`). A model that is newer than
    onnxruntime is loaded at lower versions (`loadable`).

    `timed_out` tells whether the clock ended the last run.
    """

    def __init__(self, model: onnx.ModelProto, folder: Path) -> None:
        import onnxruntime as ort  # here, since processes that run no models do without it

        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        # Run the nodes that only read a tensor's shape or value as soon as possible, so that the tensor can be freed.
        options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
        options.enable_cpu_mem_arena = False
        options.enable_mem_pattern = False
        options.log_severity_level = 4
        options.add_session_config_entry("session.disable_prepacking", "1")
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
        content = in_declared_types(with_unique_names(loadable(model))).SerializeToString()
        self._session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        self.timed_out = False

    @property
    def outputs(self) -> dict[str, str]:
        """The type of each output by name, as onnxruntime spells it."""
        return {output.name: output.type for output in self._session.get_outputs()}

    @property
    def shapes(self) -> dict[str, list[int | str | None]]:
        """The shape of each output by name, as onnxruntime infers it; a dimension may have a name, or nothing."""
        return {output.name: list(output.shape) for output in self._session.get_outputs()}

    def run(self, names: Sequence[str], feeds: Mapping[str, np.ndarray], clock: Clock) -> list[Any]:
        """Values of the named outputs, in order; ends the run after a share of the seconds left on the clock."""
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
