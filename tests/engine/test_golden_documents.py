"""Documents keep their bytes: what this version writes for the same values is what the files in `golden/` hold.

`ONNXBISECT_WRITE_GOLDEN=1` writes the files anew, for a change of a document that is meant.
"""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
from onnx import NodeProto, helper

from onnxbisect.diagnosis import (
    Alternative,
    CertificateStatus,
    CompilesAfter,
    CompletedDiagnosis,
    ContextUnits,
    CulpritKind,
    DiagnosisProof,
    Evidence,
    Target,
)
from onnxbisect.exactness import Exactness
from onnxbisect.export import report as export_report
from onnxbisect.export.failure import CodeLine, FailureKind
from onnxbisect.export.report import Blamed, Component, ExportedPart, ExportReport, Tried
from onnxbisect.finding import Finding, Severity
from onnxbisect.json_form import from_json, to_json
from onnxbisect.precision import report as precision_report
from onnxbisect.precision.plan import PrecisionEnding
from onnxbisect.precision.report import Asked, Member, PrecisionReport
from onnxbisect.preflight import Inspection, ModelModule, OpUse, Tensor, inspection_document
from onnxbisect.proof import OutputDifference, Tolerance
from onnxbisect.remedies import summary
from onnxbisect.remedies.document import (
    AlternativeRow,
    Change,
    CulpritRow,
    FileChange,
    LeftRow,
    NodeRow,
    RepairDocument,
    RuleRow,
    StruckRow,
)
from onnxbisect.report import history
from onnxbisect.report import parts as parts_chapter
from onnxbisect.report.compare import AskedModel, TargetReport, compare, compare_sections
from onnxbisect.report.contents import Report
from onnxbisect.report.document import document
from onnxbisect.report.files import FORMS
from onnxbisect.report.history import VersionedPart, VersionHistory
from onnxbisect.report.overview import lines as overview_lines
from onnxbisect.report.overview import markdown as overview_markdown
from onnxbisect.report.overview import overview
from onnxbisect.report.parts import ModelPart, PartsTable, parts_table
from onnxbisect.report.text import as_markdown, terminal_lines
from onnxbisect.split.manifest import (
    Custom,
    DataFile,
    Made,
    Manifest,
    Source,
    SplitProof,
    Taken,
    Value,
    WrittenPiece,
)
from onnxbisect.split.schedule import PieceKind
from onnxbisect.unitset import of
from onnxbisect.verdict import Hints, Kind, Status, Table, Verdict
from support.engine.report_factory import HOSTILE, PASS, chain, culprit, job_of, refused, single

GOLDEN = Path(__file__).parent / "golden"
OPS: list[str | NodeProto] = [
    "Relu",
    "Exp",
    "Tanh",
    helper.make_node("Softmax", [], [], axis=1),
    "Erf",
    "Tanh",
    "Exp",
    "Relu",
]
NET = chain(OPS, {4: HOSTILE})
TABLE = Table(title="Where nodes run", columns=("node", "device"), rows=(("a", "NPU"), ("b", "CPU")), counted="device")
TARGET = Target(backend="whitelist", tool="simulator", version="1.0", options={"profile": "edgesam"})
FINDING = Finding(
    id="ir-version",
    severity=Severity.WARNING,
    nodes=("n",),
    tensors=("t",),
    detail="ir_version 10",
    why="Some refuse it.",
    fix="Write 9.",
    remedy="ir-version",
)


