"""Culprits as readers see them: sentences about causes, variants of one op as one row of a table, lines of source."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxbisect.language import _
from onnxbisect.report import words
from onnxbisect.report.contents import Report
from onnxbisect.report.culprit_contents import CauseEntry, ContrastEntry, CulpritEntry, NeedsContextEntry, OriginEntry
from onnxbisect.report.text import plural

if TYPE_CHECKING:  # it brings ONNX along
    from onnxbisect.model.modules import Origin

_Numbered = tuple[int, CulpritEntry]


def telling(document: Report) -> list[CauseEntry]:
    """The causes that say more than which ops are refused; empty for reports of versions without causes."""
    return [cause for cause in document.get("causes", []) if cause["telling"]]


def leading(document: Report) -> list[CauseEntry]:
    """The result of `telling`, if one of these causes explains several culprits; else empty."""
    causes = telling(document)
    return causes if any(len(cause["culprits"]) > 1 for cause in causes) else []


def sentence(cause: CauseEntry) -> str:
    """`tensors of rank 6 or more (39 of 39 places refused; nothing of rank 6 passed)`."""
    refused, unknown = cause["places"]["refused"], cause["places"]["unknown"]
    seen = _("{refused} of {places} refused", refused=refused, places=plural(refused + unknown, "place"))
    if not cause["established"]:
        seen = _("suspected at {places}", places=plural(refused, "place"))
    confirmed = (
        _("; confirmed: {passes} compiles", passes=cause["contrast"][0]["passes"])
        if cause["state"] == "confirmed"
        else ""
    )
    about = {"text": cause["text"], "seen": seen, "nothing_passed": cause["nothing_passed"], "confirmed": confirmed}
    return _("{text} ({seen}; {nothing_passed}{confirmed})", **about)


def compiles(contrast: ContrastEntry) -> str:
    """`Gather with indices of rank 1 (12 places)`."""
    return _("{passes} ({where})", passes=contrast["passes"], where=where(contrast))


def where(contrast: ContrastEntry) -> str:
    """The number of places that passed, or `asked on its own` for a changed culprit."""
    return plural(contrast["places"], "place") if contrast["places"] else _("asked on its own")


def cause_count(document: Report) -> str:
    """`2 causes explain 13 of 15 culprits`; empty where each culprit has its own."""
    causes = leading(document)
    if not causes:
        return ""
    explained, culprits = sum(len(cause["culprits"]) for cause in causes), len(document["culprits"])
    whom = (
        plural(culprits, "culprit")
        if explained == culprits
        else _("{explained} of {culprits}", explained=explained, culprits=plural(culprits, "culprit"))
    )
    if len(causes) == 1:
        return _("1 cause explains {whom}", whom=whom)
    return _("{causes} explain {whom}", causes=plural(len(causes), "cause"), whom=whom)


def summary(document: Report) -> str:
    """The result of `count`, and for a single cause also its sentence."""
    causes = leading(document)
    return (
        _("{count}: {sentence}", count=cause_count(document), sentence=sentence(causes[0]))
        if len(causes) == 1
        else cause_count(document)
    )


def instead(contrast: ContrastEntry) -> str:
    """`Gather with indices of rank 1 instead of scalar indices (12 places)`."""
    return _(
        "{passes} instead of {condition} ({where})",
        passes=contrast["passes"],
        condition=contrast["condition"],
        where=where(contrast),
    )


def of_culprit(document: Report, culprit: CulpritEntry) -> CauseEntry | None:
    """The cause that explains a culprit; None if it says no more than which op is refused."""
    cause = _cause(document, culprit)
    return cause if cause and cause["telling"] else None


def in_company(document: Report, culprit: CulpritEntry) -> bool:
    """Whether what passed instead of a culprit did so only beside other ops, which may be why."""
    cause = _cause(document, culprit)
    return cause is not None and cause["state"] == "observed" and not cause["telling"]


def _cause(document: Report, culprit: CulpritEntry) -> CauseEntry | None:
    place, causes = culprit.get("cause", -1), document.get("causes", [])  # reports of earlier versions have neither
    return causes[place] if 0 <= place < len(causes) else None


def numbers(document: Report) -> dict[str, int]:
    """The number of each culprit by its id, counted from 1."""
    return {culprit["id"]: number for number, culprit in enumerate(document["culprits"], 1)}


def grouped(document: Report) -> list[tuple[str, list[_Numbered]]]:
    """Culprits with their numbers, grouped by cause; each group has a heading.

    Where each culprit has its own cause, all are in one group with an empty heading.
    """
    left = {culprit["id"]: (number, culprit) for number, culprit in enumerate(document["culprits"], 1)}
    causes = leading(document)
    groups = [(str(cause["text"]), _taken(left, [cause])) for cause in causes]
    alone = [cause for cause in document.get("causes", []) if causes and cause["state"] == "no_contrast"]
    groups.append((_("ops that never passed"), _taken(left, alone)))
    groups.append((_("not explained by one condition") if causes else "", list(left.values())))
    return [(heading, culprits) for heading, culprits in groups if culprits]


def _taken(left: dict[str, _Numbered], causes: Sequence[CauseEntry]) -> list[_Numbered]:
    identities = [identity for cause in causes for identity in cause["culprits"]]
    return sorted((left.pop(identity) for identity in identities if identity in left), key=lambda entry: entry[0])


@dataclass(frozen=True, kw_only=True)
class CulpritGroup:
    """Culprits that look alike, with their numbers; `culprit` is the first of them."""

    members: Sequence[_Numbered]

    @property
    def number(self) -> int:
        """The number of the first culprit."""
        return self.members[0][0]

    @property
    def culprit(self) -> CulpritEntry:
        """The first culprit."""
        return self.members[0][1]

    @property
    def numbers(self) -> list[int]:
        """The numbers of all of them."""
        return [number for number, _ in self.members]

    @property
    def places(self) -> int:
        """How many places they have in the model."""
        return sum(len(culprit["occurrences"]) for _, culprit in self.members)

    @property
    def replace_by(self) -> str:
        """What replaces them, with several answers where variants differ; empty if nothing is known to."""
        return "; ".join(dict.fromkeys(found for _, it in self.members if (found := words.replace_by(it))))

    @property
    def variants(self) -> str:
        """`input 1: 0, 2, 3`, what tells the variants apart, in the order of their numbers; empty for one variant."""
        if len(self.members) == 1:
            return ""
        values: dict[str, list[str]] = {}
        for _number, culprit in self.members:
            for fact in culprit.get("variant", ()):
                values.setdefault(fact["what"], []).append(_("absent") if fact["value"] is None else fact["value"])
        return "; ".join(f"{what}: {_listed(found)}" for what, found in values.items() if len({*found}) > 1)

    @property
    def sources(self) -> "list[SourceLine]":
        """The lines of the user's source that they come from; empty if unknown."""
        return source_lines(*(culprit for _, culprit in self.members))


