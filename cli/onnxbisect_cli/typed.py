"""How the user named model and target, for the commands that a report suggests."""

from onnxbisect.report.next_steps import Typed, bound_inputs
from onnxbisect_cli.bisection import Request


def typed(request: Request, files: str) -> Typed:
    """The words of a `run` command that other commands repeat; `files` is the report's folder, or empty."""
    words = [] if request.backend is None else ["--backend", request.backend]
    for key, value in request.options.items():
        words += ["--option", f"{key}={value}"]
    if request.calibration is not None:  # answers are kept by samples: without them the diagnosis would begin anew
        words += ["--calibration", str(request.calibration)]
    inputs = bound_inputs(request.input_shapes, request.input_values)
    return Typed(model=str(request.model), target=words, inputs=inputs, command=request.command or (), files=files)
