"""The table of several models, made from reports."""

from onnxbisect.causes.terms import CauseState
from onnxbisect.exactness import Exactness
from onnxbisect.language import within
from onnxbisect.report.compare import AskedModel, TargetReport
from onnxbisect.report.contents import Report
from onnxbisect.report.document import document
from onnxbisect.report.parts import ModelPart, answer, headline, html, lines, markdown, parts_table
from onnxbisect.verdict import Status
from support.engine.report_factory import chain, job_of, single

NET = chain(["Relu", "Exp", "Tanh"])


def part(label: str, report: Report | None, reason: str = "") -> ModelPart:
    asked = TargetReport(label="npu", backend="npu", report=report, reason=reason)
    subject = None if report is None else AskedModel.of_report(report)
    return ModelPart(label=label, name=f"{label}.onnx", subject=subject, asked=[asked])


def test_a_change_of_the_file_that_is_enough_is_the_answer() -> None:
    report = document(job_of(NET, []))
    report["verdict"] = Status.FAIL
    report["compiles_after"] = {
        "sentence": "ir_version 10 → 9",
        "remedies": ["ir-version"],
        "exactness": Exactness.EXACT,
        "domain": "",
        "calls": 1,
    }
    table = parts_table([part("a", report)], {"npu": "npu"})
    assert answer(table.models[0].cells["npu"]) == "compiles after: ir_version 10 → 9"
    assert table.to_json()["models"][0]["cells"]["npu"]["compiles_after"] == "ir_version 10 → 9"
    assert "[`compiles after: ir_version 10 → 9`](a/npu/report.md)" in markdown(table, lambda *path: "/".join(path))


def test_why_there_is_no_answer_is_said_once() -> None:
    missing = [part(label, None, "npu is not installed.") for label in "ab"]
    table = parts_table([*missing, part("c", document(job_of(NET, [single(NET, [1], "no Exp")])))], {"npu": "npu"})
    assert headline(table) == "3 models: none compiles for npu (2 without an answer)"
    shown = "\n".join(lines(table))
    assert shown.count("npu is not installed.") == 1
    assert "cannot be asked" in shown
    page = html(table, lambda *path: "/".join(path))
    assert 'href="c/npu/report.html"' in page
    assert 'href="a/npu/report.html"' not in page


def test_the_table_is_in_the_language_of_the_reader() -> None:
    report = document(job_of(NET, []))
    report["causes"] = [
        {
            "text": "tensors of rank 6 or more",
            "state": CauseState.OBSERVED,
            "telling": True,
            "established": True,
            "culprits": [],
            "conditions": [],
            "refused_units": "0",
            "places": {"refused": 1, "unknown": 0},
            "nothing_passed": "",
            "contrast": [],
            "fits_too": [],
        }
    ]
    reason = "None of 8 probes got an answer: check that the compiler itself works."
    table = parts_table([part("a", report), part("b", None, reason)], {"npu": "npu"})
    for said in ("`compiles`", "cannot be asked", "| model |", "tensors of rank 6 or more", reason):
        assert said in markdown(table, lambda *path: "/".join(path))
        with within("zh_CN"):
            assert said not in markdown(table, lambda *path: "/".join(path))
