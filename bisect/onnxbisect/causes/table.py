"""Which conditions hold for which units, as bit sets: what the search for causes computes with."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from onnxbisect.causes.condition import ABSENT, Condition, Relation
from onnxbisect.causes.features import CONSTANT, OMITTED, Aspect, Row, Subject
from onnxbisect.unitset import is_subset, members, of

_Value = int | str
#: The relations that conditions on an aspect have.
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
class Entry:
    """A condition, the culprits all of whose places meet it, and the rows of passing units that meet it.

    A row of which it is not known whether it meets the condition counts as one that does.
    """

    condition: Condition
    refused: int
    passing: int


def entries(culprits: Sequence[Sequence[Row]], passing: Sequence[Row]) -> list[Entry]:
    """Every condition that some culprit meets; `culprits` has the rows of each culprit's places."""
    owner = [number for number, places in enumerate(culprits) for _ in places]
    own = [0] * len(culprits)
    for row, number in enumerate(owner):
        own[number] |= 1 << row
    passed_by = _by_subject(passing)
    found = []
    for subject, refused in _by_subject([row for places in culprits for row in places]).items():
        passed = passed_by.get(subject, {})
        for condition in _conditions(subject, refused, passed):
            holds = _meeting(condition, refused)
            meets = of(number for number in {owner[row] for row in members(holds)} if is_subset(own[number], holds))
            if meets:
                fits = _meeting(condition, passed) | passed.get(None, 0)
                found.append(Entry(condition=condition, refused=meets, passing=fits))
    return found


def completed(rows: Mapping[int, Row]) -> dict[int, Row]:
    """The rows of a whole model, in which nodes that lack an attribute which other nodes of their op have say so."""
    attributes: dict[str, set[Subject]] = defaultdict(set)
    for row in rows.values():
        for subject in row:
            if subject.aspect is Aspect.ATTRIBUTE:
                attributes[subject.op].add(subject)
    absent = frozenset({ABSENT})
    return {number: {**dict.fromkeys(attributes.get(_op(row), ()), absent), **row} for number, row in rows.items()}


def meets(row: Row, condition: Condition) -> bool:
    """Whether the unit of this row is known to meet the condition."""
    values = row.get(condition.subject, frozenset())
    return any(_related(condition.relation, value, condition.value) for value in values if value is not None)


def _op(row: Row) -> str:
    return next(subject.op for subject in row if subject.aspect is Aspect.OP)


_Masks = dict[_Value | None, int]


def _by_subject(rows: Sequence[Row]) -> dict[Subject, _Masks]:
    found: dict[Subject, _Masks] = defaultdict(lambda: defaultdict(int))
    for number, row in enumerate(rows):
        for subject, values in row.items():
            masks = found[subject]
            for value in values:
                masks[value] |= 1 << number
    return found


def _conditions(subject: Subject, refused: _Masks, passed: _Masks) -> Iterator[Condition]:
    values = _sorted(refused)
    for relation in _relations(subject):
        if relation is Relation.OTHER:
            for value in _others(subject, passed):
                yield Condition(subject, relation, value)
        else:
            for value in values:
                if not (value == 0 and relation is Relation.AT_LEAST):
                    yield Condition(subject, relation, value)


def _relations(subject: Subject) -> tuple[Relation, ...]:
    if subject.aspect is Aspect.RANK:
        return (Relation.AT_LEAST, Relation.AT_MOST, Relation.IS) if subject.op else (Relation.AT_LEAST,)
    return _RELATIONS.get(subject.aspect, (Relation.IS,))


def _others(subject: Subject, passed: _Masks) -> Iterable[_Value]:
    """What refused units have something other than: the one value that passed."""
    if subject.aspect is Aspect.SOURCE:
        return [value for value in (CONSTANT, OMITTED) if value in passed]
    values = _sorted(passed)
    return values if len(values) == 1 else ()


def _sorted(masks: _Masks) -> list[_Value]:
    return sorted((value for value in masks if value is not None), key=lambda value: (isinstance(value, str), value))


def _meeting(condition: Condition, masks: _Masks) -> int:
    """The rows that are known to meet it."""
    value, found = condition.value, 0
    if condition.relation is Relation.IS:
        return masks.get(value, 0)
    for other, mask in masks.items():
        if other is not None and _related(condition.relation, other, value):
            found |= mask
    return found


def _related(relation: Relation, mine: _Value, value: _Value) -> bool:
    if relation is Relation.IS:
        return mine == value
    if relation is Relation.OTHER:
        return mine != value
    if isinstance(mine, str) or isinstance(value, str):
        return False
    return mine >= value if relation is Relation.AT_LEAST else mine <= value
