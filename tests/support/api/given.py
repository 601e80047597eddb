"""Jobs as workers leave them: written through the database's own steps, with reports of diagnoses made by hand."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from onnx import TensorProto, helper

from onnxbisect.diagnosis import Alternative, DiagnosedCulprit, DiagnosisProof
from onnxbisect.drawing.graph import network_of
from onnxbisect.drawing.network import network_bytes
from onnxbisect.json_form import to_json
from onnxbisect.model.model import Model
from onnxbisect.precision.plan import PrecisionEnding
from onnxbisect.precision.report import Member, PrecisionReport
from onnxbisect.remedies import document as repairs
from onnxbisect.report.contents import Report
from onnxbisect.report.document import document
from onnxbisect.report.files import culprit_dirs
from onnxbisect.rewrites import Exactness
from onnxbisect.verdict import Status, Verdict
from onnxbisect_db import models, searches
from onnxbisect_db.measurements import PreciseNodes
from onnxbisect_db.states import Stage
from onnxbisect_db.tables import Job
from onnxbisect_service.service import Service
from onnxbisect_worker.coordinating import culprits_of, findings_of
from onnxbisect_worker.repairing import remedies_of
from support.db.scenes import asks, new_job, plan, prepare, read, take
from support.engine.report_factory import chain, job_of, single
from support.remedies import simulated
from support.remedies.simulated import SimulatedCompiler, refusing

NET = chain(["Relu", "Exp", "Tanh", "Erf"])
ONNX = b"\x08\x08 a culprit's model"
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 420"><title>measured</title></svg>'
REPAIRED = b"\x08\x08 a repaired model"
LOG = b"ERROR: no lowering for <Exp>\n"


def uploaded(service: Service, content: bytes = b"a model", *, tenant: str = "", name: str = "net.onnx") -> str:
    """A model that the tenant has; its SHA-256."""
    stored = service.files.put([content])
    with service.database.transaction() as session:
        models.keep(session, tenant=tenant, sha256=stored.sha256, name=name, size=stored.size)
    return stored.sha256


def pictured(service: Service, model: Model = NET) -> str:
    """What pictures of the model are made from, stored."""
    return service.files.put([network_bytes(network_of(model))]).sha256


def running(service: Service, units: Iterable[int] = (1, 2, 3), **wanted: Any) -> Job:
    """A job whose one search asks about these units."""
    job = new_job(service.database, "npu", model_sha256=uploaded(service, tenant=wanted.get("tenant", "")), **wanted)
    prepare(service.database, job.searches[0].id, graph=pictured(service))
    plan(service.database, job.searches[0].id, asks(units))
    return job


def report_on(*culprits: DiagnosedCulprit, model: Model = NET, certificate: DiagnosisProof | None = None) -> Report:
    """A report with these culprits."""
    return document(job_of(model, culprits, certificate=certificate))


def refusing_exp() -> Report:
    """A report with one culprit."""
    return report_on(single(NET, [1], "no Exp"))


def done(service: Service, *reports: Report, backends: Sequence[str] = (), **wanted: Any) -> Job:
    """A job that has ended with these reports, one for each target."""
    names = backends or [f"npu{number}" for number in range(len(reports))]
    job = new_job(service.database, *names, model_sha256=uploaded(service, tenant=wanted.get("tenant", "")), **wanted)
    for search, report in zip(job.searches, reports, strict=True):
        prepare(service.database, search.id, graph=pictured(service))
        finish(service, search.id, report)
    return read(service.database, job)


def finish(service: Service, search_id: str, report: Report) -> None:
    """From asking to the report, and over."""
    plan(service.database, search_id, [], **{each["id"]: {"ops": each["ops"]} for each in report["culprits"]})
    claimed = take(service.database, search_id, Stage.SEARCH)
    with service.database.transaction() as session:
        searches.end_search(session, claimed)
    written = service.files.put([json.dumps(report).encode()]).sha256
    files = {}
    for folder in culprit_dirs(report):
        files[f"{folder}/model.onnx"] = service.files.put([ONNX]).sha256
        files[f"{folder}/compiler.log"] = service.files.put([LOG]).sha256
    claimed = take(service.database, search_id, Stage.REPORT)
    with service.database.transaction() as session:
        found, findings = culprits_of(report, files), findings_of(report)
        verdict = Status(report["verdict"])
        searches.finish(session, claimed, verdict=verdict, report=written, files=files, found=found, findings=findings)


def to_repair(service: Service, *reports: Report, **wanted: Any) -> Job:
    """A job whose targets are searched, and whose repairs are next."""
    return done(service, *(reports or [refusing_exp()]), request={"repair": {}}, **wanted)


def repaired(service: Service, document: dict[str, Any], *reports: Report, **wanted: Any) -> Job:
    """A job that was repaired, as the document says of each target."""
    job = to_repair(service, *reports, **wanted)
    for search, report in zip(job.searches, reports or [refusing_exp()], strict=True):
        files = {
            "repair/repair.json": service.files.put([json.dumps(document).encode()]).sha256,
            "repair/repair.md": service.files.put([b"# repaired\n"]).sha256,
            "repair/repaired.onnx": service.files.put([REPAIRED]).sha256,
        }
        if document["left"]:
            files["repair/report.json"] = service.files.put([b"{}"]).sha256
        claimed = take(service.database, search.id, Stage.REPAIR)
        changes, left = len(document["changes"]), len(document["left"])
        outcome = {"verdict": document["verdict"], "changes": changes, "left": left, "calls": 2, "problem": ""}
        with service.database.transaction() as session:
            searches.end_repair(session, claimed, outcome, files, remedies_of(report, document))
    return read(service.database, job)


def repair_document(name: str = "Abs") -> dict[str, Any]:
    """What a repair says that has replaced the first of two nodes, which has this name; the other has no remedy."""
    with TemporaryDirectory() as folder:
        compiler = SimulatedCompiler(folder=Path(folder), refuses=refusing("Abs", "Erf", "Exp", "Tanh"))
        ends = [helper.make_tensor_value_info(it, TensorProto.FLOAT, [2, 3]) for it in "xz"]
        nodes = [helper.make_node("Abs", ["x"], ["y"], name=name), helper.make_node("Erf", ["y"], ["z"], name="Erf")]
        for line, node in enumerate(nodes, 3):
            trace = f'File "net/model.py", line {line}, in forward\n    torch.{node.op_type.lower()}(x)'
            node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=trace)
        graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        found = simulated.repaired(model, compiler)
        other = Alternative(options={"chip": "new"}, tool="simulated", version="1", whole=Verdict(status=Status.PASS))
        told = repairs.document(
            found.before.model,
            found,
            Exactness.ROUNDING,
            diagnosis_calls=3,
            repair_calls=2,
            alternatives=[other],
        )
        return dict(json.loads(json.dumps(told.to_json())))


def to_measure(service: Service, *reports: Report, **wanted: Any) -> Job:
    """A job whose targets are searched, and whose precision is measured next."""
    return done(service, *(reports or [refusing_exp()]), request={"precision": {"low": "int8"}}, **wanted)


def measured(service: Service, document: dict[str, Any], *reports: Report, **wanted: Any) -> Job:
    """A job whose precision was measured, as the document says of each target."""
    job = to_measure(service, *reports, **wanted)
    for search in job.searches:
        files = {
            "precision/precision.json": service.files.put([json.dumps(document).encode()]).sha256,
            "precision/precision.md": service.files.put([b"# measured\n"]).sha256,
            "precision/precision.svg": service.files.put([SVG]).sha256,
            "precision/pulsar2.json": service.files.put([b'{"quant": {}}']).sha256,
            "precision/tpu_mlir.qtable": service.files.put([b"Mul F16\n"]).sha256,
        }
        claimed = take(service.database, search.id, Stage.PRECISION)
        outcome = PreciseNodes(ending=document["ending"], headline="1 node has to stay.", keep=1, asks=2)
        with service.database.transaction() as session:
            searches.end_measuring(session, claimed, outcome.to_json(), files)
    return read(service.database, job)


def precision_document(name: str = "Mul") -> dict[str, Any]:
    """What a search says that has found one node of this name."""
    report = PrecisionReport(
        model="net.onnx",
        backend="onnxruntime",
        arithmetic="onnxruntime 1",
        low="int8",
        metric="sqnr",
        threshold=30.0,
        at_most=False,
        wanted="sqnr of at least 30.0 dB",
        samples=2,
        nodes=8,
        candidates=6,
        full=200.0,
        full_shown="200.0 dB",
        all_low=None,
        all_low_shown="no finite number",
        value=39.1,
        shown="39.1 dB",
        ending=PrecisionEnding.MINIMAL,
        members=(
            Member(
                node=name,
                op="Mul",
                module="",
                without=14.4,
                shown="14.4 dB",
                asked=2,
                reason=f"Channel 5 of {name!r} reaches 317.",
                work=0.01,
            ),
        ),
        work=0.01,
        asks=(),
        resumed=0,
        seconds=1.0,
        changes=("fold the scale of 'Mul' into that of 'Div'",),
        changed_shown="41.0 dB",
    )
    return dict(to_json(report))
