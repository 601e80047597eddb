"""Minimal ways to break all culprits: what the certificate has to try."""

from collections.abc import Sequence

from onnxbisect.search.pattern import Occurrence
from onnxbisect.unitset import UnitSet, is_subset, members, of, sort_key

#: Up to so many minimal hitting sets are all tried; beyond, occurrences of one culprit are taken to be alike.
EXHAUSTIVE = 16
#: Beyond so many, even with occurrences alike, the certificate is bounded.
MOST = 64


def hitting_sets(culprits: Sequence[Sequence[Occurrence]]) -> tuple[list[UnitSet], bool, bool]:
    """Sets of units whose removal breaks every occurrence of every culprit: (sets, exhaustive, cut short).

    Exhaustive: every minimal hitting set of all occurrences (Berge's multiplication), at most `EXHAUSTIVE`.
    Otherwise the occurrences of a culprit are broken alike, all at the same unit of the pattern, and once more
    with the broken unit alternating, so that parts of different occurrences meet.
    """
    edges = [of(occurrence) for occurrences in culprits for occurrence in occurrences]
    every = _berge(edges)
    if every is not None:
        return sorted(every, key=sort_key), True, False
    sets: set[UnitSet] = {0}
    cut_short = False
    for occurrences in culprits:
        breaks = _uniform_breaks(occurrences)
        sets = {done | broken for done in sets for broken in breaks}
        if len(sets) > MOST:
            sets, cut_short = set(sorted(sets, key=sort_key)[:MOST]), True
    alternating = 0
    for occurrences in culprits:
        for index, occurrence in enumerate(occurrences):
            alternating |= 1 << occurrence[index % len(occurrence)]
    return sorted(_minimal(sets | {alternating}), key=sort_key), False, cut_short


def _uniform_breaks(occurrences: Sequence[Occurrence]) -> list[UnitSet]:
    return [of(occurrence[role] for occurrence in occurrences) for role in range(len(occurrences[0]))]


def _berge(edges: Sequence[UnitSet]) -> set[UnitSet] | None:
    singles = 0
    for edge in edges:
        if edge.bit_count() == 1:
            singles |= edge
    sets = {singles}
    for edge in edges:
        if edge & singles:
            continue
        grown: set[UnitSet] = set()
        for done in sets:
            grown.update([done] if done & edge else [done | 1 << unit for unit in members(edge)])
        sets = _minimal(grown)
        if len(sets) > EXHAUSTIVE:
            return None
    return sets


def _minimal(sets: set[UnitSet]) -> set[UnitSet]:
    return {one for one in sets if not any(other != one and is_subset(other, one) for other in sets)}
