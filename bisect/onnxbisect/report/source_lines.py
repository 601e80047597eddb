"""The lines of the user's source that culprits come from: `model.py:112  x[:, i, :]`, each line once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxbisect.language import _
from onnxbisect.report.contents import Report
from onnxbisect.report.culprit_contents import CulpritEntry, NeedsContextEntry, OriginEntry
from onnxbisect.report.text import plural

if TYPE_CHECKING:
    from onnxbisect.report.origin import Origin


@dataclass(frozen=True, kw_only=True)
class SourceLine:
    """A line, or the module where that is all that is known; `nodes` counts the nodes that come from it.

    `modules` are those around it that the nodes' names do not contain.
    """

    where: str
    code: str
    nodes: int
    file: str | None = None
    modules: str = ""

    @property
    def text(self) -> str:
        """`model.py:112 (layers.0)  x[:, i, :]`."""
        return f"{self.place}  {self.code}" if self.code else self.place

    @property
    def place(self) -> str:
        """`model.py:112 (layers.0)`."""
        return f"{self.where} ({self.modules})" if self.modules else self.where

    @property
    def counted(self) -> str:
        """`model.py:112 (4 nodes)  x[:, i, :]`, the text with the number of nodes where there are several."""
        return counted(self.text, self.nodes)


def of(*entries: CulpritEntry | NeedsContextEntry) -> list[SourceLine]:
    """The lines of these culprits that say more than their node names, those of a culprit's first node first."""
    told = [
        it for entry in entries for it in entry["origin"] if it["file"] or (it["scope"] or "") not in str(it["node"])
    ]
    found: dict[tuple[object, ...], list[OriginEntry]] = {}
    for it in told:
        found.setdefault((it["file"], it["line"]) if it["file"] else (it["scope"],), []).append(it)
    return [_line(group) for group in found.values()]


def of_place(place: "Origin") -> str:
    """`model.py:112  x[:, i, :]` of one node; empty where the exporter recorded no line."""
    if place.file is None:
        return ""
    where = f"{_name(place.file)}:{place.line}"
    return f"{where}  {place.code}" if place.code else where


def counted(text: str, nodes: int) -> str:
    """The text of a line with the number of nodes that come from it, where there are several."""
    where, between, code = text.partition("  ")
    return text if nodes == 1 else f"{where} ({plural(nodes, 'node')}){between}{code}"


def missing(document: Report) -> str:
    """How to export so that culprits have lines, where a file of PyTorch has none; else empty."""
    culprits = document["culprits"]
    if not culprits or not str(document["model"]["producer"]).startswith("pytorch"):
        return ""
    if any(it["file"] for culprit in culprits for it in culprit["origin"]):
        return ""
    return _(
        "The file has no lines of your source. It has them after torch.onnx.export(…, dynamo=True), or with "
        "verbose=True from the older exporter."
    )


def _line(group: Sequence[OriginEntry]) -> SourceLine:
    first = group[0]
    nodes = sum(it.get("nodes", 1) for it in group)
    # modules that the nodes' names do not contain
    scopes = list(dict.fromkeys(str(it["scope"]) for it in group if it["scope"] and it["scope"] not in it["node"]))
    if first["file"] is None:
        return SourceLine(where=str(first["scope"]), code="", nodes=nodes)
    where = f"{_name(first['file'])}:{first['line']}"
    if not first["code"] and first["function"]:
        where += f" in {first['function']}"
    more = f" {_('and {more} more', more=len(scopes) - 1)}" if len(scopes) > 1 else ""
    modules = f"{scopes[0]}{more}" if scopes else ""
    return SourceLine(where=where, code=first["code"] or "", nodes=nodes, file=first["file"], modules=modules)


def _name(file: str) -> str:
    return str(file).replace("\\", "/").rpartition("/")[2]
