"""The types of other packages that are part of the public interface."""

from onnxbisect.causes.terms import CauseState
from onnxbisect.diagnosis import Certainty, CertificateStatus, CulpritKind
from onnxbisect.errors import (
    BackendUnusableError,
    CutError,
    ModelError,
    OnnxBisectError,
    OptionError,
    ShortageError,
)
from onnxbisect.job import CompilesAfter, Stats, Target
from onnxbisect.preflight import Inspection
from onnxbisect.proof import Tolerance
from onnxbisect.report.parts import PartsTable, SharedCause
from onnxbisect.rewrites import Exactness
from onnxbisect.session import Ending
from onnxbisect.verdict import Hints, Kind, Status, Verdict
from onnxbisect.version_history import VersionHistory

__all__ = [
    "BackendUnusableError",
    "CauseState",
    "Certainty",
    "CertificateStatus",
    "CompilesAfter",
    "CulpritKind",
    "CutError",
    "Ending",
    "Exactness",
    "Hints",
    "Inspection",
    "Kind",
    "ModelError",
    "OnnxBisectError",
    "OptionError",
    "PartsTable",
    "SharedCause",
    "ShortageError",
    "Stats",
    "Status",
    "Target",
    "Tolerance",
    "Verdict",
    "VersionHistory",
]
