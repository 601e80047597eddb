"""Sentences that all forms of the report share."""

import shlex
from collections import Counter
from collections.abc import Collection

from onnxbisect.diagnosis import TargetEntry
from onnxbisect.language import _, english, marked
from onnxbisect.report.contents import Choice, CompilesAfterEntry, OpEntry, Report
from onnxbisect.report.culprit_contents import Complaint, CulpritEntry, Difference, EvidenceEntry
from onnxbisect.report.text import listed, plural, uncoloured
from onnxbisect.unitset import chosen, count_of
from onnxbisect.verdict import Kind

#: Most ops named for a replacement.
_OPS = 6

_KINDS = {
    "unsupported": marked("the compiler says that it does not support this"),
    "crash": marked("the compiler crashes"),
    "timeout": marked("the compiler does not finish in time"),
    "resource": marked("the compiler runs out of memory or of space"),
    "numeric": marked("it compiles and computes other numbers"),
    "fallback": marked("the compiler places it on the host"),
    "invalid": marked("the checker refuses it"),
    "unknown": marked("the profile that answers for the compiler does not say"),
    "error": marked("the compiler fails"),
}


def target(about: Choice) -> str:
    """`whitelist (profile=edgesam)`, or the user's own command."""
    if own := own_command(about):
        return shlex.join(own)
    options = ", ".join(options_as_typed(about))
    return f"{about['backend']} ({options})" if options else str(about["backend"])


def tool(about: TargetEntry) -> str:
    """`onnxruntime 1.31.1`: the tool and its version, as far as known."""
    return " ".join(part for part in (about["tool"], about["version"]) if part)


def computes_others(failures: Collection[str]) -> bool:
    """Whether these culprits, by their failures, compile and all that is wrong is their numbers."""
    return bool(failures) and set(failures) == {Kind.NUMERIC}


def outcome(document: Report) -> str:
    """The verdict, which is read first."""
    if document["verdict"] == "fail" and computes_others([culprit["failure"] for culprit in document["culprits"]]):
        return _("Computes other numbers")
    return {"pass": _("Compiles"), "fail": _("Does not compile")}.get(document["verdict"], _("Unresolved"))


#: Words for what programs call states, verdicts and the like; English has most of them as they are.
_NAMES = {
    "pass": marked("pass"),
    "fail": marked("fail"),
    "unresolved": marked("unresolved"),
    "unusable": marked("unusable"),
    "not_asked": marked("not_asked"),
    "refused": marked("refused"),
    "suspected": marked("suspected"),
    "passes": marked("passes"),
    "needs_context": marked("needs_context"),
    "unknown": marked("unknown"),
    "running": marked("running"),
    "waiting": marked("waiting"),
    "dropped": marked("dropped"),
    "proven": marked("proven"),
    "bounded": marked("bounded"),
    "error": marked("error"),
    "warning": marked("warning"),
    "info": marked("info"),
    "exact": marked("exact"),
    "rounding": marked("rounding"),
    "approximate": marked("approximate"),
    "domain": marked("domain"),
    "absent": marked("absent"),
}


def named(state: str) -> str:
    """A state, verdict, severity or exactness in the reader's language."""
    return _(_NAMES[state]) if state in _NAMES else state


#: Words for what is known of a whole model on a target.
_OF_WHOLE = {
    "pass": marked("compiles"),
    "fail": marked("does not compile"),
    "unresolved": marked("no answer"),
    "unusable": marked("cannot be asked"),
    "not_asked": marked("not asked"),
}


def of_whole(state: str) -> str:
    """`does not compile`, `cannot be asked`: the state of a whole model, in the reader's language."""
    return _(_OF_WHOLE.get(state, state))


def stop(phrase: str) -> str:
    """The phrase as a sentence: with a capital letter and a full stop."""
    return _("{sentence}.", sentence=f"{phrase[:1].upper()}{phrase[1:]}") if phrase else ""