def variant(culprit: CulpritEntry) -> str:
    """`input 1: constant int64 = 0`, what tells the culprit from other variants of its op; empty if there are none."""
    facts = ((fact["what"], fact["value"]) for fact in culprit.get("variant", ()))
    return "; ".join(f"{what}: {_('absent') if value is None else value}" for what, value in facts)


def rows(document: Report) -> list[tuple[str, list[CulpritGroup]]]:
    """The rows below the heading of their cause, which is empty where each culprit has its own."""
    found = []
    for heading, numbered in grouped(document):
        groups: dict[tuple[str, ...], list[_Numbered]] = {}
        for number, culprit in numbered:
            said = culprit["fingerprint"] or words.failure(culprit)
            alike = (culprit["kind"], *culprit["ops"], said, words.certainty(culprit))
            groups.setdefault(alike, []).append((number, culprit))
        found.append((heading, [CulpritGroup(members=group) for group in groups.values()]))
    return found


def place_count(document: Report) -> str:
    """What the table shows: `4 ops at 12 places`, or `2 culprits at 3 places` where some are more than one op."""
    shown = [row for _, found in rows(document) for row in found]
    single = all(row.culprit["kind"] == "single" for row in shown)
    ops = len({tuple(row.culprit["ops"]) for row in shown}) if single else len(shown)
    places = plural(sum(row.places for row in shown), "place")
    culprits = plural(ops, "op") if single else plural(ops, "culprit")
    return _("{culprits} at {places}", culprits=culprits, places=places)


def _listed(values: Sequence[str]) -> str:
    """Values of constants of one type without that type: `0, 2` for `constant int64 = 0` and `constant int64 = 2`."""
    parts = [value.partition(" = ") for value in values]
    if len({(before, sign) for before, sign, _value in parts}) == 1 and parts[0][1]:
        values = [value for _before, _sign, value in parts]
    return ", ".join(values)


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
        return with_count(self.text, self.nodes)


def source_lines(*entries: CulpritEntry | NeedsContextEntry) -> list[SourceLine]:
    """The lines of these culprits that say more than their node names, those of a culprit's first node first."""
    told = [
        it for entry in entries for it in entry["origin"] if it["file"] or (it["scope"] or "") not in str(it["node"])
    ]
    found: dict[tuple[object, ...], list[OriginEntry]] = {}
    for it in told:
        found.setdefault((it["file"], it["line"]) if it["file"] else (it["scope"],), []).append(it)
    lines = []
    for group in found.values():
        first = group[0]
        nodes = sum(it.get("nodes", 1) for it in group)
        if first["file"] is None:
            lines.append(SourceLine(where=str(first["scope"]), code="", nodes=nodes))
            continue
        where = f"{_file_name(first['file'])}:{first['line']}"
        if not first["code"] and first["function"]:
            where += f" in {first['function']}"
        # modules that the nodes' names do not contain
        scopes = list(dict.fromkeys(str(it["scope"]) for it in group if it["scope"] and it["scope"] not in it["node"]))
        more = f" {_('and {more} more', more=len(scopes) - 1)}" if len(scopes) > 1 else ""
        modules = f"{scopes[0]}{more}" if scopes else ""
        lines.append(
            SourceLine(where=where, code=first["code"] or "", nodes=nodes, file=first["file"], modules=modules)
        )
    return lines


def source_line(place: "Origin") -> str:
    """`model.py:112  x[:, i, :]` of one node; empty where the exporter recorded no line."""
    if place.file is None:
        return ""
    where = f"{_file_name(place.file)}:{place.line}"
    return f"{where}  {place.code}" if place.code else where


def with_count(text: str, nodes: int) -> str:
    """The text of a line with the number of nodes that come from it, where there are several."""
    where, between, code = text.partition("  ")
    return text if nodes == 1 else f"{where} ({plural(nodes, 'node')}){between}{code}"


def lines_missing(document: Report) -> str:
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


def _file_name(file: str) -> str:
    return str(file).replace("\\", "/").rpartition("/")[2]
