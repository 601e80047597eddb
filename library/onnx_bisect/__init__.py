"""Find every part of an ONNX model that a compiler refuses, and prove that nothing else is wrong (docs/library.md)."""

import os

# onnxruntime's official builds send telemetry to Microsoft by default; models are confidential
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

from onnx_bisect.callable_backend import CompileFunction
from onnx_bisect.cancellation import Cancellation
from onnx_bisect.client import Client, RemoteJob
from onnx_bisect.diagnosing import diagnose
from onnx_bisect.events import (
    Event,
    Found,
    Note,
    PlanMade,
    ProbeAnswered,
    ProbeStarted,
    Progress,
    SearchEnded,
    SearchStarted,
)
from onnx_bisect.fixing import FixResult, fix
from onnx_bisect.job_documents import JobTerms, RemoteTarget
from onnx_bisect.listing import BackendInfo, BackendState, backends
from onnx_bisect.models import extract, inspect
from onnx_bisect.parts import Part, parts_table
from onnx_bisect.regressing import regress
from onnx_bisect.remote_repair import RemoteRepair, RepairTerms
from onnx_bisect.result import Cause, Certificate, Culprit, NeedsContext, NoReproducerError, Result, TriedOptions
from onnx_bisect.schemas import overview_schema, report_schema
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
    "BackendInfo",
    "BackendState",
    "BackendUnusableError",
    "Cancellation",
    "Cause",
    "CauseState",
    "Certainty",
    "Certificate",
    "CertificateStatus",
    "Client",
    "CompileFunction",
    "CompilesAfter",
    "Culprit",
    "CulpritKind",
    "CutError",
    "Ending",
    "Event",
    "Exactness",
    "FixResult",
    "Found",
    "Hints",
    "Inspection",
    "JobTerms",
    "Kind",
    "ModelError",
    "NeedsContext",
    "NoReproducerError",
    "Note",
    "OnnxBisectError",
    "OptionError",
    "Part",
    "PartsTable",
    "PlanMade",
    "ProbeAnswered",
    "ProbeStarted",
    "Progress",
    "RemoteJob",
    "RemoteRepair",
    "RemoteTarget",
    "RepairTerms",
    "Result",
    "SearchEnded",
    "SearchStarted",
    "SharedCause",
    "ShortageError",
    "Stats",
    "Status",
    "Target",
    "Tolerance",
    "TriedOptions",
    "Verdict",
    "VersionHistory",
    "backends",
    "diagnose",
    "extract",
    "fix",
    "inspect",
    "overview_schema",
    "parts_table",
    "regress",
    "report_schema",
]