def headline(
    verdict: str, model: str, backend: str, certain: int, said: str = "", *, others: bool = False, alike: str = ""
) -> str:
    """The result in one sentence; `certain` counts the established culprits, `said` is why there is none.

    With `others` it compiles, and its numbers are wrong. `alike` are the words in which everything was refused.
    """
    match verdict:
        case "pass":
            return english("{model} compiles for {backend}", model=model, backend=backend)
        case "fail" if others:
            return english("{model} compiles for {backend} and computes other numbers", model=model, backend=backend)
        case "fail" if alike:
            return english(
                "{model} does not compile for {backend}, which refuses every op in the same words: {said}",
                model=model,
                backend=backend,
                said=alike,
            )
        case "fail" if certain:
            return english("{model} does not compile for {backend}", model=model, backend=backend)
        case "fail":
            return english(
                "{model} does not compile for {backend}: nothing is established yet", model=model, backend=backend
            )
    if said:
        return english(
            "it is not known whether {model} compiles for {backend}: {reason}",
            model=model,
            backend=backend,
            reason=said,
        )
    return english("it is not known whether {model} compiles for {backend}", model=model, backend=backend)


#: The certificate of a model that compiles after a change of its file, or with other options.
NOT_SEARCHED = english("bounded: a changed file compiles, so the parts of the file as it is were not searched")
WITH_OPTIONS = english(
    "bounded: the file compiles with other options, so its parts were not searched with the options given"
)


def in_file_after(headline: str, change: str) -> str:
    """The headline of a search in a changed file, since the file as it is fails for a reason that hides others."""
    return english("{sentence}; searched in the file after: {clauses}", sentence=headline, clauses=change)


def compiles_after(document: Report, found: CompilesAfterEntry) -> str:
    """The headline of a model that compiles after a change of its file."""
    known = plural(found["calls"], "call") if found["calls"] else english("known before")
    model, asked = document["model"]["name"], target(document["target"])
    return english(
        "{model} compiles for {backend} after: {clauses} (verified, {calls})",
        model=model,
        backend=asked,
        clauses=found["sentence"],
        calls=known,
    )


def bounded(culprits: int, *, compiled: int, unknown: int, units: int) -> str:
    """A certificate that is no proof: how many of the units were seen to compile, and of how many nothing is known."""
    if compiled == units:
        seen = english("its one unit was seen to compile")
        if units > 1:
            seen = english("all {units} were seen to compile", units=plural(units, "unit"))
    elif compiled > 1:
        seen = english("{compiled} of {units} were seen to compile", compiled=compiled, units=plural(units, "unit"))
    elif compiled:
        seen = english("1 of {units} was seen to compile", units=plural(units, "unit"))
    else:
        seen = english("none of {units} was seen to compile", units=plural(units, "unit"))
    if unknown == units:
        return english("bounded: {seen}", seen=seen)
    if not unknown:
        return english("bounded: {seen}, which does not prove that nothing else fails", seen=seen)
    rest = english("1 is unknown") if unknown == 1 else english("{unknown} are unknown", unknown=unknown)
    if culprits:
        return english("bounded: {seen}, {rest}, so there may be more culprits", seen=seen, rest=rest)
    return english("bounded: {seen}, {rest}", seen=seen, rest=rest)


def proven(
    verdict: str, culprits: int, *, removed: int, remainder: int, blamed: int, ways: int, inferred: int = 0
) -> str:
    """A certificate that is a proof. It does not cover `inferred` places.

    `remainder` units are left once `removed` are taken out of the model; `blamed` units belong to culprits, more than
    `removed` if leaving out one unit breaks a culprit of several; `ways` counts the passing probes.
    """
    if verdict == "pass":
        if remainder > 1:
            return english("proven: all {units} compile together", units=plural(remainder, "unit"))
        return english("proven: its one unit compiles")
    rest = english("{units} compile", units=plural(remainder, "unit")) if remainder > 1 else english("unit compiles")
    them = english("this culprit") if culprits == 1 else english("these {culprits} culprits", culprits=culprits)
    if not remainder:
        proof = english("proven: every unit belongs to a culprit, nothing else is left")
    elif blamed == removed:
        proof = english("proven: without {them} the other {rest}, so nothing else is wrong", them=them, rest=rest)
    elif ways > 1:
        proof = english(
            "proven: in each of the {ways} ways to break up {them} the rest compiles, so nothing else is wrong",
            ways=ways,
            them=them,
        )
    else:
        proof = english(
            "proven: with {units} taken out, which breaks up {them}, the other {rest}, so nothing else is wrong",
            units=plural(removed, "unit"),
            them=them,
            rest=rest,
        )
    if not inferred:
        return proof
    return english(
        "{sentence} ({places} assumed, not confirmed inside the model)",
        sentence=proof,
        places=plural(inferred, "place"),
    )


