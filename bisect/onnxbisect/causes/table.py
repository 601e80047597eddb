"""Compute as bit sets which conditions hold for which units."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from onnxbisect.causes.condition import ABSENT, Condition
from onnxbisect.causes.features import CONSTANT, OMITTED, FeatureSubject, Row
from onnxbisect.causes.terms import Aspect, Relation
from onnxbisect.unitset import is_subset, members, of, union

_Value = int | str
#: The relations that conditions on each aspect use.
_RELATIONS: Mapping[Aspect, tuple[Relation, ...]] = {
    Aspect.ATTRIBUTE: (Relation.IS, Relation.OTHER),
    Aspect.VALUE: (Relation.IS, Relation.OTHER),
    Aspect.SOURCE: (Relation.IS, Relation.OTHER),
    Aspect.LARGEST: (Relation.AT_LEAST,),
    Aspect.INPUTS: (Relation.AT_LEAST,),
    Aspect.OUTPUTS: (Relation.AT_LEAST,),
    Aspect.DIMENSION: (Relation.AT_LEAST,),
    Aspect.ELEMENTS: (Relation.AT_LEAST, Relation.AT_MOST),
}


@dataclass(frozen=True, kw_only=True)
class ConditionRow:
    """A condition, the culprits that meet it at all their occurrences, and the rows of passing units that meet it.

    A row for which this is unknown counts as meeting it.
    """

    condition: Condition
    refused: int
    passing: int


class RowIndex:
    """An index of rows by their values; sets of rows are bit sets of row numbers."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._masks: dict[FeatureSubject, dict[_Value | None, int]] = defaultdict(lambda: defaultdict(int))
        for number, row in enumerate(rows):
            for subject, values in row.items():
                masks = self._masks[subject]
                for value in values:
                    masks[value] |= 1 << number

    @property
    def subjects(self) -> Iterable[FeatureSubject]:
        """Every subject that occurs in a row."""
        return self._masks

    def values(self, subject: FeatureSubject) -> list[_Value]:
        """The known values of all rows for this subject."""
        known = [value for value in self._masks.get(subject, ()) if value is not None]
        return sorted(known, key=lambda value: (isinstance(value, str), value))

    def meeting(self, condition: Condition) -> int:
        """The rows that are known to meet the condition."""
        masks, value = self._masks.get(condition.subject, {}), condition.value
        if condition.relation is Relation.IS:
            return masks.get(value, 0)
        return union(
            mask for other, mask in masks.items() if other is not None and _related(condition.relation, other, value)
        )

    def unknown(self, subject: FeatureSubject) -> int:
        """The rows with an unknown value for this subject."""
        return self._masks.get(subject, {}).get(None, 0)


def entries(culprits: Sequence[Sequence[Row]], passing: Sequence[Row]) -> list[ConditionRow]:
    """Every condition that some culprit meets; `culprits` has the rows of each culprit's occurrences."""
    owner = [number for number, places in enumerate(culprits) for _ in places]
    own = [0] * len(culprits)
    for row, number in enumerate(owner):
        own[number] |= 1 << row
    refused, passed = RowIndex([row for places in culprits for row in places]), RowIndex(passing)
    found = []
    for subject in refused.subjects:
        for condition in _conditions(subject, refused, passed):
            holds = refused.meeting(condition)
            meets = of(number for number in {owner[row] for row in members(holds)} if is_subset(own[number], holds))
            if meets:
                fits = passed.meeting(condition) | passed.unknown(subject)
                found.append(ConditionRow(condition=condition, refused=meets, passing=fits))
    return found


def completed(rows: Sequence[Row]) -> list[Row]:
    """The rows of a whole model, with the value `absent` for attributes that only other nodes of the op have."""
    attributes: dict[str, set[FeatureSubject]] = defaultdict(set)
    for row in rows:
        for subject in row:
            if subject.aspect is Aspect.ATTRIBUTE:
                attributes[subject.op].add(subject)
    absent = frozenset({ABSENT})
    return [{**dict.fromkeys(attributes.get(_op(row), ()), absent), **row} for row in rows]


def _op(row: Row) -> str:
    return next(subject.op for subject in row if subject.aspect is Aspect.OP)


def _conditions(subject: FeatureSubject, refused: RowIndex, passed: RowIndex) -> Iterator[Condition]:
    for relation in _relations(subject):
        if relation is Relation.OTHER:
            for value in _others(subject, passed.values(subject)):
                yield Condition(subject, relation, value)
        else:
            for value in refused.values(subject):
                if not (value == 0 and relation is Relation.AT_LEAST):
                    yield Condition(subject, relation, value)


def _relations(subject: FeatureSubject) -> tuple[Relation, ...]:
    if subject.aspect is Aspect.RANK:
        return (Relation.AT_LEAST, Relation.AT_MOST, Relation.IS) if subject.op else (Relation.AT_LEAST,)
    return _RELATIONS.get(subject.aspect, (Relation.IS,))


def _others(subject: FeatureSubject, passed: Sequence[_Value]) -> Sequence[_Value]:
    """Passing values that a condition `other than` may name: mostly only a value that all passing units share."""
    if subject.aspect is Aspect.SOURCE:
        return [value for value in (CONSTANT, OMITTED) if value in passed]
    return passed if len(passed) == 1 else ()


def _related(relation: Relation, mine: _Value, value: _Value) -> bool:
    if relation is Relation.OTHER:
        return mine != value
    if isinstance(mine, str) or isinstance(value, str):
        return False
    return mine >= value if relation is Relation.AT_LEAST else mine <= value
