"""Qualcomm's compiler alone, for the Python of its toolchain: `ask_qnn.py MODEL`; exit status 0 if the HTP takes it."""

import sys

import onnxruntime
import onnxruntime_qnn

PROVIDER = "QNNExecutionProvider.virtual"

onnxruntime.register_execution_provider_library(PROVIDER, onnxruntime_qnn.get_library_path())
options = onnxruntime.SessionOptions()
options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
options.add_session_config_entry("ep.context_enable", "1")
options.add_session_config_entry("ep.context_file_path", "context.onnx")
options.add_provider_for_devices(
    [device for device in onnxruntime.get_ep_devices() if device.ep_name == PROVIDER],
    {"backend_type": "htp", "soc_model": "SM8550", "enable_htp_fp16_precision": "1"},
)
try:
    onnxruntime.InferenceSession(sys.argv[1], options, enable_fallback=0)
except Exception as error:  # onnxruntime's exceptions have no base of their own
    sys.exit(str(error))
