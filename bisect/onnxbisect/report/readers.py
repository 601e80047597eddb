"""A document as its reader sees it: the sentences that it keeps in English, in the reader's language."""

from typing import cast

from onnxbisect.finished import phrase, translated
from onnxbisect.language import ENGLISH, current
from onnxbisect.report.contents import Report
from onnxbisect.report.culprit_contents import CauseEntry, CulpritEntry


def readers(document: Report) -> Report:
    """The document with its sentences translated; what models, compilers and users wrote stays as it is."""
    if current() == ENGLISH:
        return document
    certificate, model = document["certificate"], document["model"]
    shown = {
        **document,
        "headline": translated(document["headline"]),
        "certificate": {
            **certificate,
            "sentence": translated(certificate["sentence"]),
            "unknown": [translated(text) for text in certificate["unknown"]],
            "assumes": [translated(text) for text in certificate["assumes"]],
        },
        "model": {**model, "notes": [translated(text) for text in model["notes"]]},
        "culprits": [_culprit(culprit) for culprit in document["culprits"]],
        "preflight": [
            {
                **finding,
                "detail": phrase(finding["detail"]),
                "why": translated(finding["why"]),
                "fix": translated(finding["fix"]),
            }
            for finding in document["preflight"]
        ],
        "probes": [{**probe, "why": phrase(probe["why"])} for probe in document["probes"]],
    }
    if "causes" in document:  # reports of earlier versions do not have it
        shown["causes"] = [_cause(cause) for cause in document["causes"]]
    if tried := document.get("alternatives"):
        shown["alternatives"] = [{**one, "problem": translated(one["problem"])} for one in tried]
    if after := document.get("compiles_after"):
        shown["compiles_after"] = {**after, "sentence": translated(after["sentence"])}
    return cast(Report, shown)


def _cause(cause: CauseEntry) -> CauseEntry:
    return {
        **cause,
        "text": phrase(cause["text"]),
        "nothing_passed": phrase(cause["nothing_passed"]),
        "contrast": [
            {**one, "condition": phrase(one["condition"]), "passes": phrase(one["passes"])} for one in cause["contrast"]
        ],
        "fits_too": [phrase(text) for text in cause["fits_too"]],
    }


def _culprit(culprit: CulpritEntry) -> CulpritEntry:
    entry: CulpritEntry = {
        **culprit,
        "passes_instead": [
            {**one, "differs": [{**it, "what": phrase(it["what"])} for it in one["differs"]]}
            for one in culprit["passes_instead"]
        ],
    }
    if "variant" in culprit:
        entry["variant"] = [{**fact, "what": phrase(fact["what"])} for fact in culprit["variant"]]
    return entry
