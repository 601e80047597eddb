"""Jobs as workers leave them: written through the database's own steps, with reports of diagnoses made by hand."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from onnxbisect.diagnosis import Certificate, Culprit
from onnxbisect.model.model import Model
from onnxbisect.report import network_file
from onnxbisect.report.document import document
from onnxbisect.report.files import culprit_dirs
from onnxbisect.report.graph import network_of
from onnxbisect.verdict import Status
from onnxbisect_db import models, searches
from onnxbisect_db.states import Stage
from onnxbisect_db.tables import Job
from onnxbisect_worker.service import Service
from support.db.scenes import asks, new_job, plan, prepare, read, take
from support.engine.report_factory import chain, job_of, single

NET = chain(["Relu", "Exp", "Tanh", "Erf"])
ONNX = b"\x08\x08 a culprit's model"
LOG = b"ERROR: no lowering for <Exp>\n"


def uploaded(service: Service, content: bytes = b"a model", *, tenant: str = "", name: str = "net.onnx") -> str:
    """A model that the tenant has; its SHA-256."""
    stored = service.files.put([content])
    with service.database.transaction() as session:
        models.keep(session, tenant=tenant, sha256=stored.sha256, name=name, size=stored.size)
    return stored.sha256


def pictured(service: Service, model: Model = NET) -> str:
    """What pictures of the model are made from, stored."""
    return service.files.put([network_file.to_bytes(network_of(model))]).sha256


def running(service: Service, units: Iterable[int] = (1, 2, 3), **wanted: Any) -> Job:
    """A job whose one search asks about these units."""
    job = new_job(service.database, "npu", model_sha256=uploaded(service, tenant=wanted.get("tenant", "")), **wanted)
    prepare(service.database, job.searches[0].id, graph=pictured(service))
    plan(service.database, job.searches[0].id, asks(units))
    return job


def report_on(*culprits: Culprit, model: Model = NET, certificate: Certificate | None = None) -> dict[str, Any]:
    """A report with these culprits."""
    return document(job_of(model, culprits, certificate=certificate))


def refusing_exp() -> dict[str, Any]:
    """A report with one culprit."""
    return report_on(single(NET, [1], "no Exp"))


def done(service: Service, *reports: dict[str, Any], backends: Sequence[str] = (), **wanted: Any) -> Job:
    """A job that has ended with these reports, one for each target."""
    names = backends or [f"npu{number}" for number in range(len(reports))]
    job = new_job(service.database, *names, model_sha256=uploaded(service, tenant=wanted.get("tenant", "")), **wanted)
    for search, report in zip(job.searches, reports, strict=True):
        prepare(service.database, search.id, graph=pictured(service))
        finish(service, search.id, report)
    return read(service.database, job)


def finish(service: Service, search_id: str, report: dict[str, Any]) -> None:
    """From asking to the report, and over."""
    plan(service.database, search_id, [], **{each["id"]: {"ops": each["ops"]} for each in report["culprits"]})
    turn = take(service.database, search_id, Stage.SEARCH)
    with service.database.transaction() as session:
        searches.searched(session, turn)
        searches.release(session, turn)
    written = service.files.put([json.dumps(report).encode()]).sha256
    files = {}
    for folder in culprit_dirs(report):
        files[f"{folder}/model.onnx"] = service.files.put([ONNX]).sha256
        files[f"{folder}/compiler.log"] = service.files.put([LOG]).sha256
    turn = take(service.database, search_id, Stage.REPORT)
    with service.database.transaction() as session:
        searches.finish(session, turn, verdict=Status(report["verdict"]), report=written, files=files)
