"""What compilers tabulate reaches every form of the report, of the right probe, and stays text."""

from dataclasses import replace
from html.parser import HTMLParser

import jsonschema
import pytest

from onnx_bisect import report_schema
from onnxbisect.diagnosis import CertificateStatus, CulpritKind, DiagnosisProof
from onnxbisect.report.contents import Report
from onnxbisect.report.document import document
from onnxbisect.report.html import html
from onnxbisect.report.markdown import markdown
from onnxbisect.report.terminal import lines
from onnxbisect.report.text import clean
from onnxbisect.unitset import UnitSet, of
from onnxbisect.verdict import Kind, Status, Table, Verdict
from support.engine.report_factory import HOSTILE, PASS, chain, culprit, job_of, refused, single

CHAIN = chain(["Relu", "Sin", "Exp"])
WHOLE = of([0, 1, 2])


def placed(*rows: tuple[str, str], counted: str = "runs on") -> Table:
    return Table(title="Where the nodes run", columns=("node", "runs on"), rows=rows, counted=counted)


def passing(*tables: Table) -> Verdict:
    return replace(PASS, tables=tables)


def told(asked: list[tuple[UnitSet, Verdict]], proof: tuple[UnitSet, ...], culprits: bool = True) -> Report:
    """A report where the compiler tabulated something in these probes, of which `proof` are the certificate."""
    certificate = DiagnosisProof(status=CertificateStatus.PROVEN, probes=proof)
    found = [single(CHAIN, [1], "no Sin")] if culprits else []
    more = [(units, verdict, "asked") for units, verdict in asked]
    return document(job_of(CHAIN, found, more=more, certificate=certificate))


def test_the_table_of_a_model_that_compiles_is_its_own() -> None:
    report = told([(of([0]), passing(placed(("r", "CPU")))), (WHOLE, passing(placed(("r", "NPU"))))], (WHOLE,), False)

    assert [table["rows"] for table in report["tables"]] == [[["r", "NPU"]]]
    jsonschema.validate(report, report_schema())


def test_a_model_that_fails_by_its_table_shows_that_table() -> None:
    fallback = Verdict(status=Status.FAIL, kind=Kind.FALLBACK, tables=(placed(("s", "CPU")),))

    report = told([(WHOLE, fallback), (of([0, 2]), passing(placed(("r", "NPU"))))], (of([0, 2]),))

    assert [table["rows"] for table in report["tables"]] == [[["s", "CPU"]]]


def test_a_model_without_a_table_shows_those_of_the_proof_and_no_others() -> None:
    proof, alone = passing(placed(("r", "NPU"), ("e", "CPU"))), passing(placed(("r", "NPU")))

    report = told([(of([0]), alone), (of([0, 2]), proof)], (of([0, 2]),))

    assert [table["rows"] for table in report["tables"]] == [[["r", "NPU"], ["e", "CPU"]]]
    named = next(probe for probe in report["probes"] if probe["id"] == report["tables"][0]["probe"])
    assert (named["units"], named["verdict"]) == ("0,2", "pass")


def test_a_proof_that_tells_nothing_new_is_left_out() -> None:
    pair = culprit(CHAIN, [of([0, 1])], CulpritKind.INTERACTION, "")
    ways = (of([0, 2]), of([1, 2]))
    certificate = DiagnosisProof(status=CertificateStatus.PROVEN, probes=(*ways, of([2])))
    more = [(units, passing(placed((str(units), "NPU"))), "way") for units in certificate.probes]

    report = document(job_of(CHAIN, [pair], more=more, certificate=certificate))

    assert [table["rows"] for table in report["tables"]] == [[[str(units), "NPU"]] for units in ways]


@pytest.mark.parametrize(
    ("counted", "shown"),
    [("runs on", "Where the nodes run: NPU 2, CPU 1"), ("", "Where the nodes run: 3 rows")],
)
def test_the_terminal_says_a_table_in_one_line(counted: str, shown: str) -> None:
    table = placed(("a", "CPU"), ("b", "NPU"), ("c", "NPU"), counted=counted)

    assert shown in lines(told([(WHOLE, passing(table))], (WHOLE,), False))


def test_the_terminal_says_of_how_much_a_table_is() -> None:
    report = told([(of([0, 2]), passing(placed(("r", "NPU"))))], (of([0, 2]),))

    assert "Where the nodes run (2 units): NPU 1" in lines(report)


def test_the_terminal_says_once_what_several_proofs_tell() -> None:
    pair = culprit(CHAIN, [of([0, 1])], CulpritKind.INTERACTION, "")
    ways = (of([0, 2]), of([1, 2]))
    certificate = DiagnosisProof(status=CertificateStatus.PROVEN, probes=ways)
    more = [(units, passing(placed(("r", "NPU"))), "way") for units in ways]

    said = lines(document(job_of(CHAIN, [pair], more=more, certificate=certificate)))

    assert list(said).count("Where the nodes run (2 units): NPU 1") == 1


def test_the_pages_have_every_row() -> None:
    table = placed(*((f"node {number}", "NPU") for number in range(40)))
    report = told([(WHOLE, passing(table))], (WHOLE,), False)

    for page in (html(report), markdown(report)):
        assert all(f"node {number}" in page for number in range(40))


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)


def test_hostile_cells_stay_text_in_every_form() -> None:
    table = Table(title=HOSTILE, columns=(HOSTILE, "b"), rows=((HOSTILE, HOSTILE),), counted=HOSTILE)
    report = told([(WHOLE, passing(table))], (WHOLE,), False)

    page = html(report)
    assert not Tags(page).found & {"img", "script", "iframe"}
    assert all(line == clean(line) for line in lines(report))
    head, rule, row = [line for line in markdown(report).splitlines() if line.startswith("|")][-3:]
    assert rule == "| --- | --- |"
    assert head.replace("\\|", "").count("|") == row.replace("\\|", "").count("|") == 3
    for text in (page, markdown(report)):
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_a_refusal_without_tables_has_none() -> None:
    assert told([(WHOLE, refused("no"))], (of([0, 2]),))["tables"] == []
