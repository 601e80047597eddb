"""A report as its reader sees it: in the reader's language, and no longer than a page can show.

The limits let a page open quickly with hundreds of culprits; it states how much it leaves out, and report.json contains
everything. The sentences that a document keeps in English are translated.
"""

from collections.abc import Iterator
from typing import cast

from onnxbisect.finished import phrase, translated
from onnxbisect.language import ENGLISH, current
from onnxbisect.report.contents import ProbeEntry, Report
from onnxbisect.report.culprit_contents import CulpritEntry

#: Culprits shown with a full card; later ones have a short card.
WHOLE = 40
#: Culprits shown with a card.
CULPRITS = 500
#: Occurrences shown of one culprit.
PLACES = 200
#: Rows of any other table.
ROWS = 200
#: Of those, the pieces of the model that are not folded: hundreds take as long to lay out as the rest of a page.
PIECES = 20
#: Rows of a table that a compiler made, which is folded.
TABLE_ROWS = 2000
#: Probes shown besides those that something refers to.
PROBES = 300


def probes(document: Report) -> list[ProbeEntry]:
    """The probes that the page shows, in the order of their verdicts: the first ones, and those that a link on the page
    leads to.
    """
    wanted = set(_cited(document))
    return [probe for index, probe in enumerate(document["probes"]) if index < PROBES or probe["id"] in wanted]


def _cited(document: Report) -> Iterator[str | None]:
    yield from document["certificate"]["probes"]
    for culprit in document["culprits"][:CULPRITS]:
        evidence = culprit["evidence"]
        yield from (evidence["fails"], evidence["context"], evidence["blame"], *evidence["subsets"])
        yield from (variant["probe"] for variant in culprit["passes_instead"])
    for cause in document.get("causes", [])[:CULPRITS]:
        yield from (contrast["probe"] for contrast in cause["contrast"])
    for group in document["needs_context"][:ROWS]:
        yield group["passes_with"]["probe"] if group["passes_with"] else None
    for row in document["op_table"]:
        yield from row["proof"]
    for entry in document["flaky"]:
        yield from entry["probes"]
    yield from (piece["proof"] for piece in document["partition"][:ROWS])
    yield from (table["probe"] for table in document["tables"])


def translated_report(document: Report) -> Report:
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
        shown["causes"] = [
            {
                **cause,
                "text": phrase(cause["text"]),
                "nothing_passed": phrase(cause["nothing_passed"]),
                "contrast": [
                    {**one, "condition": phrase(one["condition"]), "passes": phrase(one["passes"])}
                    for one in cause["contrast"]
                ],
                "fits_too": [phrase(text) for text in cause["fits_too"]],
            }
            for cause in document["causes"]
        ]
    if tried := document.get("alternatives"):
        shown["alternatives"] = [{**one, "problem": translated(one["problem"])} for one in tried]
    if after := document.get("compiles_after"):
        shown["compiles_after"] = {**after, "sentence": translated(after["sentence"])}
    return cast(Report, shown)


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
