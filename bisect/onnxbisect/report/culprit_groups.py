"""Culprits as readers see them: variants of one op that are refused in the same words are one row of a table."""

from collections.abc import Sequence
from dataclasses import dataclass

from onnxbisect.language import _
from onnxbisect.report import cause_words, source_lines, words
from onnxbisect.report.contents import Report
from onnxbisect.report.culprit_contents import CulpritEntry
from onnxbisect.report.source_lines import SourceLine
from onnxbisect.report.text import plural

_Numbered = tuple[int, CulpritEntry]


@dataclass(frozen=True, kw_only=True)
class Row:
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
    def sources(self) -> list[SourceLine]:
        """The lines of the user's source that they come from; empty if unknown."""
        return source_lines.of(*(culprit for _, culprit in self.members))


def rows(document: Report) -> list[tuple[str, list[Row]]]:
    """The rows below the heading of their cause, which is empty where each culprit has its own."""
    return [(heading, _alike(numbered)) for heading, numbered in cause_words.grouped(document)]


def count(document: Report) -> str:
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


def _alike(culprits: Sequence[_Numbered]) -> list[Row]:
    groups: dict[tuple[str, ...], list[_Numbered]] = {}
    for number, culprit in culprits:
        said = culprit["fingerprint"] or words.failure(culprit)
        seen = (culprit["kind"], *culprit["ops"], said, words.certainty(culprit))
        groups.setdefault(seen, []).append((number, culprit))
    return [Row(members=found) for found in groups.values()]
