"""Results with other options of the target: entries of the document, and their wording."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnxbisect.language import _
from onnxbisect.report.contents import Report
from onnxbisect.report.culprit_contents import AlternativeEntry
from onnxbisect.report.text import plural
from onnxbisect.verdict import Status

if TYPE_CHECKING:  # reports are told in processes that plan nothing
    from onnxbisect.diagnosis import Alternative


def alternative_entries(alternatives: "Sequence[Alternative]", identities: Sequence[str]) -> list[AlternativeEntry]:
    """Entries in the order in which the options were tried; `identities` are the ids of the culprits."""
    return [_entry(one, identities) for one in alternatives]


def called(alternative: AlternativeEntry) -> str:
    """The changed options, as a user types them."""
    return ", ".join(f"{key}={value}" for key, value in alternative["options"].items())


def outcome(document: Report, alternative: AlternativeEntry) -> str:
    """The compiler's result with these options, in one phrase."""
    if alternative["problem"]:
        return _("not asked: {problem}", problem=alternative["problem"])
    if alternative["whole"] == "pass":
        return _("the whole model compiles")
    culprits = len(document["culprits"])
    if not culprits:
        return _("refuses the whole model") if alternative["whole"] == "fail" else _("no answer")
    if alternative["whole"] is not None:
        taken = _("the culprit") if culprits == 1 else _("all {culprits} culprits", culprits=culprits)
        return _(
            "takes {taken}, and not the whole model: {message}",
            taken=taken,
            message=alternative["message"] or "no answer",
        )
    numbers = [number for number, it in enumerate(document["culprits"], 1) if it["id"] in alternative["takes"]]
    silent = _(", no answer about {count}", count=len(alternative["unknown"])) if alternative["unknown"] else ""
    if not numbers:
        return _("takes none of {culprits}{silent}", culprits=plural(culprits, "culprit"), silent=silent)
    return _(
        "takes {count} of {culprits}: {ranges}{silent}",
        count=len(numbers),
        culprits=plural(culprits, "culprit"),
        ranges=_ranges(numbers),
        silent=silent,
    )


def cost(document: Report) -> str:
    """The number of compiler calls for all alternatives, in words."""
    calls = sum(it["compiler_calls"] for it in document["alternatives"])
    cached = sum(it["cached"] for it in document["alternatives"])
    known = (" " + _("and {answers}", answers=plural(cached, "known answer"))) if cached else ""
    return _("{calls}{known} for other options", calls=plural(calls, "compiler call"), known=known)


def _entry(one: "Alternative", identities: Sequence[str]) -> AlternativeEntry:
    pairs = list(zip(identities, one.culprits, strict=True)) if one.culprits else []
    return {
        "options": dict(one.options),
        "tool": one.tool,
        "version": one.version,
        "takes": [identity for identity, verdict in pairs if verdict is not None and verdict.passed],
        "refuses": [
            {"culprit": identity, "message": verdict.message}
            for identity, verdict in pairs
            if verdict is not None and verdict.failed
        ],
        "unknown": [identity for identity, verdict in pairs if verdict is None or verdict.status is Status.UNRESOLVED],
        "whole": None if one.whole is None else one.whole.status,
        "message": "" if one.whole is None or one.whole.passed else one.whole.message,
        "problem": one.problem,
        "compiler_calls": one.calls,
        "cached": one.cached,
    }


def _ranges(numbers: Sequence[int]) -> str:
    """Format the numbers 1, 2, 3, 7 as `1-3, 7`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
