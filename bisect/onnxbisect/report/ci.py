"""Forms that CI systems read: JUnit XML, GitLab's code quality, and SARIF for GitHub code scanning and editors."""

import json
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote
from xml.etree import ElementTree

from onnxbisect.language import in_english
from onnxbisect.report import culprit_words, words
from onnxbisect.report.contents import Report, op_name
from onnxbisect.report.culprit_contents import CulpritEntry, OriginEntry
from onnxbisect.report.reading import model_path, next_steps, options_outcome, options_text, reproducing_command
from onnxbisect.report.text import clean, clip, plural


@in_english
def junit(document: Report) -> str:
    """One suite. The whole model, each culprit, and each op without a confirmed culprit are test cases.

    A confirmed culprit is a failure. Suspected culprits, and ops that were in no passing probe, are skipped with a
    message; an unresolved model is an error.
    """
    name = clean(document["model"]["name"])
    suite = ElementTree.Element("testsuite", name=f"onnx-bisect {name} on {clean(words.target(document['target']))}")
    whole = _case(suite, "model", "the whole model")
    if outcome := {"fail": "failure", "unresolved": "error"}.get(document["verdict"]):
        body = ElementTree.SubElement(whole, outcome, message=clean(document["headline"]))
        causes = [f"cause: {clean(culprit_words.sentence(cause))}" for cause in culprit_words.telling(document)]
        steps = [clean(f"next: {it.sentence}{f': {it.command}' if it.command else ''}") for it in next_steps(document)]
        without_lines = list(filter(None, [culprit_words.lines_missing(document)]))
        body.text = "\n".join([clean(document["certificate"]["sentence"]), *causes, *steps, *without_lines])
    for culprit in document["culprits"]:
        case = _case(suite, "culprit", f"{_ops(culprit)} [{culprit['id']}]")
        if doubt := words.certainty(culprit):
            ElementTree.SubElement(case, "skipped", message=clean(doubt))
            continue
        failure = ElementTree.SubElement(
            case, "failure", type=clean(culprit["failure"]), message=clean(words.failure(culprit))
        )
        lines = [f"{number}. {clean(', '.join(nodes))}" for number, nodes in enumerate(culprit["occurrences"], 1)]
        if found := culprit_words.of_culprit(document, culprit):
            lines.append(f"cause: {clean(culprit_words.sentence(found))}")
            lines += [f"compiles: {clean(culprit_words.compiles(contrast))}" for contrast in found["contrast"]]
        lines += [f"from {clean(it.counted)}" for it in culprit_words.source_lines(culprit)]
        if replacement := words.replace_by(culprit):
            lines.append(f"replace by: {clean(replacement)}")
        if culprit["repro"]:
            lines.append(f"reproduce: {clean(reproducing_command(document, culprit['repro']))}")
        failure.text = "\n".join(lines)
    for row in document["op_table"]:
        if row["verdict"] in ("fail", "mixed"):
            continue
        case = _case(suite, "op", f"{op_name(row['domain'], row['op'])} ({plural(row['nodes'], 'node')})")
        if row["verdict"] == "unknown":
            ElementTree.SubElement(case, "skipped", message="no passing probe had all of these nodes")
    for kind, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(kind, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("tests", str(len(suite.findall("testcase"))))
    suite.set("time", str(document["stats"]["wall_seconds"]))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(suite: ElementTree.Element, group: str, name: str) -> ElementTree.Element:
    return ElementTree.SubElement(suite, "testcase", classname=f"onnx-bisect.{group}", name=clean(name))


#: Most characters of a description, which a merge request shows in one line; node names may be of any length.
_WIDTH = 400
#: Paths that are not below the repository: GitLab refuses them.
_NOT_BELOW = re.compile(r"[\\/<]|[A-Za-z]:|(.*[\\/])?\.\.([\\/]|\Z)", re.DOTALL)


@in_english
def gitlab(document: Report) -> str:
    """One finding per culprit, at its line of source if that is known by a relative path, else at the model file."""
    findings = []
    for culprit in document["culprits"]:
        origins = ((origin["file"], origin["line"]) for origin in culprit["origin"])
        traced = next(((file, line) for file, line in origins if file and not _NOT_BELOW.match(file)), None)
        path, line = traced or (model_path(document), 1)
        places = plural(len(culprit["occurrences"]), "place")
        lines = "; ".join(it.text for it in culprit_words.source_lines(culprit)[:_LINES])
        text = f"{_ops(culprit)}: {words.failure(culprit)} ({places}, first {culprit['nodes'][0]})"
        text += f" from {lines}" if lines else ""
        if traced is None and (sentence := culprit_words.lines_missing(document)):
            text = f"{clip(text, _WIDTH - len(sentence) - 2)}. {sentence}"
        findings.append(
            {
                "description": clip(text, _WIDTH),
                "check_name": f"onnx-bisect/{clip(_ops(culprit), 100)}",
                "fingerprint": culprit["id"],
                "severity": "major" if culprit["certainty"] == "confirmed" else "minor",
                "location": {
                    "path": clean(path),
                    "lines": {"begin": max(1, line or 1)},
                },
            }
        )
    return json.dumps(findings, indent=1) + "\n"


_SCHEMA = "https://raw.githubusercontent.com/oasis-tcs/sarif-spec/master/Schemata/sarif-schema-2.1.0.json"
_KINDS = {
    "single": "The compiler refuses this node, or computes other numbers with it.",
    "interaction": "The compiler refuses these nodes together; every proper part of them compiles.",
    "count": "The compiler takes fewer nodes of this op, whichever they are.",
    "capacity": "Each part of this subgraph compiles; the whole is too much for the compiler.",
}
_RELATED = 100
#: Most lines of source, and most ops, in a message.
_LINES, _OPS = 3, 8


@in_english
def sarif(document: Report) -> str:
    """One run with one result per culprit; its node names are logical locations.

    The physical location is the line of the user's source if the exporter recorded it, else line 1 of the model; so it
    is of further places.
    """
    rules: dict[str, CulpritEntry] = {}
    for culprit in document["culprits"]:
        rules.setdefault(rule_of(culprit), culprit)
    results = [_result(document, it, list(rules).index(rule_of(it))) for it in document["culprits"]]
    properties = {
        "target": clean(words.target(document["target"])),
        "verdict": document["verdict"],
        "certificate": document["certificate"]["status"],
        "causes": [clean(culprit_words.sentence(cause)) for cause in culprit_words.telling(document)],
        "alternatives": [
            clean(f"{options_text(it)}: {options_outcome(document, it)}") for it in document.get("alternatives", ())
        ],
    }
    described: list[dict[str, object]] = []
    for name, culprit in rules.items():
        target = clean(words.target(document["target"]))
        steps = [f"{it.sentence}: {it.command}" if it.command else it.sentence for it in next_steps(document)]
        replaced = words.replace_by(culprit)
        kind = _KINDS.get(culprit["kind"], culprit["kind"])
        help_ = [kind, *([f"Replace by {replaced}."] if replaced else []), *map(clean, steps)]
        help_ += filter(None, [culprit_words.lines_missing(document)])
        described.append(
            {
                "id": name,
                "name": name,
                "shortDescription": {"text": f"{name} with {target}"},
                "help": {"text": "\n".join(help_)},
            }
        )
    return log(described, results, properties)


def log(rules: list[dict[str, object]], results: list[dict[str, object]], properties: Mapping[str, object]) -> str:
    """A SARIF log with one run."""
    run = {
        "tool": {"driver": {"name": "onnx-bisect", "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "results": results,
        "properties": properties,
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def rule_of(culprit: CulpritEntry) -> str:
    """The id of the rule that a culprit breaks: its op, or its ops, so that a list of findings says what is refused."""
    more = len(culprit["ops"]) - _OPS
    return clean(_ops(culprit) + (f" + {more} more" if more > 0 else ""))


def _ops(culprit: CulpritEntry) -> str:
    return " + ".join(culprit["ops"][:_OPS])


def _result(document: Report, culprit: CulpritEntry, rule: int) -> dict[str, object]:
    said = (
        f"{_ops(culprit)}: {words.failure(culprit)} "
        f"({plural(len(culprit['occurrences']), 'place')} in {document['model']['name']})"
    )
    if lines := culprit_words.source_lines(culprit)[:_LINES]:
        said += f". From {'; '.join(it.text for it in lines)}"
    cause = culprit_words.of_culprit(document, culprit)
    if cause is not None:
        said += f". Cause: {culprit_words.sentence(cause)}"
    taken_with = [options_text(it) for it in document.get("alternatives", ()) if culprit["id"] in it["takes"]]
    if taken_with:
        said += f". Taken with {'; '.join(taken_with)}"
    traced = next((origin for origin in culprit["origin"] if origin["file"] is not None), None)
    lines_of = {origin["node"]: origin for origin in culprit["origin"] if origin["file"] is not None}
    related = [
        _location(document, nodes, next((lines_of[it] for it in nodes if it in lines_of), None), number)
        for number, nodes in enumerate(culprit["occurrences"][1 : _RELATED + 1], 1)
    ]
    result: dict[str, object] = {
        "ruleId": rule_of(culprit),
        "ruleIndex": rule,
        "level": "error" if culprit["certainty"] == "confirmed" else "warning",
        "message": {"text": text(said)},
        "locations": [_location(document, culprit["nodes"], traced)],
        "partialFingerprints": {"culprit/v1": culprit["id"]},
        "properties": {"kind": culprit["kind"], "certainty": culprit["certainty"], "repro": culprit["repro"]},
    }
    if related:
        result["relatedLocations"] = related
    return result


def text(message: str) -> str:
    """Text without links: SARIF reads `[text](link)` in messages, and a node name may contain that (3.11.6)."""
    return re.sub(r"([\\\[\]])", r"\\\1", clean(message))


def _location(
    document: Report, nodes: list[str], traced: OriginEntry | None, number: int | None = None
) -> dict[str, object]:
    if traced is None:
        location = located(model_path(document), 1, "", nodes)
    else:
        location = located(traced["file"] or "", traced["line"], traced["code"], nodes)
    return location if number is None else location | {"id": number}


def located(file: str, line: int | None, code: str | None, names: Iterable[str]) -> dict[str, object]:
    """A line of a file, with its code, and the logical names of what is there."""
    region: dict[str, object] = {"startLine": max(1, line or 1)}
    if code:
        region["snippet"] = {"text": clean(code)}
    return {
        "physicalLocation": {"artifactLocation": {"uri": _uri(file)}, "region": region},
        "logicalLocations": [
            {"fullyQualifiedName": name, "kind": "function"} for name in dict.fromkeys(map(clean, names))
        ],
    }


def _uri(path: str) -> str:
    """A relative path unchanged, an absolute one as a `file:` URI."""
    slashed = path.replace("\\", "/")
    quoted = quote(slashed.encode("utf-8", "replace"), safe="/")
    if re.match(r"[A-Za-z]:/", slashed):
        return f"file:///{slashed[:2]}{quote(slashed[2:].encode('utf-8', 'replace'), safe='/')}"
    return f"file://{quoted}" if slashed.startswith("/") and not slashed.startswith("//") else quoted.lstrip("/")
