"""A script for the toolchain's Python: run a model on the emulator of the Hexagon HTP, on this machine's processor.

`qnn_run.py MODEL SAMPLES OUT OPTIONS`: SAMPLES is a folder of `N.npz` keyed by the model's inputs, OUT the folder of
`N.npz` to write, keyed by the place of each output, OPTIONS the provider's options as a JSON object. Exit status 0:
all samples were run. 3: the model was refused or failed, with the reason on standard error. Anything else: QNN was not
called.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import onnxruntime_qnn

_PROVIDER = "QNNExecutionProvider"
_LIBRARY = "libQnnHtp.so"
_NO_QUESTION = 2
_REFUSED = 3


def main(model: str, samples: str, out: str, provider_options: str) -> int:
    """Run each sample; returns the exit status."""
    onnxruntime.register_execution_provider_library(_PROVIDER, onnxruntime_qnn.get_library_path())
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == _PROVIDER][:1]
    if not devices:
        print("onnxruntime shows no QNN device", file=sys.stderr)
        return _NO_QUESTION
    library = str(Path(onnxruntime_qnn.__path__[0]) / _LIBRARY)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    options.add_provider_for_devices(devices, {"backend_path": library, **json.loads(provider_options)})
    try:
        session = onnxruntime.InferenceSession(model, options, enable_fallback=0)
        names = [output.name for output in session.get_outputs()]
        Path(out).mkdir()
        for number in range(len(list(Path(samples).glob("*.npz")))):
            with np.load(Path(samples) / f"{number}.npz") as arrays:
                values = session.run(names, dict(arrays))
            np.savez(Path(out) / f"{number}.npz", **{str(place): value for place, value in enumerate(values)})
    except Exception as error:  # onnxruntime's exceptions have no base of their own
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return _REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