def job() -> CompletedDiagnosis:
    pair = of([2, 3])
    found = [
        single(NET, [1, 6], "Exp not supported", inferred=1 << 6),
        culprit(NET, [pair], CulpritKind.INTERACTION, "std::bad_alloc", evidence=Evidence(fails=pair, subsets=(4, 8))),
        culprit(NET, [of([0, 7])], CulpritKind.COUNT, "too many", among=of([0, 7])),
    ]
    ended = job_of(
        NET,
        found,
        needs_context=[ContextUnits(units=1 << 4, occurrences=(1 << 4,), passes_with=of([4, 5]))],
        more=[
            (4, replace(PASS, tables=(TABLE,)), "Tanh alone"),
            (8, PASS, "Softmax alone"),
            (of([4, 5]), PASS, "Erf with its neighbours"),
            (1 << 5, Verdict(status=Status.UNRESOLVED, kind=Kind.TIMEOUT, seconds=1 / 3), "Tanh alone"),
        ],
        certificate=DiagnosisProof(status=CertificateStatus.BOUNDED, probes=(), assumes=("a",), unknown=("1 unit",)),
        preflight=[FINDING],
    )
    others = Alternative(options={"opt": "2"}, tool="simulator", version="1.0", culprits=(PASS, refused("no"), None))
    return replace(ended, alternatives=(others,), stats=replace(ended.stats, engine_seconds=1 / 3))


def changed() -> CompletedDiagnosis:
    after = CompilesAfter(
        sentence="ir_version 10 → 9", remedies=("ir-version",), exactness=Exactness.EXACT, domain="", calls=1
    )
    ended = job_of(NET, [single(NET, [1], "Exp not supported")], options={"profile": "ax650", "fast": True})
    return replace(ended, compiles_after=after, file_after="ir_version 10 → 9")


def asked() -> list[TargetReport]:
    return [
        TargetReport(label="a", backend="whitelist", report=report()),
        TargetReport(label="b", backend="whitelist", report=document(changed())),
        TargetReport(label="c", backend="rknn", reason="rknn is not installed."),
        TargetReport(label="d", backend="qnn", reason="The run was ended.", ended=True),
    ]


def report() -> Report:
    return document(job())


def parts() -> PartsTable:
    models = [ModelPart(label=it, name=f"{it}.onnx", subject=AskedModel.of(NET), asked=asked()) for it in ("x", "y")]
    silent = [TargetReport(label=it.label, backend=it.backend, reason="It is no model.") for it in asked()]
    models.append(ModelPart(label="z", name="z.onnx", subject=None, asked=silent))
    return parts_table(models, {it.label: f"{it.backend} ({it.label})" for it in silent})


def versions() -> VersionHistory:
    part = VersionedPart(
        answers={0: True, 1: None, 2: False}, ops=("Exp",), nodes=(HOSTILE, "b"), places=2, message="no Exp"
    )
    return VersionHistory(
        model="m.onnx",
        compiler="tiny",
        versions=("1.0", "1.1", "1.2", "1.3", "1.4"),
        parts=(VersionedPart(answers={0: True, 1: None, 2: False, 4: True}), part),
        unusable={3: "It does not start."},
        finished=False,
        installs=2,
        calls=3,
    )


def repair() -> RepairDocument:
    row = NodeRow(name="Abs_0", op="Abs", inputs=("x: float[2]",), outputs=("y: float[2]",))
    rule = RuleRow(
        id="abs-relu",
        summary="Abs as two Relus.",
        exactness=Exactness.ROUNDING,
        bound="1e-7",
        domain="finite numbers",
        pytorch="torch.relu(x)",
        source="https://example.org",
    )
    far = OutputDifference(output="y", absolute=0.5, relative=inf, elements=2, beyond=1)
    allowed = Tolerance()
    change = Change(
        node="Abs_0",
        op="Abs",
        rules=(rule,),
        exactness=Exactness.ROUNDING,
        before=row,
        after=(replace(row, op="Relu"),),
        differences=(far,),
        allowed=allowed,
        compiles=True,
        low=(far,),
        source="model.py:112  x.abs()",
    )
    left = LeftRow(nodes=("e",), ops=("Exp",), kind="single", message="no Exp", reasons=("no rule",), sources=("a:1",))
    return RepairDocument(
        model="m.onnx",
        model_sha256="ab" * 32,
        target=TARGET,
        verdict=Status.FAIL,
        repaired=True,
        complete=True,
        allow=Exactness.ROUNDING,
        file_change=FileChange(sentence="ir_version 10 → 9", exactness=Exactness.EXACT),
        changes=(change, replace(change, node="Abs_2", compiles=False)),
        outputs=(far,),
        outputs_allowed=allowed,
        samples=3,
        left=(left, replace(left, nodes=(HOSTILE,))),
        struck=(StruckRow(node="Abs_0", rules=("abs-max",), reason="The compiler refuses Max."),),
        input_shapes={"x": (2, 3)},
        input_values={"flag": True, "sizes": [1, 2]},
        diagnosis_calls=3,
        repair_calls=2,
        computes_in="float16",
        alternatives=(
            AlternativeRow(
                options={"opt": "2"},
                tool="simulator",
                version="1.0",
                culprits=(CulpritRow(ops=("Exp",), verdict="pass", message=""),),
                whole="",
                message="",
                problem="",
                compiler_calls=1,
                cached=0,
            ),
        ),
    )


