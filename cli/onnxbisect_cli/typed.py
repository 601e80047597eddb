"""How the user named model and target, for the commands that a report suggests."""

from onnxbisect.input_value import written
from onnxbisect.report.next_steps import Typed
from onnxbisect_cli.bisection import Request


def typed(request: Request, files: str) -> Typed:
    """The words of a `run` command that other commands repeat; `files` is the report's folder, or empty."""
    words = [] if request.backend is None else ["--backend", request.backend]
    for key, value in request.options.items():
        words += ["--option", f"{key}={value}"]
    for name, dims in request.input_shapes.items():
        words += ["--input-shape", f"{name}={','.join(map(str, dims))}"]
    words += [f"--input-value={name}={written(value)}" for name, value in request.input_values.items()]
    if request.calibration is not None:  # answers are kept by samples: without them the diagnosis would begin anew
        words += ["--calibration", str(request.calibration)]
    return Typed(model=str(request.model), target=words, command=request.command or (), files=files)
