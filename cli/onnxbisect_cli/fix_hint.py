"""What `onnx-bisect run` says in the end of remedies: which rule would be tried, and the command that does it."""

import shlex

from onnxbisect.job import Job
from onnxbisect.remedies import Advisor, Candidate, Found
from onnxbisect.report.text import clip
from onnxbisect.rewrites import Exactness, installed
from onnxbisect_cli.bisection import Request

#: Culprits beyond which nothing is said, since it would take long; and lines at most.
_MOST_CULPRITS, _MOST_LINES = 50, 6


def fix_hint(job: Job | None, request: Request) -> list[str]:
    """A line for each culprit op that a rule takes, then the command; nothing where no rule takes any.

    Only the first place of each culprit is looked at, no compiler is asked and no numbers are compared.
    """
    if job is None:
        return []
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
    """The same target asked by `onnx-bisect fix`."""
    words = ["onnx-bisect", "fix", str(request.model), *more]
    if request.backend is not None:
        words += ["--backend", request.backend]
    for key, value in request.options.items():
        words += ["--option", f"{key}={value}"]
    for name, dims in request.input_shapes.items():
        words += ["--input-shape", f"{name}={','.join(map(str, dims))}"]
    return shlex.join([*words, *(["--", *request.command] if request.command else [])])
