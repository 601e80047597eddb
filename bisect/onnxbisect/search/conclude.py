"""From a search, finished or not, to the Diagnosis."""

from onnxbisect.diagnosis import (
    Certainty,
    Certificate,
    CertificateStatus,
    Culprit,
    CulpritKind,
    Diagnosis,
    Evidence,
    NeedsContext,
)
from onnxbisect.search.confirm import REACH
from onnxbisect.search.oracle import Oracle
from onnxbisect.search.search import Search
from onnxbisect.search.suspect import Suspect
from onnxbisect.unitset import UnitSet, is_subset, lowest, members, of, size, sort_key
from onnxbisect.universe import Universe
from onnxbisect.verdict import Kind, Status

DETERMINISTIC = "the compiler answers the same question the same way (nothing it said here contradicts that)"
MONOTONE = "a graph that contains a failing subgraph fails (every probe asked agrees with it)"
LOCAL = f"what is more than {REACH} steps of dataflow away does not make a subgraph compile that fails with all nearer"
ALIKE = "occurrences of one culprit behave alike in what else they fail with"
EVERYWHERE = "an op that is refused alone, and in its context in one place, is refused in its other places"


def conclude(universe: Universe, oracle: Oracle, search: Search, recheck: bool) -> Diagnosis:
    """What the verdicts on record establish, and what they leave unknown."""
    whole = oracle.look(universe.everything)
    culprits = tuple(_culprit(oracle, suspect, recheck) for suspect in search.suspects)
    verdict = whole.status if whole is not None else Status.UNRESOLVED
    if not universe.everything:
        verdict = Status.PASS
    return Diagnosis(
        verdict=verdict,
        culprits=tuple(sorted(culprits, key=lambda culprit: sort_key(culprit.units))),
        needs_context=tuple(
            NeedsContext(
                units=artefact.units,
                occurrences=tuple(of(occurrence) for occurrence in artefact.occurrences),
                passes_with=artefact.passes_with,
            )
            for artefact in search.artefacts
        ),
        certificate=_certificate(universe, oracle, search, recheck),
        remainder=search.remainder,
        unresolved=search.locator.unresolved,
        flaky=oracle.flaky,
    )


def _culprit(oracle: Oracle, suspect: Suspect, recheck: bool) -> Culprit:
    words = oracle.look(suspect.fails)
    deciding = [suspect.fails, *(probe for probe in (suspect.context, suspect.blame) if probe is not None)]
    confidence = min(oracle.confidence(probe) for probe in deciding)
    # That no small part fails rests on many passes, of which only one needs to be a flake.
    doubtful = suspect.capacity and (recheck or bool(oracle.flaky))
    unblamed = (suspect.blame is None or oracle.passes_within(suspect.units)) and not suspect.capacity
    if not suspect.verified or unblamed or not _minimal(oracle, suspect) or doubtful:
        certainty = Certainty.SUSPECTED
    elif confidence < 1:
        certainty = Certainty.FLAKY
    else:
        certainty = Certainty.CONFIRMED
    if suspect.capacity:
        kind = CulpritKind.CAPACITY
    else:
        kind = CulpritKind.SINGLE if size(suspect.units) == 1 else CulpritKind.INTERACTION
    return Culprit(
        units=suspect.units,
        occurrences=tuple(of(occurrence) for occurrence in suspect.occurrences),
        kind=kind,
        certainty=certainty,
        failure=(words.kind if words is not None else None) or Kind.ERROR,
        fingerprint=words.fingerprint if words is not None else "",
        message=words.message if words is not None else "",
        evidence=Evidence(
            fails=oracle.probe(suspect.fails),
            own=suspect.fails if is_subset(suspect.units, suspect.fails) else oracle.probe(suspect.units),
            subsets=tuple(oracle.probe(part) for part in suspect.subsets),
            context=suspect.context,
            blame=suspect.blame,
        ),
        confidence=confidence,
        largest_passing=oracle.best_passing(suspect.units) if suspect.capacity else None,
    )


