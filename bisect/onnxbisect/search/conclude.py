"""Makes the diagnosis of a finished or unfinished search."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from onnxbisect.answer import Verdicts
from onnxbisect.diagnosis import (
    Certainty,
    CertificateStatus,
    CulpritKind,
    DiagnosedCulprit,
    Diagnosis,
    DiagnosisProof,
    Evidence,
)
from onnxbisect.language import english
from onnxbisect.search.context import REACH, like_groups_that_passed, passed_together
from onnxbisect.search.doubts import many_unconnected
from onnxbisect.search.oracle import Oracle
from onnxbisect.search.pattern import alone
from onnxbisect.search.places import may_be_excused, rests_on_a_part, seen_to_fail
from onnxbisect.search.search import SearchReplay
from onnxbisect.search.state import Suspect, sentence
from onnxbisect.unitset import UnitSet, is_subset, lowest, members, of, size, sort_key, union
from onnxbisect.universe import Universe
from onnxbisect.verdict import Kind, Status

DETERMINISTIC = english("the compiler answers the same question the same way (no answer here contradicts that)")
MONOTONE = english("a graph that contains a failing subgraph fails (every probe asked agrees with it)")
LOCAL = english(
    "a subgraph that fails with all nodes within {reach} steps of dataflow does not compile with more of them",
    reach=REACH,
)
TWO = english(
    "no other failure needs more than two units of these interactions, or two that are more than two steps apart in "
    "just these places, for not every way to break them up was tried"
)
COMBINED = english(
    "parts of an interaction that are far apart fail in every combination, if each was seen to fail in one"
)
EVERYWHERE = english("an op that is refused alone, and in its context in one place, is refused in its other places")
WHATEVER_CONSTANT = english(
    "an op that is refused alone, and in its context with other constants, is refused in its context"
)


def conclude(universe: Universe, oracle: Oracle, search: SearchReplay, recheck: bool, verdicts: Verdicts) -> Diagnosis:
    """What the search established, and what it leaves unknown.

    `verdicts` is the whole record, which may have more than the search asked for. Independently of the search, no
    culprit in a passing probe is stated as a fact, and the diagnosis is not proven if a failing probe contains none of
    its culprits.
    """
    whole = oracle.look(universe.everything)
    record = Oracle(universe, verdicts, recheck)
    seen = seen_to_fail(universe, oracle, search.state)
    # Units of single suspects in groups that were not asked, like groups of ops elsewhere that fail alone and passed
    # together: a compiler that fuses those may fuse these. Asking would not settle it: where ops fail or pass by what
    # is beside them, each answer raises the next question.
    doubted = union(universe.variant_members[variant] for variant in search.state.only_alone)
    groups = passed_together(universe, record.passing, doubted, universe.everything)
    singles = [suspect for suspect in search.state.suspects if suspect.single]
    excusable = union(
        group & suspect.everywhere
        for suspect in singles
        for group in like_groups_that_passed(universe, suspect, groups)
        if record.look(group) is None
    )
    suspects = search.state.suspects
    passing = (*record.passing, *filter(record.mostly_passed, record.flaky))
    refuted = [it for it in suspects if not it.capacity and any(map(it.held_by, passing))]
    # where what lies between the units of one interaction makes it pass, it may do so with those of another one
    if any(it.interaction for it in refuted):
        refuted += [it for it in suspects if it.interaction and len(universe.components(it.units)) > 1]
    refuted += many_unconnected(universe, suspects)
    culprits = tuple(
        _culprit(oracle, record, it, suspects, seen, excusable, recheck, refuted=it in refuted) for it in suspects
    )
    if search.state.stuck:
        # the record contradicts itself: one op is one thing or the other, of several nothing is known
        culprits = tuple(
            it if it.kind is CulpritKind.SINGLE else replace(it, certainty=Certainty.SUSPECTED) for it in culprits
        )
    verdict = whole.status if whole is not None else Status.UNRESOLVED
    if not universe.everything:
        verdict = Status.PASS
    return Diagnosis(
        verdict=verdict,
        culprits=tuple(sorted(culprits, key=lambda culprit: sort_key(culprit.units))),
        needs_context=search.state.needs_context,
        certificate=_certificate(universe, oracle, search, recheck, culprits, record, excusable),
        remainder=search.remainder,
        unresolved=search.state.unresolved | search.state.impossible,
        flaky=record.flaky,
    )


def _culprit(
    oracle: Oracle,
    record: Oracle,
    suspect: Suspect,
    suspects: Sequence[Suspect],
    seen: UnitSet,
    excusable: UnitSet,
    recheck: bool,
    *,
    refuted: bool,
) -> DiagnosedCulprit:
    words = oracle.look(suspect.fails)
    deciding = [suspect.fails, *(probe for probe in (suspect.context, suspect.blame) if probe is not None)]
    if not suspect.capacity and not suspect.pool:
        deciding += map(of, suspect.occurrences)
    confidence = min(oracle.confidence(probe) for probe in deciding)
    # That no small part fails rests on many passes, of which only one needs to be a flake.
    doubtful = (suspect.capacity or suspect.pool) and (recheck or bool(oracle.flaky))
    unblamed = suspect.blame is None and not suspect.capacity
    inferred = suspect.everywhere & ~seen if suspect.single else 0
    nowhere_seen = suspect.single and inferred == suspect.everywhere and not suspect.like & seen
    unsettled = not suspect.verified or unblamed or nowhere_seen or rests_on_a_part(oracle.universe, oracle, suspect)
    unsettled = unsettled or bool(_said_of_every_op(record)) or bool(excusable & suspect.everywhere)
    unsettled = unsettled or may_be_excused(oracle, suspect, suspects)
    if unsettled or refuted or doubtful or not _minimal(oracle, suspect):
        certainty = Certainty.SUSPECTED
    elif confidence < 1:
        certainty = Certainty.FLAKY
    else:
        certainty = Certainty.CONFIRMED
    kind = CulpritKind.SINGLE if suspect.single else CulpritKind.INTERACTION
    if suspect.capacity or suspect.pool:
        kind = CulpritKind.CAPACITY if suspect.capacity else CulpritKind.COUNT
    # The probe that shows the failure may be of another node of the variant, which its log then names. A log that
    # names the culprit itself is preferred.
    probes = [probe for probe in (suspect.fails, suspect.blame, suspect.context) if probe is not None]
    naming = (probe for probe in probes if oracle.named_in(probe) & suspect.everywhere)
    verdict = oracle.look(next(naming, suspect.fails))
    return DiagnosedCulprit(
        units=suspect.units,
        occurrences=tuple(of(occurrence) for occurrence in suspect.occurrences),
        kind=kind,
        certainty=certainty,
        failure=(words.kind if words is not None else None) or Kind.ERROR,
        fingerprint=words.fingerprint if words is not None else "",
        message=verdict.message if verdict is not None else "",
        evidence=Evidence(
            fails=oracle.probe(suspect.fails),
            own=suspect.fails if is_subset(suspect.units, suspect.fails) else oracle.probe(suspect.units),
            subsets=tuple(probe for part in _parts(suspect) if (probe := _passing_with(oracle, part))),
            context=suspect.context,
            blame=suspect.blame,
        ),
        confidence=confidence,
        largest_passing=oracle.best_passing(suspect.units) if suspect.capacity else None,
        among=suspect.pool,
        inferred=inferred,
    )


def _said_of_every_op(record: Oracle) -> str:
    """A sentence if every probe failed in the same words, whatever it held: they are about the file or the tool.

    Words that name ops or nodes are about these, and a tool that says nothing says nothing in common.
    """
    failing = [(probe, verdict) for probe in record.failing if (verdict := record.look(probe)) is not None]
    words = {(verdict.kind, verdict.fingerprint) for _, verdict in failing}
    if record.passing or len(words) != 1 or any(not it.fingerprint or it.hints for _, it in failing):
        return ""
    ops = {record.universe.op[lowest(probe)] for probe, _ in failing if size(probe) == 1}
    if len(ops) < 2:
        return ""
    return english(
        "Nothing passed, and {count} different ops fail alone in the same words as the whole model: these "
        "may be about the file or the tool, and not about an op.",
        count=len(ops),
    )


def _parts(suspect: Suspect) -> list[UnitSet]:
    """An interaction without each one of its units."""
    if not suspect.interaction:
        return []
    return [suspect.units & ~(1 << unit) for unit in members(suspect.units)]


def _passing_with(oracle: Oracle, part: UnitSet) -> UnitSet:
    """The smallest passing probe that contains these units; 0 if there is none."""
    if size(part) == 1:
        own = alone(oracle.universe, lowest(part))
        verdict = oracle.look(own)
        if verdict is not None and verdict.passed:
            return oracle.probe(own)
    return next((passing for passing in reversed(oracle.passing) if is_subset(part, passing)), 0)


def _minimal(oracle: Oracle, suspect: Suspect) -> bool:
    """Whether every part that lacks one unit is in a passing probe."""
    return all(_passing_with(oracle, part) for part in _parts(suspect))


def _certificate(
    universe: Universe,
    oracle: Oracle,
    search: SearchReplay,
    recheck: bool,
    culprits: Sequence[DiagnosedCulprit],
    record: Oracle,
    excusable: UnitSet,
) -> DiagnosisProof:
    unknown = [*_unknown(universe, oracle, search), *_unexplained(search, culprits, record)]
    if excusable:
        unknown.append(
            english(
                "A culprit may compile with its neighbours: the same ops did so elsewhere, though each fails alone."
            )
        )
    if (said := _said_of_every_op(record)) and not search.state.hopeless:
        unknown.append(said)
    assumes = [] if recheck else [DETERMINISTIC]
    if search.state.suspects:
        assumes.append(MONOTONE)
    if any(
        not is_subset(search.remainder, suspect.blame) for suspect in search.state.suspects if suspect.blame is not None
    ):
        assumes.append(LOCAL)
    asked_together = union(suspect.everywhere for suspect in search.state.suspects if suspect.like)
    if any(culprit.inferred & ~asked_together for culprit in culprits):
        assumes.append(EVERYWHERE)
    if any(culprit.inferred & asked_together for culprit in culprits):
        assumes.append(WHATEVER_CONSTANT)
    if any(_has_unasked_places(oracle, suspect) for suspect in search.state.suspects):
        assumes.append(COMBINED)
    if limits := search.state.limits:
        said = sentence(universe, limits)
        assumes.append(english("a piece that exceeds it fails for that alone: {sentence}", sentence=said))
    if not search.state.exhaustive:
        assumes.append(TWO)
    return DiagnosisProof(
        status=CertificateStatus.BOUNDED if unknown else CertificateStatus.PROVEN,
        probes=tuple(oracle.probe(region) for region in search.state.proof) if search.state.finished else (),
        assumes=tuple(assumes),
        unknown=tuple(unknown),
    )


def _has_unasked_places(oracle: Oracle, suspect: Suspect) -> bool:
    """Whether some combinations of a confirmed interaction's parts were not compiled (`pattern.enough_to_show`)."""
    if not suspect.interaction or not suspect.verified:
        return False
    return any(oracle.look(units) is None for place in suspect.occurrences if (units := of(place)) != suspect.units)


