"""The remedies that `onnx-bisect run` suggests at its end, with the command that applies them."""

import shlex

from onnxbisect.input_value import written
from onnxbisect.job import Job
from onnxbisect.remedies import Advisor, Candidate, Found
from onnxbisect.report.text import clip
from onnxbisect.rewrites import Exactness, installed
from onnxbisect_cli.bisection import Request

#: Most culprits for which hints are computed, because more would take long; and most lines.
_MOST_CULPRITS, _MOST_LINES = 50, 6


def fix_hint(job: Job | None, request: Request) -> list[str]:
    """A line for each culprit op to which a rule applies, then the command; empty if no rule applies.

    Only the first place of each culprit is considered, no compiler is called and no outputs are compared.
    """
    if job is None:
        return []
    if (found := job.compiles_after) is not None and found.options:
        words = [word for key, value in found.options.items() for word in ("--option", f"{key}={value}")]
        return [f"Compile it with these options of its target: {shlex.join(words)}"]
    if (found := job.compiles_after) is not None:
        allow = [] if found.exactness in (Exactness.EXACT, Exactness.ROUNDING) else ["--allow", found.exactness]
        return [f"To write that file, with a proof of its numbers: {_command(request, *allow)}"]
    remedies: dict[str, str] = {}
    for candidate in _candidates(job):
        remedies.setdefault(candidate.op, f"{', '.join(candidate.gives) or 'a constant'} ({candidate.exactness})")
    if not remedies:
        return []
    lines = [
        f"{clip(op, 60)}: replaceable by {clip(remedy, 120)}" for op, remedy in list(remedies.items())[:_MOST_LINES]
    ]
    if len(remedies) > _MOST_LINES:
        lines.append(f"and {len(remedies) - _MOST_LINES} more ops")
    return [*lines, f"To try these and prove the result: {_command(request)}"]


def _candidates(job: Job) -> tuple[Candidate, ...]:
    found = Found(job=job)
    if not found.culprits or len(found.culprits) > _MOST_CULPRITS:
        return ()
    advisor = Advisor(found, installed().rules, Exactness.ROUNDING)
    advisor.add_places(found, examples=True)
    return advisor.advise().chosen


def _command(request: Request, *more: str) -> str:
    """The `onnx-bisect fix` command for the same target."""
    words = ["onnx-bisect", "fix", str(request.model), *more]
    if request.backend is not None:
        words += ["--backend", request.backend]
    for key, value in request.options.items():
        words += ["--option", f"{key}={value}"]
    for name, dims in request.input_shapes.items():
        words += ["--input-shape", f"{name}={','.join(map(str, dims))}"]
    words += [f"--input-value={name}={written(value)}" for name, value in request.input_values.items()]
    if request.calibration is not None:  # answers are kept by samples: without them the diagnosis would begin anew
        words += ["--calibration", str(request.calibration)]
    return shlex.join([*words, *(["--", *request.command] if request.command else [])])
