"""Run as a script, in a process of its own: create an onnxruntime session on the CPU, and say what came of it.

`ort_session.py MODEL LEVEL`, where LEVEL names a member of `onnxruntime.GraphOptimizationLevel` without `ORT_`.
Exit status 0: the session stands. 1: refused, the reason on standard error. 2: the file is not there to be read.
"""

import sys

import onnxruntime


def main(model: str, level: str) -> int:
    """Create the session; exit status."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{level}")
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    try:
        onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions have no base of their own
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2 if type(error).__name__ == "NoSuchFile" else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
