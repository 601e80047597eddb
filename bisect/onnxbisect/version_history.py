"""Since when a compiler refuses, or takes, parts of a model: which of its versions to ask, and what follows.

Versions are numbered from the oldest. Answers are whether a version takes a part, None where it gave no answer; what
was not asked is not in the mapping.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

#: Of one part, by the number of the version.
Answers = Mapping[int, bool | None]


@dataclass(frozen=True, kw_only=True)
class Change:
    """Two versions with different answers and no answer between them. `takes` is the newer one's."""

    before: int
    after: int
    takes: bool


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of the model with what versions say of it; without `nodes` it is the whole model.

    `message` is what the compiler says where it refuses it, `places` how often it occurs.
    """

    answers: Answers
    ops: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    places: int = 1
    message: str = ""

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """The oldest first."""
        return changes(self.answers)


@dataclass(frozen=True, kw_only=True)
class VersionHistory:
    """What versions of a compiler say of a model. `parts` begins with the whole model.

    `unusable` are sentences about versions that could not be asked. `finished`: nothing is left to ask that would
    narrow a change. `installs` were made for it, and `calls` of the compiler.
    """

    model: str
    compiler: str
    versions: tuple[str, ...]
    parts: tuple[Part, ...]
    unusable: Mapping[int, str]
    finished: bool
    installs: int
    calls: int

    @property
    def asked(self) -> tuple[int, ...]:
        """The versions that were asked, the oldest first."""
        return tuple(sorted({number for part in self.parts for number in part.answers}))


def changes(answers: Answers) -> tuple[Change, ...]:
    """Where neighbouring answers differ, the oldest change first."""
    known = sorted(number for number, answer in answers.items() if answer is not None)
    return tuple(
        Change(before=one, after=other, takes=bool(answers[other]))
        for one, other in pairwise(known)
        if answers[one] != answers[other]
    )


def next_version(parts: Sequence[Answers], unusable: frozenset[int] = frozenset()) -> int | None:
    """The version to ask about all parts next; None where nothing more would narrow a change.

    It is in the middle of the widest gap between two different answers, so a part that has changed once costs about
    log2 of the number of versions. Versions that are `unusable`, or gave no answer, are passed over.
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