def manifest() -> Manifest:
    piece = WrittenPiece(
        file="1.onnx",
        kind=PieceKind.NPU,
        sha256="cd" * 32,
        data=DataFile(file="1.data", sha256="ef" * 32),
        compiled=True,
        refused=False,
        note="It was compiled.",
        share=1 / 3,
        nodes=("a", "b"),
        inputs=(Taken(name="x", tensor="x", dtype="float32", shape=(1, None), source=None),),
        outputs=(Made(name="y", tensor="y", dtype="float32", shape=None, readers=("2.onnx",), output=True),),
        custom=Custom(op="acme:Act", attributes={"k": [1]}, arguments=("x", None), outputs=("y",), constants=""),
    )
    return Manifest(
        model=Source(name="m.onnx", sha256="ab" * 32),
        target={"backend": "whitelist", "tool": "simulator", "version": "1.0", "options": {"profile": "edgesam"}},
        pieces=(piece, replace(piece, kind=PieceKind.HOST, compiled=None, data=None, custom=None)),
        inputs=(Value(name="x", dtype="float32", shape=(1, None)),),
        outputs=(Value(name="y", dtype="float32", shape=None),),
        proof=SplitProof(proven=True, samples=2, runtime="onnxruntime 1.31"),
    )


def inspection() -> Inspection:
    return Inspection(
        sha256="ab" * 32,
        name="m.onnx",
        ir_version=9,
        producer="me",
        opsets=(("ai.onnx", 17),),
        nodes=7,
        units=6,
        variants=5,
        functions=0,
        initializers=1,
        known=2,
        inputs=(Tensor(name=HOSTILE, type="float32[1,3]"),),
        outputs=(Tensor(name="y", type="float32[1,3]"),),
        ops=(OpUse(op="Relu", domain="ai.onnx", units=2, variants=1),),
        notes=("A note.",),
        target="",
        components=(ModelModule(name="enc", nodes=3, dynamic=(("If", 1),), settled=()),),
        findings=(FINDING,),
    )


def precision() -> PrecisionReport:
    return PrecisionReport(
        model="m.onnx",
        backend="rknn",
        arithmetic="onnxruntime",
        low="int8",
        metric="cosine",
        threshold=0.99,
        at_most=False,
        wanted="cosine of 0.99 or more",
        samples=2,
        nodes=8,
        candidates=6,
        full=1.0,
        full_shown="1",
        all_low=None,
        all_low_shown="nan",
        value=0.995,
        shown="0.995",
        ending=PrecisionEnding.BUDGET,
        members=(
            Member(
                node="é", op="Exp", module="enc", without=0.5, shown="0.5", asked=3, reason="It is wide.", work=0.25
            ),
        ),
        work=0.25,
        asks=(Asked(number=1, on="onnxruntime", kept=2, work=0.5, value=None, shown="", why="all"),),
        resumed=0,
        seconds=1.5,
    )


