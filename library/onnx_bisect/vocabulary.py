"""The types of other packages that are part of the public interface."""

from onnxbisect.causes.terms import CauseState
from onnxbisect.diagnosis import Certainty, CertificateStatus, CompilesAfter, CulpritKind, Stats, Target
from onnxbisect.errors import BackendUnusableError, CutError, ModelError, OnnxBisectError, OptionError, ShortageError
from onnxbisect.exactness import Exactness
from onnxbisect.preflight import Inspection
from onnxbisect.report.history import VersionHistory
from onnxbisect.report.parts import PartsTable, SharedCause
from onnxbisect.session import Ending
from onnxbisect.terms import PrecisionTerms, RepairTerms, Tolerance
from onnxbisect.verdict import Hints, Kind, Status, Verdict

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
    "PrecisionTerms",
    "RepairTerms",
    "SharedCause",
    "ShortageError",
    "Stats",
    "Status",
    "Target",
    "Tolerance",
    "Verdict",
    "VersionHistory",
]
