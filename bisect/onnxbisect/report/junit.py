"""The report as JUnit XML, which every CI system can show."""

from xml.etree import ElementTree

from onnxbisect.language import in_english
from onnxbisect.report import cause_words, source_lines, words
from onnxbisect.report.contents import Report
from onnxbisect.report.culprit_contents import CulpritEntry
from onnxbisect.report.next_steps import next_steps
from onnxbisect.report.text import clean, plural


@in_english
def junit(document: Report) -> str:
    """One suite. The whole model, each culprit, and each op without a confirmed culprit are test cases.

    A confirmed culprit is a failure. Suspected culprits, and ops that were in no passing probe, are skipped with a
    message; an unresolved model is an error.
    """
    name = clean(document["model"]["name"])
    suite = ElementTree.Element("testsuite", name=f"onnx-bisect {name} on {clean(words.target(document['target']))}")
    _whole(suite, document)
    for culprit in document["culprits"]:
        _culprit(suite, document, culprit)
    for row in document["op_table"]:
        if row["verdict"] in ("fail", "mixed"):
            continue
        op = f"{row['domain']}::{row['op']}" if row["domain"] else row["op"]
        case = _case(suite, "op", f"{op} ({plural(row['nodes'], 'node')})")
        if row["verdict"] == "unknown":
            ElementTree.SubElement(case, "skipped", message="no passing probe had all of these nodes")
    for outcome, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(outcome, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("tests", str(len(suite.findall("testcase"))))
    suite.set("time", str(document["stats"]["wall_seconds"]))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _whole(suite: ElementTree.Element, document: Report) -> None:
    case = _case(suite, "model", "the whole model")
    outcome = {"fail": "failure", "unresolved": "error"}.get(document["verdict"])
    if outcome:
        body = ElementTree.SubElement(case, outcome, message=clean(document["headline"]))
        causes = [f"cause: {clean(cause_words.sentence(cause))}" for cause in cause_words.telling(document)]
        steps = [clean(f"next: {it.sentence}{f': {it.command}' if it.command else ''}") for it in next_steps(document)]
        body.text = "\n".join([clean(document["certificate"]["sentence"]), *causes, *steps])


def _culprit(suite: ElementTree.Element, document: Report, culprit: CulpritEntry) -> None:
    case = _case(suite, "culprit", f"{' + '.join(culprit['ops'][:8])} [{culprit['id']}]")
    if doubt := words.certainty(culprit):
        ElementTree.SubElement(case, "skipped", message=clean(doubt))
        return
    failure = ElementTree.SubElement(
        case, "failure", type=clean(culprit["failure"]), message=clean(words.failure(culprit))
    )
    lines = [f"{number}. {clean(', '.join(nodes))}" for number, nodes in enumerate(culprit["occurrences"], 1)]
    if cause := cause_words.of_culprit(document, culprit):
        lines.append(f"cause: {clean(cause_words.sentence(cause))}")
        lines += [f"compiles: {clean(cause_words.compiles(contrast))}" for contrast in cause["contrast"]]
    lines += [f"from {clean(it.counted)}" for it in source_lines.of(culprit)]
    if replacement := words.replace_by(culprit):
        lines.append(f"replace by: {clean(replacement)}")
    if culprit["repro"]:
        lines.append(f"reproduce: {clean(words.command(document, culprit['repro']))}")
    failure.text = "\n".join(lines)


def _case(suite: ElementTree.Element, group: str, name: str) -> ElementTree.Element:
    return ElementTree.SubElement(suite, "testcase", classname=f"onnx-bisect.{group}", name=clean(name))
