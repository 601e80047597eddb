"""Find the compiler versions at which parts of a model began to be refused or accepted.

Versions are numbered from the oldest. An answer is whether a version accepts a part, or None if it gave no answer;
versions that were not called are missing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

#: The answers about one part by version number.
Answers = Mapping[int, bool | None]


@dataclass(frozen=True, kw_only=True)
class VersionChange:
    """Two versions with different answers and no answer between them; `takes` is the newer version's."""

    before: int
    after: int
    takes: bool


@dataclass(frozen=True, kw_only=True)
class VersionedPart:
    """A part of the model with the answers of versions; without `nodes` it is the whole model.

    `message` is the compiler's text where it refuses the part, `places` the number of occurrences.
    """

    answers: Answers
    ops: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    places: int = 1
    message: str = ""

    @cached_property
    def changes(self) -> tuple[VersionChange, ...]:
        """The changes of this part, oldest first."""
        return changes(self.answers)


@dataclass(frozen=True, kw_only=True)
class VersionHistory:
    """The answers of compiler versions about a model. `parts` begins with the whole model.

    `unusable` are sentences about versions that could not be called. `finished` tells that no further call would narrow
    a change. `installs` and `calls` count the installations and compiler calls made.
    """

    model: str
    compiler: str
    versions: tuple[str, ...]
    parts: tuple[VersionedPart, ...]
    unusable: Mapping[int, str]
    finished: bool
    installs: int
    calls: int

    @property
    def asked(self) -> tuple[int, ...]:
        """The versions that were called, oldest first."""
        return tuple(sorted({number for part in self.parts for number in part.answers}))


def changes(answers: Answers) -> tuple[VersionChange, ...]:
    """The pairs of neighbouring answers that differ, oldest first."""
    known = sorted(number for number, answer in answers.items() if answer is not None)
    return tuple(
        VersionChange(before=one, after=other, takes=bool(answers[other]))
        for one, other in pairwise(known)
        if answers[one] != answers[other]
    )


def next_version(parts: Sequence[Answers], unusable: frozenset[int] = frozenset()) -> int | None:
    """The version to call for all parts next; None where no call would narrow a change.

    It is in the middle of the widest gap between two different answers, so a part that changed once costs about log2 of
    the number of versions. Skips versions that are `unusable` or gave no answer.
    """
    gaps = [
        (change, left)
        for answers in parts
        for change in changes(answers)
        if (left := set(range(change.before + 1, change.after)) - unusable - answers.keys())
    ]
    if not gaps:
        return None
    change, left = max(gaps, key=lambda gap: (len(gap[1]), -gap[0].before))
    middle = (change.before + change.after) / 2
    return min(left, key=lambda number: (abs(number - middle), number))
