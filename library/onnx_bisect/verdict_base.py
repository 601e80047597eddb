"""What compilers have answered before, so that no question is paid for twice.

An answer belongs to a target (tool, version, options, probe format), a probe key (`onnxbisect.key`: the structure of
the probe, not its names) and an attempt: attempt 0 is the first compile of a question, and each time it is asked again
in a fresh process is an attempt of its own. An attempt is answered from here only by the compile that was that same
attempt, so a search that is started again reads the very sequence of answers that it once saw, a flaky one included.
Unresolved verdicts are not kept, since their cause may be gone tomorrow, but for those of a profile that does not know.

Beside the answers stands a journal: which sets of units one search asked. With several workers the order in which
answers arrive steers the search, so a second run starts from all that the first one learnt and asks nothing. Another
version of the model has another journal, and finds what did not change by probe key.
"""

from dataclasses import dataclass
from typing import Protocol

from onnxbisect.answer import Answer
from onnxbisect.unitset import UnitSet


@dataclass(frozen=True, kw_only=True)
class JournalEntry:
    """One line of the journal: this search asked these units, which is the question `key`, for the nth time."""

    units: UnitSet
    attempt: int
    key: str
    why: str


class VerdictBase(Protocol):
    """Where answers are kept. One thread uses it. It never raises: a cache is not worth a failed run."""

    @property
    def problem(self) -> str | None:
        """A sentence for the user where answers are not kept for the next run although they should be."""

    def get(self, key: str, attempt: int) -> Answer | None:
        """The answer of that attempt at the question, None where it was never asked."""

    def put(self, key: str, attempt: int, answer: Answer) -> None:
        """Keep an answer; one of the same attempt is replaced, one that is not final ignored."""

    def journal(self) -> list[JournalEntry]:
        """What earlier runs of this search asked, in the order of answering."""

    def note(self, asked: JournalEntry) -> None:
        """Add to the journal; noting the same units and attempt again changes nothing."""

    def close(self) -> None:
        """Let go of the file."""


class InMemoryVerdictBase:
    """Remembers for as long as the process lives: `--no-cache`, and where no file can be written."""

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
        """Nothing to let go of."""
