"""How much of a long report one page shows: with hundreds of culprits or thousands of probes it still opens at once.

What a page leaves out is counted on it, and is in report.json.
"""

from collections.abc import Iterator

from onnxbisect.report.contents import ProbeEntry, Report

#: Culprits that have their card with everything; those after them have a short one.
WHOLE = 40
#: Culprits that have a card.
CULPRITS = 500
#: Places of one culprit.
PLACES = 200
#: Rows of any other table.
ROWS = 200
#: Of those, the pieces of the model that are not folded: hundreds take as long to lay out as the rest of a page.
PIECES = 20
#: Rows of a table that a compiler made, which is folded.
TABLE_ROWS = 2000
#: Probes that are shown besides those that something refers to.
PROBES = 300


def probes(document: Report) -> list[ProbeEntry]:
    """Those that the page shows, in the order in which they were answered: the first, and every one that a link on the
    page leads to.
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
