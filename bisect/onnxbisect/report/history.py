"""A version history for people and as data: `onnx-bisect/regress@1`."""

from typing import Any

from onnxbisect.report.text import aligned, clean, clip, code, plain, plural, table
from onnxbisect.version_history import VersionChange, VersionedPart, VersionHistory

#: The value of `format`; a change that breaks readers counts the number up.
FORMAT = "onnx-bisect/regress@1"

_WORDS = {True: "yes", False: "no", None: "?"}


def history_lines(history: VersionHistory, *, width: int = 100) -> list[str]:
    """As plain lines."""
    shown = [clean(_head(history)), ""]
    for part in history.parts:
        shown.append(clean(f"{_called(part)}: {_since(history, part)}"))
        if part.message:
            shown.append(clip(f"    {part.message}", width))
    rows = [("", *(history.versions[number] for number in history.asked))]
    rows += [(clip(_called(part), 40), *_cells(history, part)) for part in history.parts]
    shown += ["", *aligned(rows, [40, *(16 for _ in history.asked)])]
    return [line.rstrip() for line in [*shown, "", *map(clean, _notes(history))]]


def history_markdown(history: VersionHistory) -> str:
    """As GitHub-flavoured Markdown. All that comes from the model or the compiler is in code spans."""
    items = []
    for part in history.parts:
        said = f": {code(clip(part.message, 300))}" if part.message else ""
        items.append(f"- {code(_called(part))}: {plain(_since(history, part))}{said}")
    head = ("", *(code(history.versions[number], cell=True) for number in history.asked))
    rows = [(code(_called(part), cell=True), *_cells(history, part)) for part in history.parts]
    return (
        "\n\n".join([f"# {plain(_head(history))}", "\n".join(items), table(head, rows), *map(plain, _notes(history))])
        + "\n"
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


def _head(history: VersionHistory) -> str:
    asked, installed = len(history.asked), plural(history.installs, "install")
    return (
        f"{history.model} on {history.compiler}, {history.versions[0]} to {history.versions[-1]}: "
        f"{asked} of {plural(len(history.versions), 'version')} asked, {installed}, "
        f"{plural(history.calls, 'compiler call')}"
    )


def _called(part: VersionedPart) -> str:
    if not part.nodes:
        return "the whole model"
    ops = " + ".join(part.ops[:4]) + (" …" if len(part.ops) > 4 else "")
    return f"{ops} ({part.nodes[0]}{f', {part.places} places' if part.places > 1 else ''})"


def _since(history: VersionHistory, part: VersionedPart) -> str:
    changes = part.changes
    if not changes:
        known = {answer for answer in part.answers.values() if answer is not None}
        if not known:
            return "no version gave an answer"
        return f"{'taken' if known == {True} else 'refused'} by every version that was asked"
    return "; ".join(_sentence(history, change) for change in changes)


def _sentence(history: VersionHistory, change: VersionChange) -> str:
    since, before = history.versions[change.after], history.versions[change.before]
    words = ("taken", "refuses") if change.takes else ("refused", "takes")
    sentence = f"{words[0]} since {since}, {before} {words[1]} it"
    between = history.versions[change.before + 1 : change.after]
    if between:
        listed = between[0] if len(between) == 1 else f"{between[0]} to {between[-1]}"
        sentence += f" (no answer from {listed})"
    return sentence


def _cells(history: VersionHistory, part: VersionedPart) -> tuple[str, ...]:
    return tuple(_WORDS[part.answers[number]] if number in part.answers else "" for number in history.asked)


def _notes(history: VersionHistory) -> list[str]:
    unasked = len(history.versions) - len(history.asked) - len(history.unusable)
    unusable = sorted(history.unusable.items())
    notes = [f"{history.versions[number]} could not be asked: {why}" for number, why in unusable]
    if not history.finished:
        notes.append("The search ended early: changes may lie elsewhere between the versions that are named.")
    if unasked:
        them = "1 version between them was" if unasked == 1 else f"{unasked} versions between them were"
        notes.append(f"{them} not asked; a change that was undone between them is not seen.")
    return notes