def meaning(document: Report) -> str:
    """What `proven` or `bounded` is worth, for readers who see a certificate for the first time."""
    certificate = document["certificate"]
    after = document.get("compiles_after")
    if after and after.get("options") and not after["remedies"]:
        return _(
            "no list was made. The file was compiled as a whole only, and failed with the options given; it compiles "
            "with those that the compiler named. Run it with --as-is to search it with the options given."
        )
    if after:
        return _(
            "no list was made. The file as it is was compiled as a whole only, and failed; the changed file compiles. "
            "Run it with --as-is to search the file as it is."
        )
    if certificate["status"] != "proven":
        if not document["culprits"]:
            return _("nothing certain was found. The reasons follow.")
        return _(
            "the list may be incomplete. A culprit that is not marked as suspected or flaky does fail, in real "
            "compiles. The reasons why there may be more follow."
        )
    if document["verdict"] == "pass":
        return _("the list is complete, and empty. The whole model was compiled, and passed.")
    if not document["culprits"]:
        return _("the list is complete, and empty.")
    if not certificate["probes"]:
        return _(
            "the list is complete. Each culprit was compiled on its own and failed. "
            "So once these are dealt with, nothing else stands in the way."
        )
    return _(
        "the list is complete. Each culprit was compiled on its own and failed. "
        "The rest of the model was compiled without them, and passed. "
        "So once these are dealt with, nothing else stands in the way."
    )


def unknown_ops(document: Report) -> str:
    """`Gemm 15, Clip 5`: the ops of the units of which nothing is known, the most frequent first."""
    units = document["units"]
    ops = Counter(units["ops"][unit] for unit in chosen(units["states"]["unknown"], len(units["ops"])))
    return ", ".join(f"{op} {count}" for op, count in ops.most_common())


def unknown_nodes(document: Report) -> list[str]:
    """The names of the units of which nothing is known, in model order."""
    units = document["units"]
    return [units["names"][unit] for unit in chosen(units["states"]["unknown"], len(units["names"]))]


def doubt(document: Report) -> str:
    """Why this may not be about the model at all (everything fails in the same way); else empty."""
    culprits = document["culprits"]
    alike = len({(culprit["failure"], culprit["fingerprint"]) for culprit in culprits}) == 1
    if len(culprits) > 1 and alike and all(row["verdict"] == "fail" for row in document["op_table"]):
        return _("Every op fails, and all in the same way: first see that the compiler itself works.")
    return ""


def op_verdict(document: Report, row: OpEntry) -> str:
    """The verdict on an op in words."""
    own = [culprit for culprit in document["culprits"] if culprit["id"] in row["culprits"]]
    if row["verdict"] == "fail" and computes_others([culprit["failure"] for culprit in own]):
        return _("other numbers")
    if row["verdict"] == "mixed":
        kinds = {culprit["kind"] for culprit in own}
        return _("in part") if "single" in kinds else _("together")
    found = {"fail": _("refused"), "needs_context": _("needs context"), "pass": _("compiles")}
    return found.get(row["verdict"], _("unknown"))


def failure(culprit: Complaint) -> str:
    """The compiler's message for a culprit, else how it fails; says so where it compiles to other numbers."""
    kind = _(_KINDS.get(culprit["failure"], culprit["failure"]))
    said = uncoloured(str(culprit["message"] or culprit["fingerprint"] or kind)).strip()
    if culprit["failure"] == Kind.NUMERIC and culprit["message"]:
        return _("computes other numbers: {said}", said=said)
    return said


