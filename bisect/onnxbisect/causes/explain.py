"""Explain the culprits of a diagnosis by the cheapest causes that together explain every one that can be explained."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from onnxbisect.causes.condition import (
    AskedNeighbour,
    Condition,
    Contrast,
    RefusalConditions,
    other_ops_text,
    passing_text,
    text_of,
    unexplained,
)
from onnxbisect.causes.features import Features, Row
from onnxbisect.causes.table import Explanation, RowIndex, completed, entries, explanations
from onnxbisect.causes.terms import Aspect, CauseState
from onnxbisect.diagnosis import Certainty, CulpritKind, DiagnosedCulprit, Diagnosis
from onnxbisect.model.facts import TensorFacts
from onnxbisect.model.model import Model
from onnxbisect.unitset import UnitSet, full, is_subset, lowest, members, of, size, union

#: Choices tried for each group of culprits with common explanations; then the best one found is taken.
_TRIED = 5_000


def cheapest_cover(explanations: Sequence[Explanation]) -> list[Explanation]:
    """The choice of lowest total cost among `explanations`, which are sorted by cost.

    Of equally cheap choices the smallest, then the first in the order of the explanations. Exact for groups of up to a
    few dozen culprits with common explanations.
    """
    useful: list[Explanation] = []
    for one in explanations:
        if not any(is_subset(one.refused, other.refused) for other in useful):
            useful.append(one)
    groups: list[tuple[int, list[Explanation]]] = []  # that share no culprit
    for one in useful:
        touched = [group for group in groups if group[0] & one.refused]
        groups = [group for group in groups if not group[0] & one.refused]
        merged = [other for _, those in touched for other in those]
        groups.append((one.refused | union(mask for mask, _ in touched), [*merged, one]))
    chosen = [one for _, those in groups for one in _Search(sorted(those, key=lambda one: one.order)).best]
    return sorted(chosen, key=lambda one: one.order)


class _Search:
    """Branch and bound over one group, starting from the greedy choice."""

    def __init__(self, explanations: Sequence[Explanation]) -> None:
        self._all = explanations
        self._left = _TRIED
        everything = union(one.refused for one in explanations)
        self._fitting = {
            culprit: [place for place, one in enumerate(explanations) if one.refused >> culprit & 1]
            for culprit in members(everything)
        }
        self._share = {
            culprit: min(explanations[place].cost / size(explanations[place].refused) for place in fitting)
            for culprit, fitting in self._fitting.items()
        }
        left = everything
        chosen = []
        while left:
            place = min(
                (place for place, one in enumerate(self._all) if one.refused & left),
                key=lambda place: self._all[place].cost / size(self._all[place].refused & left),
            )
            chosen.append(place)
            left &= ~self._all[place].refused
        self._best = self._rated(chosen)
        self._extend((), 0, everything)

    @property
    def best(self) -> list[Explanation]:
        """The cheapest choice found."""
        return [self._all[place] for place in self._best[2]]

    def _rated(self, chosen: Iterable[int]) -> tuple[int, int, tuple[int, ...]]:
        places = tuple(sorted(chosen))
        return sum(self._all[place].cost for place in places), len(places), places

    def _extend(self, chosen: tuple[int, ...], cost: int, left: int) -> None:
        if not left:
            self._best = min(self._best, self._rated(chosen))
            return
        self._left -= 1
        # Lower bound: the sum of each culprit's smallest share of the cost of any explanation.
        if self._left < 0 or cost + sum(self._share[culprit] for culprit in members(left)) > self._best[0] + 1e-6:
            return
        hardest = min(members(left), key=lambda culprit: len(self._fitting[culprit]))
        for place in self._fitting[hardest]:
            one = self._all[place]
            self._extend((*chosen, place), cost + one.cost, left & ~one.refused)


_OTHERS = 3
#: Alternatives whose cost exceeds that of the chosen explanation by more than this are not reported.
_DEARER = 1
_STATES = (CauseState.CONFIRMED, CauseState.OBSERVED, CauseState.NO_CONTRAST, CauseState.UNEXPLAINED)


def causes(
    model: Model, diagnosis: Diagnosis, passed: UnitSet, asked: Sequence[AskedNeighbour] = (), *, alone: UnitSet = 0
) -> tuple[RefusalConditions, ...]:
    """The causes of the culprits, most informative first; `passed` are the units of all passing probes.

    `alone` are those of them that passed with nothing beside them.

    `asked` are compiled changes of culprits: conditions that a passing one meets, or that a refused one does not meet,
    are no cause.

    Each culprit is in one cause. Culprits of several units stay unexplained, because conditions on single units say
    nothing about combinations.
    """
    culprits = diagnosis.culprits
    singles = [number for number, culprit in enumerate(culprits) if culprit.kind is CulpritKind.SINGLE]
    found = _Explaining(model, culprits, singles, passed, asked, alone).causes() if singles else []
    covered = {number for cause in found for number in cause.culprits}
    # those that have no explanation: a cause without conditions for each kind and set of ops
    groups: dict[tuple[CulpritKind, Certainty, tuple[str, ...]], list[int]] = {}
    for number, culprit in enumerate(culprits):
        if number not in covered:
            ops = tuple(model.universe.op[unit] for unit in members(culprit.units))
            groups.setdefault((culprit.kind, culprit.certainty, ops), []).append(number)
    found += [
        RefusalConditions(
            state=CauseState.UNEXPLAINED,
            text=unexplained(kind, certainty, ops),
            culprits=tuple(those),
            established=certainty is Certainty.CONFIRMED,
            refused=union(place for number in those for place in culprits[number].places),
        )
        for (kind, certainty, ops), those in groups.items()
    ]
    return tuple(
        sorted(found, key=lambda cause: (_STATES.index(cause.state), -size(cause.refused), min(cause.culprits)))
    )


class _Explaining:
    """The feature rows of one model, and the causes of its culprits that are single units."""

    def __init__(
        self,
        model: Model,
        culprits: Sequence[DiagnosedCulprit],
        explained: Sequence[int],
        passed: UnitSet,
        asked: Sequence[AskedNeighbour],
        alone: UnitSet,
    ) -> None:
        self._universe = model.universe
        self._culprits = culprits
        self._explained = explained
        self._places = [union(culprits[number].places) for number in explained]
        self._refused = union(self._places)
        confirmed = [culprits[number] for number in explained if culprits[number].certainty is Certainty.CONFIRMED]
        self._confirmed = union(place for culprit in confirmed for place in culprit.places)
        self._passed, self._alone = passed, alone
        # for each unit the ops that make what it reads, or read what it makes
        beside: list[set[str]] = [set() for _ in self._universe.op]
        for unit, readers in enumerate(self._universe.successors):
            for reader in members(readers):
                beside[reader].add(self._universe.op[unit])
                beside[unit].add(self._universe.op[reader])
        self._beside = [frozenset(ops) for ops in beside]
        solos: dict[int, list[int]] = {}
        for unit, solo in enumerate(self._universe.solo):
            solos.setdefault(solo, []).append(unit)
        self._units = {solo: of(units) for solo, units in solos.items()}
        features, graph = Features(TensorFacts.of(model), model.known), model.proto.graph
        found = {solo: features.of(graph.node[model.units[units[0]].node]) for solo, units in solos.items()}
        rows = completed([*found.values(), *(it.row for it in asked)])
        self._rows: Mapping[int, Row] = dict(zip(found, rows, strict=False))
        self._asked = [replace(it, row=row) for it, row in zip(asked, rows[len(found) :], strict=True)]
        self._table = RowIndex(rows[: len(found)])
        self._row_units = list(self._units.values())
        by_op: dict[str, list[int]] = {}
        for unit, op in enumerate(self._universe.op):
            by_op.setdefault(op, []).append(unit)
        self._by_op = {op: of(units) for op, units in by_op.items()}

    def causes(self) -> list[RefusalConditions]:
        ops = [self._universe.op[lowest(places)] for places in self._places]
        passing = [row for solo, row in self._rows.items() if self._units[solo] & self._passed]
        passing += [it.row for it in self._asked if it.passed]
        refused = [  # by culprit: its units, and its changed forms that were refused too
            [
                *(self._rows[solo] for solo in self._solos(places)),
                *(it.row for it in self._asked if it.culprit == number and not it.passed),
            ]
            for number, places in zip(self._explained, self._places, strict=True)
        ]
        beside = {it.culprit for it in self._asked if it.passed}
        passed_ops = frozenset(self._ops(self._passed)) | {
            op for number, op in zip(self._explained, ops, strict=True) if number in beside
        }
        possible = explanations(entries(refused, passing), ops, passed_ops)
        chosen = cheapest_cover(possible)
        numbers_of: dict[int, list[int]] = {}
        for number in range(len(self._places)):
            fitting = [place for place, one in enumerate(chosen) if one.refused >> number & 1]
            if fitting:
                first = min(fitting, key=lambda place: (-size(chosen[place].refused), chosen[place].order))
                numbers_of.setdefault(first, []).append(number)
        return [self._cause(chosen[place], numbers, possible) for place, numbers in sorted(numbers_of.items())]

    def _cause(self, chosen: Explanation, numbers: Sequence[int], possible: Sequence[Explanation]) -> RefusalConditions:
        units = self._meeting(chosen.conditions)
        explained = tuple(self._explained[number] for number in numbers)
        # Changes of these culprits that passed, with the one condition that each does not meet.
        confirmed = []
        for it in self._asked:
            if it.passed and it.culprit in explained:
                row = RowIndex([it.row])
                missed = next(condition for condition in chosen.conditions if not row.meeting(condition))
                confirmed.append(Contrast(condition=missed, passes=it.text, units=0))
        said = {it.passes for it in confirmed}
        contrast = (*confirmed, *(it for it in self._contrasts(chosen.conditions) if it.passes not in said))
        certain = any(self._culprits[number].certainty is Certainty.CONFIRMED for number in explained)
        refused = units & (self._confirmed if certain else self._refused)
        passing = union(it.units for it in contrast)
        in_company = bool(contrast) and not confirmed and self._only_in_company(chosen, refused, passing)
        same_ops = {*self._ops(refused)} & {*self._ops(passing)}
        tested = bool(confirmed or same_ops) or not contrast
        seen = CauseState.OBSERVED if contrast else CauseState.NO_CONTRAST
        return RefusalConditions(
            state=CauseState.CONFIRMED if confirmed else seen,
            text=text_of(chosen.conditions),
            culprits=explained,
            established=certain and tested and not in_company,
            in_company=in_company,
            conditions=chosen.conditions,
            refused=refused,
            unknown=units & ~refused & ~self._passed,
            contrast=contrast,
            fits_too=tuple(_fits_too(chosen, possible)) if contrast else (),
        )

    def _only_in_company(self, chosen: Explanation, refused: UnitSet, passing: UnitSet) -> bool:
        """Whether other ops beside what passed may be why it did: it never passed alone, nor beside what culprits have.

        Culprits of several ops do not differ in this way by chance.
        """
        if not chosen.op or passing & self._alone:
            return False
        theirs, ours = ({self._beside[unit] for unit in members(units)} for units in (passing, refused))
        known = frozenset(op for ops in ours for op in ops)
        return not any(ops <= known for ops in theirs)

    def _contrasts(self, conditions: Sequence[Condition]) -> list[Contrast]:
        """For each condition the passing units that meet all the others."""
        ops = self._ops(self._meeting(conditions) & self._refused)
        found = []
        for condition in conditions:
            others = [other for other in conditions if other != condition]
            units = self._meeting(others) & self._passed & ~self._units_of(self._table.unknown(condition.subject))
            if condition.subject.aspect in (Aspect.OP, Aspect.DOMAIN):
                if units and others:
                    passes = other_ops_text(conditions, sorted(self._ops(units)))
                    found.append(Contrast(condition=condition, passes=passes, units=units))
                continue
            same = units & union(self._by_op[op] for op in ops)
            if not same and not any(it.subject.op for it in conditions) and units:
                if instead := condition.instead(self._values(units, condition)):
                    found.append(Contrast(condition=condition, passes=f"other ops with {instead}", units=units))
            elif same:
                passes = passing_text(conditions, condition, condition.instead(self._values(same, condition)))
                found.append(Contrast(condition=condition, passes=passes, units=same))
        return found

    def _values(self, units: UnitSet, condition: Condition) -> set[int | str]:
        """What these units have for the subject of a condition."""
        found = {value for solo in self._solos(units) for value in self._rows[solo].get(condition.subject, ())}
        return {value for value in found if value is not None}

    def _meeting(self, conditions: Sequence[Condition]) -> UnitSet:
        """The units that meet all of these conditions."""
        rows = full(len(self._row_units))
        for condition in conditions:
            rows &= self._table.meeting(condition)
        return self._units_of(rows)

    def _units_of(self, rows: int) -> UnitSet:
        return union(self._row_units[row] for row in members(rows))

    def _solos(self, units: UnitSet) -> list[int]:
        return list(dict.fromkeys(self._universe.solo[unit] for unit in members(units)))

    def _ops(self, units: UnitSet) -> list[str]:
        return [op for op, those in self._by_op.items() if those & units]


def _fits_too(chosen: Explanation, possible: Sequence[Explanation]) -> list[str]:
    """Wordings of other explanations that separate the same culprits from passing units, one for each matter."""
    seen = {_matters(chosen)}
    found = []
    for one in possible:
        if one.refused != chosen.refused or one.cost > chosen.cost + _DEARER or one.op != chosen.op:
            continue
        # If an op's units are explained by the rank of any tensor, the rank of a named input says it more precisely.
        unnamed = one.op and any(not condition.subject.op for condition in one.conditions)
        if not unnamed and _matters(one) not in seen:
            seen.add(_matters(one))
            found.append(text_of(one.conditions))
    return found[:_OTHERS]


def _matters(explanation: Explanation) -> frozenset[tuple[Aspect, str]]:
    """What an explanation is about; all sizes count as one matter and all ranks as one, because they are correlated."""
    return frozenset(
        (Aspect.ELEMENTS, "")
        if condition.subject.aspect is Aspect.DIMENSION
        else (condition.subject.aspect, condition.subject.name if explanation.op else "")
        for condition in explanation.conditions
    )
