"""The tables. docs/service.md draws how a job goes through them."""

from onnxbisect_db.tables.access import BrowserSession, Delivery, Endpoint, Token
from onnxbisect_db.tables.base import Base, Leased, Troubled
from onnxbisect_db.tables.culprits import CompilerVersion, Culprit, CulpritVerdict
from onnxbisect_db.tables.machines import Lease, Queue, Worker
from onnxbisect_db.tables.work import Event, Job, KeptVerdict, Label, Model, Probe, Search, UnneededFile, Upload

__all__ = [
    "Base",
    "BrowserSession",
    "CompilerVersion",
    "Culprit",
    "CulpritVerdict",
    "Delivery",
    "Endpoint",
    "Event",
    "Job",
    "KeptVerdict",
    "Label",
    "Lease",
    "Leased",
    "Model",
    "Probe",
    "Queue",
    "Search",
    "Token",
    "Troubled",
    "UnneededFile",
    "Upload",
    "Worker",
]
