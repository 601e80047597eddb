"""Changes of the whole file that a repair tries before it searches: those that answer an error of the preflight."""

from collections.abc import Iterator

from onnxbisect.file_remedies import Candidate, candidates
from onnxbisect.preflight import Severity, settled_by
from onnxbisect.rewrites import Exactness
from onnxbisect_backends.probing.forked import forked
from onnxbisect_backends.probing.inquiry import inquire
from onnxbisect_backends.probing.intake import Intake
from onnxbisect_cli.bisection import Request, backend_of

_ORDER = list(Exactness)


def changed_files(request: Request, intake: Intake, allow: Exactness) -> Iterator[Candidate]:
    """At most four files, the one that changes least first; none where the preflight finds nothing that most compilers
    refuse. Each costs a compile of the whole model.
    """
    inquiry = inquire(intake, backend_of(request), request.calibration)
    settled = settled_by(inquiry.reader.dressing)
    if any(it.severity is Severity.ERROR and it.id not in settled for it in inquiry.findings):
        for candidate in candidates(intake.model, inquiry.findings, inquiry.reader, forked):
            if _ORDER.index(candidate.exactness) <= _ORDER.index(allow):
                yield candidate