def refused_within(culprit: CulpritEntry) -> str:
    """`refused inside of it: Sin (then_branch)`; empty where the log names nothing in its bodies."""
    found = list(dict.fromkeys(f"{it['op']} ({it['body']})" for it in culprit.get("refused_within", ())))
    if not found:
        return ""
    return _("refused inside of it: {ops}", ops=listed(found, _OPS))


def replace_by(culprit: CulpritEntry) -> str:
    """`Relu, Mul, Add (abs-relu, exact)`; empty where no rule applies, or none was looked for."""
    found = culprit.get("replace_by")
    if found is None:
        return ""
    ops = list(dict.fromkeys(found["gives"])) or [_("a constant")]
    return f"{listed(ops, _OPS)} ({' + '.join(found['rules'])}, {named(found['exactness'])})"


def certainty(culprit: CulpritEntry) -> str:
    """How sure a culprit is; empty for a confirmed one."""
    if culprit["certainty"] == "flaky":
        return _("flaky: the compiler contradicts itself, {sure} sure", sure=f"{culprit['confidence']:.1%}")
    return (
        _("suspected: not every probe that would confirm it was answered")
        if culprit["certainty"] == "suspected"
        else ""
    )


def inferred(culprit: CulpritEntry) -> str:
    """At how many of its places an op was seen to fail; empty if at all of them."""
    unseen = count_of(culprit.get("inferred_units", ""))  # reports of earlier versions do not have it
    if not unseen or culprit["certainty"] == "suspected":
        return ""
    places = len(culprit["occurrences"])
    if unseen == places:
        return _("refused alone; inside the model assumed, where ops that differ in constants only were seen to fail")
    return _(
        "confirmed inside the model at {seen} of {places} places; assumed for the other {unseen}",
        seen=places - unseen,
        places=places,
        unseen=unseen,
    )


def at_most(culprit: CulpritEntry) -> str:
    """How many nodes of an op the target accepts, if that is what fails; else empty."""
    limit = culprit.get("at_most")  # reports of earlier versions do not have it
    if limit is None:
        return ""
    return _("the target takes at most {allowed} of these {among}", allowed=limit["allowed"], among=limit["among"])


def proof(evidence: EvidenceEntry, kind: str) -> list[str]:
    """The evidence of a culprit as sentences."""
    sentences = []
    if evidence["fails"]:
        sentences.append(_("It fails on its own ({probe}).", probe=evidence["fails"]))
    subsets = [name for name in dict.fromkeys(evidence["subsets"]) if name]
    if subsets and kind == "interaction":
        sentences.append(_("Every part of it compiles ({probes}).", probes=", ".join(subsets)))
    if evidence["context"] and evidence["blame"]:
        context, blame = evidence["context"], evidence["blame"]
        sentences.append(
            _(
                "The rest of the model compiles ({context}) and fails once this is added ({blame}).",
                context=context,
                blame=blame,
            )
        )
    return sentences


def difference(entry: Difference) -> str:
    """`attribute axis: 0 instead of 1`: the passing value, then the culprit's."""
    mine, theirs = (_("absent") if value is None else value for value in (entry["culprit"], entry["passes"]))
    return _("{what}: {theirs} instead of {mine}", what=entry["what"], theirs=theirs, mine=mine)


def own_command(about: Choice) -> list[str]:
    """The command after `--`; empty for other backends."""
    own = about["options"].get("command")
    return [str(word) for word in own] if about["backend"] == "command" and isinstance(own, list) else []


def options_as_typed(about: Choice) -> list[str]:
    """The options for the command line, without the hashes by which a backend marks its files."""
    values = {key: value for key, value in about["options"].items() if key != "definition"}
    return [
        f"{key}={_option(value)}" for key, value in values.items() if value is not None and not isinstance(value, dict)
    ]


def _option(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(_option(item) for item in value) if isinstance(value, list) else str(value)
