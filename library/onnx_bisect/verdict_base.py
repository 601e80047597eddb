"""The verdict base: stores compilers' answers, so that no probe is compiled twice.

An answer is stored by target (tool, version, options, probe format), probe key (`onnxbisect.key`: the structure of the
probe, not its names) and attempt: attempt 0 is the first compile of a probe, and each repetition in a fresh process is
the next attempt. Answers of different attempts are never exchanged, so a search that is started again sees the same
sequence of answers, also from a flaky compiler. Unresolved verdicts are not stored, since their cause may be temporary;
an exception are those of a profile without a rule for the probe.

A journal lists the sets of units that one search compiled. With several workers the order of answers influences the
search, so a second run first takes all answers in the journal and needs no compile. Another version of the model has
its own journal and finds the answers for unchanged parts by probe key.
"""

from dataclasses import dataclass
from typing import Protocol

from onnxbisect.answer import Answer
from onnxbisect.unitset import UnitSet


@dataclass(frozen=True, kw_only=True)
class JournalEntry:
    """One entry of the journal: the search compiled these units, whose probe key is `key`, as this attempt."""

    units: UnitSet
    attempt: int
    key: str
    why: str


class VerdictBase(Protocol):
    """Stores answers. Used by one thread. Methods never raise: a broken cache must not fail a run."""

    @property
    def problem(self) -> str | None:
        """A sentence for the user if answers could not be stored for the next run, else None."""

    def get(self, key: str, attempt: int) -> Answer | None:
        """The answer of that attempt, None if it is not stored."""

    def put(self, key: str, attempt: int, answer: Answer) -> None:
        """Store an answer, replacing that of the same attempt. An answer that is not final is ignored."""

    def journal(self) -> list[JournalEntry]:
        """The probes that earlier runs of this search compiled, in the order of their answers."""

    def note(self, asked: JournalEntry) -> None:
        """Add an entry to the journal, unless it has one with the same units and attempt."""

    def close(self) -> None:
        """Close the file."""


class InMemoryVerdictBase:
    """Stores answers in memory: for `--no-cache`, and if the file cannot be written."""

    def __init__(self, problem: str | None = None) -> None:
        self.problem = problem
        self._answers: dict[tuple[str, int], Answer] = {}
        self._journal: dict[tuple[UnitSet, int], JournalEntry] = {}

    def get(self, key: str, attempt: int) -> Answer | None:
        return self._answers.get((key, attempt))

    def put(self, key: str, attempt: int, answer: Answer) -> None:
        if answer.verdict.final:
            self._answers[key, attempt] = answer

    def journal(self) -> list[JournalEntry]:
        return list(self._journal.values())

    def note(self, asked: JournalEntry) -> None:
        self._journal.setdefault((asked.units, asked.attempt), asked)

    def close(self) -> None:
        """Does nothing."""
