"""Choose a candidate for each place, and what to compile before it is used: a pure function."""

from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass

from onnxbisect.remedies.candidate import Candidate
from onnxbisect.remedies.known import SeenVariants


@dataclass(frozen=True)
class CulpritPlace:
    """One occurrence of a culprit. Replacing any of these nodes repairs it.

    `beside` are the keys of candidates that must be in use for the place to exist: the nodes fail together with what
    these candidates insert.
    """

    nodes: tuple[str, ...]
    beside: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Advice:
    """One candidate for each place that has one, in the order of places; `left` are the places without one.

    `questions` are chosen candidates with an op that never passed. Their new nodes should be compiled first, as a small
    piece. Candidates with equal questions are listed once.
    """

    chosen: tuple[Candidate, ...]
    questions: tuple[Candidate, ...]
    left: tuple[CulpritPlace, ...]


def advise(
    places: Sequence[CulpritPlace],
    candidates: Callable[[str], Sequence[Candidate]],
    known: SeenVariants,
    *,
    struck: Set[tuple[str, str]] = frozenset(),
    asked: Mapping[Hashable, bool] | None = None,
) -> Advice:
    """Choose among candidates with what is known.

    `candidates` returns those of a node, `struck` are the keys of excluded candidates, and `asked` are earlier answers
    by question: whether the compiler accepted the new nodes.
    """
    asked = asked or {}
    chosen: dict[str, Candidate] = {}
    gone: dict[str, Candidate] = {}
    left = []
    for place in places:
        if any(node in gone for node in place.nodes) or not place.beside <= {it.key for it in chosen.values()}:
            continue
        open_ = [
            candidate
            for node in place.nodes
            for candidate in candidates(node)
            if candidate.key not in struck
            and asked.get(candidate.question, True)
            and all(len(gone[node].gone) == 1 for node in candidate.gone & gone.keys())
        ]
        if not open_:
            left.append(place)
            continue
        best = min(open_, key=lambda candidate: candidate.order(known))
        for node in best.gone & chosen.keys():  # a pattern that a replaced node is a part of
            del chosen[node]
        chosen[best.node] = best
        gone |= dict.fromkeys(best.gone, best)
    questions: dict[Hashable, Candidate] = {}
    for it in chosen.values():
        if it.question not in asked and it.unknown(known):
            questions.setdefault(it.question, it)
    return Advice(chosen=tuple(chosen.values()), questions=tuple(questions.values()), left=tuple(left))
