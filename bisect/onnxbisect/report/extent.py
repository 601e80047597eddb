"""Limits on the parts of a long report that one page shows, so that it opens quickly with hundreds of culprits.

The page states how much it leaves out; report.json contains everything.
"""

from collections.abc import Iterator

from onnxbisect.report.contents import ProbeEntry, Report

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
