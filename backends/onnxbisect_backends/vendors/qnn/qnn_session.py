"""A script for the toolchain's Python: prepare a model for the Hexagon HTP, and report the result.

`qnn_session.py MODEL CONTEXT OPTIONS`: CONTEXT is the file to write, OPTIONS the provider's options as a JSON object.
Exit status 0: the whole model is prepared. 3: refused, with the reason on standard error. Anything else: QNN was not
called.
"""

import json
import sys

import onnxruntime
import onnxruntime_qnn

#: The provider's name; the ending `.virtual` selects offline preparation.
_PROVIDER = "QNNExecutionProvider.virtual"

_NO_QUESTION = 2
_REFUSED = 3

#: onnxruntime's message for options that QNN refuses, after a source location.
_NOT_MADE = "Error creating execution provider: "


def main(model: str, context: str, provider_options: str) -> int:
    """Create the session that writes the context; returns the exit status."""
    onnxruntime.register_execution_provider_library(_PROVIDER, onnxruntime_qnn.get_library_path())
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == _PROVIDER]
    if not devices:
        print("onnxruntime shows no virtual QNN device", file=sys.stderr)
        return _NO_QUESTION
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 2
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    options.add_session_config_entry("ep.context_enable", "1")
    options.add_session_config_entry("ep.context_embed_mode", "0")
    options.add_session_config_entry("ep.context_file_path", context)
    options.add_provider_for_devices(devices, json.loads(provider_options))
    try:
        # the fallback would retry on the CPU if the provider cannot be created
        onnxruntime.InferenceSession(model, options, enable_fallback=0)
    except Exception as error:  # onnxruntime's exceptions have no base of their own
        kind, said = type(error).__name__, str(error)
        not_made = kind == "RuntimeError" and _NOT_MADE in said
        print(f"{kind}: {said.partition(_NOT_MADE)[2] if not_made else said}", file=sys.stderr)
        return _NO_QUESTION if not_made or kind == "NoSuchFile" else _REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