def export() -> ExportReport:
    place = CodeLine(file="model.py", line=112, source="x[:, i]")
    blamed = Blamed(
        path="enc",
        cls="Encoder",
        places=("enc",),
        signature="s",
        kind=next(iter(FailureKind)),
        place=place,
        message="It depends on data.",
        remedy="Use torch.where.",
        tried=(Tried(setting="opset 18", exports=False, message="é"),),
    )
    return ExportReport(
        source="model.py:Net",
        model="Net",
        torch="2.9",
        settings="dynamo",
        modules=4,
        exports=9,
        seconds=1.5,
        proven=True,
        culprits=(blamed,),
        undecided=(("a", "No answer."),),
        parts=(ExportedPart(path="dec", cls="Decoder", without=("enc",), samples=1),),
        components=(Component(path="enc", cls="Encoder", exports=False, failing=("enc",)),),
        never=("aux",),
    )


def verdict() -> Verdict:
    return Verdict(
        status=Status.FAIL,
        kind=Kind.CRASH,
        fingerprint="f",
        message=HOSTILE,
        hints=Hints(ops=("Exp",), unfolded=("line",)),
        seconds=0.5,
        tables=(TABLE, replace(TABLE, counted="")),
    )


def _json(value: object, indent: int | None = 1) -> str:
    return json.dumps(value, indent=indent) + "\n"


DOCUMENTS: dict[str, Callable[[], str]] = {
    "compare.json": lambda: _json(compare(report(), document(changed()))),
    "compare.md": lambda: as_markdown(compare_sections(compare(report(), document(changed())))),
    "compare.txt": lambda: "\n".join(terminal_lines(compare_sections(compare(report(), document(changed()))))),
    "export.json": lambda: json.dumps(to_json(export()), indent=2, ensure_ascii=False) + "\n",
    "export.md": lambda: export_report.markdown(export()),
    "export.txt": lambda: "\n".join(export_report.terminal(export())),
    "inspection.json": lambda: _json(inspection_document(inspection()), 2),
    "manifest.json": lambda: manifest().to_json(),
    "overview.json": lambda: _json(overview(AskedModel.of(NET), asked())),
    "overview.md": lambda: overview_markdown(overview(AskedModel.of(NET), asked())),
    "overview.txt": lambda: "\n".join(overview_lines(overview(AskedModel.of(NET), asked()), files="out")),
    "parts.json": lambda: _json(parts().to_json()),
    "parts.md": lambda: parts_chapter.markdown(parts(), lambda *path: "/".join(path)),
    "parts.txt": lambda: "\n".join(parts_chapter.lines(parts(), files="out")),
    "precision.json": lambda: json.dumps(to_json(precision()), indent=1, ensure_ascii=False) + "\n",
    "precision.md": lambda: precision_report.markdown(precision()),
    "precision.txt": lambda: "\n".join(precision_report.terminal(precision())),
    "regress.json": lambda: _json(history.history_document(versions())),
    "regress.md": lambda: as_markdown(history.history_sections(versions())),
    "regress.txt": lambda: "\n".join(terminal_lines(history.history_sections(versions()))),
    "repair.json": lambda: _json(repair().to_json()),
    "repair.md": lambda: summary.markdown(repair()),
    "repair.txt": lambda: "\n".join(summary.lines(repair())),
    "report.json": lambda: FORMS["report.json"](report()),
    "report.md": lambda: FORMS["report.md"](report()),
    "report_of_a_changed_file.json": lambda: FORMS["report.json"](document(changed())),
    "verdict.json": lambda: _json(to_json(verdict()), None),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_keeps_its_bytes(name: str) -> None:
    made, file = DOCUMENTS[name]().encode("utf-8", "backslashreplace"), GOLDEN / name
    if os.environ.get("ONNXBISECT_WRITE_GOLDEN"):
        file.write_bytes(made)
    assert made == file.read_bytes()


def test_what_was_written_is_read_again() -> None:
    for name, value in (("verdict.json", verdict()), ("repair.json", repair()), ("export.json", export())):
        assert from_json(json.loads((GOLDEN / name).read_text()), type(value)) == value