def _minimal(oracle: Oracle, suspect: Suspect) -> bool:
    """Whether every part passes by a probe of its own; a part that is an artefact of cutting does not."""
    return all((verdict := oracle.look(part)) is not None and verdict.passed for part in suspect.subsets)


def _certificate(universe: Universe, oracle: Oracle, search: Search, recheck: bool) -> Certificate:
    unknown = _unknown(universe, oracle, search)
    assumes = [] if recheck else [DETERMINISTIC]
    if search.suspects:
        assumes.append(MONOTONE)
    if any(not is_subset(search.remainder, suspect.blame) for suspect in search.suspects if suspect.blame is not None):
        assumes.append(LOCAL)
    if any(size(suspect.units) == 1 and _stands_in_several(universe, suspect) for suspect in search.suspects):
        assumes.append(EVERYWHERE)
    if not search.exhaustive:
        assumes.append(ALIKE)
    return Certificate(
        status=CertificateStatus.BOUNDED if unknown else CertificateStatus.PROVEN,
        probes=tuple(oracle.probe(region) for region in search.proof) if search.finished else (),
        assumes=tuple(assumes),
        unknown=tuple(unknown),
    )


def _stands_in_several(universe: Universe, suspect: Suspect) -> bool:
    return len({universe.surroundings[unit] for unit in members(suspect.everywhere)}) > 1


def _unknown(universe: Universe, oracle: Oracle, search: Search) -> list[str]:
    unknown = []
    if not search.finished:
        unknown.append(_unfinished(universe, oracle, search))
    if search.hopeless:
        unknown.append(search.hopeless)
    if search.stuck:
        unknown.append("The compiler contradicts itself in a way that more questions would not settle.")
    if search.locator.contradicted:
        unknown.append("A remainder fails although it passed with more around it: the compiler is not monotone there.")
    if any(suspect.verified and not _minimal(oracle, suspect) for suspect in search.suspects):
        unknown.append("A part of an interaction fails when cut out and passes in the model, so it is not minimal.")
    for suspect in search.suspects:
        if size(suspect.units) == 1 and suspect.blame is not None and oracle.passes_within(suspect.units):
            op = universe.op[lowest(suspect.units)]
            unknown.append(
                f"{op} fails alone and in its place, but passes there without one neighbour: either may be to blame."
            )
    if search.finished and any(suspect.blame is None and not suspect.capacity for suspect in search.suspects):
        unknown.append("A culprit could not be put back into its context: that probe got no answer.")
    if search.locator.unresolved:
        unknown.append(f"No probe gave an answer about {_units(size(search.locator.unresolved))}.")
    if search.locator.capacity:
        unknown.append(
            f"The model is too large as a whole; the largest piece that passed has "
            f"{_units(size(search.locator.capacity))}, and what is outside it was only asked in pieces."
        )
    if search.cut_short:
        unknown.append("There are too many ways to break all interactions to try each of them.")
    if oracle.flaky:
        unknown.append(
            f"The compiler contradicted itself on {len(oracle.flaky)} "
            f"{'probe' if len(oracle.flaky) == 1 else 'probes'}; a single answer of it proves nothing."
        )
    return unknown


def _unfinished(universe: Universe, oracle: Oracle, search: Search) -> str:
    if oracle.look(universe.everything) is None:
        return "The whole model was not compiled."
    blamed: UnitSet = 0
    for suspect in search.suspects:
        blamed |= suspect.everywhere
    seen = blamed
    for passing in oracle.passing:
        seen |= passing
    never = size(universe.everything & ~seen)
    if never:
        return f"The search ended early: {_units(never)} never stood in a probe that passed."
    return "The search ended early: what was found is not yet confirmed, or not known to be all."


def _units(count: int) -> str:
    return f"{count} unit" if count == 1 else f"{count} units"
