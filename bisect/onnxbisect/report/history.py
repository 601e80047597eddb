"""The compiler versions at which parts of a model began to be refused or accepted: `onnx-bisect/regress@1`.

Versions are numbered from the oldest. An answer is whether a version accepts a part, or None if it gave no answer;
versions that were not called are missing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from onnxbisect.finished import translated
from onnxbisect.language import _, marked
from onnxbisect.report.text import Heading, Item, Quoted, Section, TextTable, plural

#: The value of `format`; a change that breaks readers counts the number up.
FORMAT = "onnx-bisect/regress@1"

_WORDS = {True: marked("yes"), False: marked("no"), None: "?"}

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


def history_sections(history: VersionHistory) -> Iterator[Section]:
    """The history for people."""
    asked, names = history.asked, []
    for part in history.parts:
        ops = " + ".join(part.ops[:4]) + (" …" if len(part.ops) > 4 else "")
        places = f", {plural(part.places, 'place')}" if part.places > 1 else ""
        names.append(Quoted(f"{ops} ({part.nodes[0]}{places})" if part.nodes else _("the whole model")))
    yield Heading(
        _(
            "{model} on {compiler}, {first} to {last}: {asked} of {versions} asked, {installs}, {calls}",
            model=history.model,
            compiler=history.compiler,
            first=history.versions[0],
            last=history.versions[-1],
            asked=len(asked),
            versions=plural(len(history.versions), "version"),
            installs=plural(history.installs, "install"),
            calls=plural(history.calls, "compiler call"),
        )
    )
    parts = list(zip(names, history.parts, strict=True))
    yield [Item(name, _since(history, part), [part.message]) for name, part in parts]
    yield TextTable(
        head=["", *(Quoted(history.versions[number]) for number in asked)],
        rows=[
            [name, *(_(_WORDS[part.answers[number]]) if number in part.answers else "" for number in asked)]
            for name, part in parts
        ],
        limits=[40, *(16 for _ in asked)],
    )
    for number, why in sorted(history.unusable.items()):
        yield _("{version} could not be asked: {reason}", version=history.versions[number], reason=translated(why))
    if not history.finished:
        yield _("The search ended early: changes may lie elsewhere between the versions that are named.")
    if unasked := len(history.versions) - len(asked) - len(history.unusable):
        yield _(
            "Not asked: {versions} between them; a change that was undone between them is not seen.",
            versions=plural(unasked, "version"),
        )


def history_document(history: VersionHistory) -> dict[str, Any]:
    """As data, JSON-able."""
    return {
        "format": FORMAT,
        "model": history.model,
        "compiler": history.compiler,
        "versions": list(history.versions),
        "asked": [history.versions[number] for number in history.asked],
        "unusable": {history.versions[number]: reason for number, reason in sorted(history.unusable.items())},
        "finished": history.finished,
        "installs": history.installs,
        "compiler_calls": history.calls,
        "parts": [
            {
                "whole": not part.nodes,
                "ops": list(part.ops),
                "nodes": list(part.nodes),
                "places": part.places,
                "message": part.message,
                "takes": {history.versions[number]: part.answers[number] for number in sorted(part.answers)},
                "changes": [
                    {
                        "takes": change.takes,
                        "before": history.versions[change.before],
                        "since": history.versions[change.after],
                        "open": list(history.versions[change.before + 1 : change.after]),
                    }
                    for change in part.changes
                ],
            }
            for part in history.parts
        ],
    }


def _since(history: VersionHistory, part: VersionedPart) -> str:
    if not part.changes:
        known = {answer for answer in part.answers.values() if answer is not None}
        if not known:
            return _("no version gave an answer")
        return (
            _("taken by every version that was asked")
            if True in known
            else _("refused by every version that was asked")
        )
    sentences = []
    for change in part.changes:
        since, before = history.versions[change.after], history.versions[change.before]
        if change.takes:
            sentence = _("taken since {since}, {before} refuses it", since=since, before=before)
        else:
            sentence = _("refused since {since}, {before} takes it", since=since, before=before)
        if between := history.versions[change.before + 1 : change.after]:
            them = between[0] if len(between) == 1 else _("{first} to {last}", first=between[0], last=between[-1])
            sentence += " " + _("(no answer from {versions})", versions=them)
        sentences.append(sentence)
    return _("; ").join(sentences)
