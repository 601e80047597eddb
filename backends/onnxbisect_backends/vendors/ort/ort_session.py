"""A script for a process of its own: create an onnxruntime session on the CPU, and report the result.

`ort_session.py MODEL LEVEL`, where LEVEL names a member of `onnxruntime.GraphOptimizationLevel` without `ORT_`. Exit
status 0: the session was created. 3: refused, with the reason on standard error. Anything else: onnxruntime was not
called.
"""

import sys

import onnxruntime

#: onnxruntime computes constants at session creation: a ConstantOfShape of 300 bytes may make gigabytes. Larger ones
#: stay nodes, which does not change whether a session can be created.
_LARGEST_CONSTANT = 64 << 20
_NO_QUESTION = 2
_REFUSED = 3


def main(model: str, level: str) -> int:
    """Create the session; returns the exit status."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{level}")
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    largest = str(_LARGEST_CONSTANT)
    options.add_session_config_entry("optimization.constant_folding_max_output_size_in_bytes", largest)
    try:
        onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions have no base of their own
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return _NO_QUESTION if type(error).__name__ == "NoSuchFile" else _REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