def _unexplained(search: SearchReplay, culprits: Sequence[DiagnosedCulprit], record: Oracle) -> list[str]:
    """Sentences about verdicts on record that the culprits do not explain."""
    sentences = []
    orphans = [
        failing
        for failing in record.failing
        if not failing & search.state.unresolved
        and not record.passes_within(failing)
        and not any(limit.exceeded(record.universe, failing) for limit in search.state.limits)
        and not any(culprit.held_by(failing) for culprit in culprits)
    ]
    if orphans and search.state.finished and not search.state.hopeless:
        smallest = size(orphans[0])
        sentences.append(
            english("A probe of {units} failed, although it holds none of these culprits.", units=_units(smallest))
        )
    if any(
        culprit.kind is not CulpritKind.CAPACITY and any(map(culprit.held_by, record.passing)) for culprit in culprits
    ):
        sentences.append(
            english("A culprit is in a probe that passed: it fails in one context and compiles in another.")
        )
    return sentences


def _unknown(universe: Universe, oracle: Oracle, search: SearchReplay) -> list[str]:
    unknown = []
    if not search.state.finished:
        unknown.append(_unfinished(universe, oracle, search))
    if search.state.hopeless:
        unknown.append(search.state.hopeless)
    if search.state.stuck and not oracle.flaky:
        unknown.append(
            english(
                "The compiler refuses parts of a piece that it compiles as a whole; more probes would not explain it."
            )
        )
    if search.state.contradicted:
        unknown.append(english("The rest of the model fails, although a larger piece that holds it passed."))
    if any(suspect.verified and not _minimal(oracle, suspect) for suspect in search.state.suspects):
        unknown.append(english("Not every part of an interaction is in a probe that passed, so it may not be minimal."))
    if search.state.finished and any(
        suspect.blame is None and not suspect.capacity for suspect in search.state.suspects
    ):
        unknown.append(english("A culprit could not be put back into its context: that probe got no answer."))
    if not_known := search.state.not_known:
        ops = Counter(universe.op[unit] for unit in members(not_known))
        counted = ", ".join(f"{op} {count}" for op, count in sorted(ops.items()))
        count = size(not_known)
        unknown.append(
            english("1 unit is not known to this profile: {counted}.", counted=counted)
            if count == 1
            else english("{units} are not known to this profile: {counted}.", units=_units(count), counted=counted)
        )
    singles = union(suspect.everywhere for suspect in search.state.suspects if suspect.single)
    left_out = search.state.unresolved & ~search.state.not_known & ~singles
    if apart := left_out & oracle.exonerated:
        unknown.append(
            english(
                "No probe shows whether the rest of the model compiles together with {units}, though each of these "
                "passed in a smaller piece.",
                units=_units(size(apart)),
            )
        )
    if unanswered := left_out & ~oracle.exonerated:
        units = _units(size(unanswered))
        looked = (oracle.look(probe) for probe in oracle.unanswered if probe & unanswered)
        reason = next((it.message for it in looked if it and it.kind is Kind.INVALID), "")
        unknown.append(
            english("No probe gave an answer about {units}: {reason}.", units=units, reason=reason)
            if reason
            else english("No probe gave an answer about {units}.", units=units)
        )
    if impossible := search.state.impossible:
        makers = union(universe.size_makers.get(unit, 0) for unit in members(impossible)) & ~impossible
        unknown.append(
            english(
                "{units} could not be asked without {ops}, whose results decide the sizes of their inputs.",
                units=_units(size(impossible)),
                ops=", ".join(sorted({universe.op[unit] for unit in members(makers)})),
            )
        )
    if search.state.capacity and not search.state.limits:
        unknown.append(
            english(
                "The model is too large as a whole; the largest piece that passed has {units}, and the "
                "units outside it were compiled only in smaller pieces.",
                units=_units(size(search.state.capacity)),
            )
        )
    if search.state.answerable:
        unknown.append(_without_answer(oracle, search.state.answerable))
    if search.state.limits and len(search.state.proof) > 1:
        unknown.append(
            english(
                "The model exceeds what the compiler takes at a time: {sentence}. It was compiled in pieces of at most "
                "{units}, so failures that only larger pieces show were not seen.",
                sentence=sentence(universe, search.state.limits),
                units=_units(max(map(size, search.state.proof))),
            )
        )
    if search.state.cut_short:
        unknown.append(english("There are too many ways to break all interactions to try each of them."))
    if oracle.flaky:
        probes = "1 probe" if len(oracle.flaky) == 1 else f"{len(oracle.flaky)} probes"
        ended = english("The search ended because the compiler contradicted itself on {probes}.", probes=probes)
        single = english(
            "The compiler contradicted itself on {probes}; a single answer of it proves nothing.", probes=probes
        )
        unknown.append(ended if search.state.stuck else single)
    return unknown


