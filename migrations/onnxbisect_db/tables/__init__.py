"""The tables. docs/service.md draws how a job goes through them."""

from onnxbisect_db.tables.access import BrowserSession, Delivery, Endpoint, Token
from onnxbisect_db.tables.base import Base, Leased, Troubled
from onnxbisect_db.tables.culprits import CompilerVersion, CulpritVerdict, KnownCulprit
from onnxbisect_db.tables.work import (
    Event,
    Job,
    KeptVerdict,
    Label,
    Lease,
    Measurement,
    Probe,
    Queue,
    Search,
    StoredModel,
    UnneededFile,
    Upload,
    Worker,
)

__all__ = [
    "Base",
    "BrowserSession",
    "CompilerVersion",
    "CulpritVerdict",
    "Delivery",
    "Endpoint",
    "Event",
    "Job",
    "KeptVerdict",
    "KnownCulprit",
    "Label",
    "Lease",
    "Leased",
    "Measurement",
    "Probe",
    "Queue",
    "Search",
    "StoredModel",
    "Token",
    "Troubled",
    "UnneededFile",
    "Upload",
    "Worker",
]