def _without_answer(oracle: Oracle, answerable: int) -> str:
    late = [verdict for probe in oracle.unanswered if size(probe) > answerable and (verdict := oracle.look(probe))]
    seconds = min((verdict.seconds for verdict in late if verdict.kind is Kind.TIMEOUT), default=0.0)
    within = (" " + english("within {seconds} s", seconds=f"{seconds:.0f}")) if seconds >= 1 else ""
    return english(
        "The compiler gave no answer{within} for more than about {units}. The model was compiled in "
        "pieces of that size, so failures that only larger pieces show were not seen.",
        within=within,
        units=_units(answerable),
    )


def _unfinished(universe: Universe, oracle: Oracle, search: SearchReplay) -> str:
    if oracle.look(universe.everything) is None:
        return english("The whole model was not compiled.")
    blamed: UnitSet = 0
    for suspect in search.state.suspects:
        blamed |= suspect.everywhere
    seen = blamed
    for passing in oracle.passing:
        seen |= passing
    never = size(universe.everything & ~seen)
    if never:
        return english("The search ended early: {units} were in no probe that passed.", units=_units(never))
    return english("The search ended early: culprits may be unconfirmed, and the list may be incomplete.")


def _units(count: int) -> str:
    return f"{count} unit" if count == 1 else f"{count} units"
