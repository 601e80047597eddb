"""Compute as bit sets which conditions hold for which units."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations, product

from onnxbisect.causes.condition import ABSENT, Condition
from onnxbisect.causes.features import COARSEST, CONSTANT, OMITTED, FeatureSubject, Row
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
    Aspect.ALIGNMENT: (Relation.AT_MOST,),
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
        if condition.relation is Relation.IS:  # without a look at every value
            return masks.get(value, 0)
        return union(
            mask for other, mask in masks.items() if other is not None and condition.relation.holds(other, value)
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
    ops = [next(subject.op for subject in row if subject.aspect is Aspect.OP) for row in rows]
    return [{**dict.fromkeys(attributes.get(op, ()), absent), **row} for op, row in zip(ops, rows, strict=True)]


def _conditions(subject: FeatureSubject, refused: RowIndex, passed: RowIndex) -> Iterator[Condition]:
    relations = _RELATIONS.get(subject.aspect, (Relation.IS,))
    if subject.aspect is Aspect.RANK:
        relations = (Relation.AT_LEAST, Relation.AT_MOST, Relation.IS) if subject.op else (Relation.AT_LEAST,)
    met_by_all = (Relation.AT_MOST, COARSEST) if subject.aspect is Aspect.ALIGNMENT else (Relation.AT_LEAST, 0)
    for relation in relations:
        if relation is Relation.OTHER:
            # `other than` may mostly name only a value that all passing units share
            values: Sequence[_Value] = passed.values(subject)
            if subject.aspect is Aspect.SOURCE:
                values = [value for value in (CONSTANT, OMITTED) if value in values]
            elif len(values) != 1:
                values = ()
            for value in values:
                yield Condition(subject, relation, value)
        else:
            for value in refused.values(subject):
                if (relation, value) != met_by_all:
                    yield Condition(subject, relation, value)


#: Fixed cost of each cause, and cost of naming its op.
_CAUSE, _OP = 1, 2
_ASPECTS = list(Aspect)
#: Ops that are not refused together by chance where all have tensors of a rank that few compilers take.
_MANY_OPS = 3
_HIGH_RANK = 5


@dataclass(frozen=True)
class Explanation:
    """Conditions that these culprits (a bit set of their numbers) meet together, and that no passing unit meets."""

    conditions: tuple[Condition, ...]
    refused: int

    @property
    def op(self) -> str:
        """The op of the units that the explanation covers; empty for units of any op."""
        return next((condition.subject.op for condition in self.conditions if condition.subject.op), "")

    @cached_property
    def cost(self) -> int:
        """The cost of stating the explanation."""
        return _CAUSE + (_OP if self.op else 0) + sum(condition.cost for condition in self.conditions)

    @property
    def order(self) -> tuple[int, int, list[tuple[int, str, int, str, str, str]]]:
        """Sort key: cheapest first."""
        return self.cost, len(self.conditions), [_order(condition) for condition in self.conditions]


def explanations(entries: Iterable[ConditionRow], ops: Sequence[str], passed_ops: frozenset[str]) -> list[Explanation]:
    """All minimal explanations of one or two conditions, cheapest first; the op is not counted as a condition.

    `ops` has the op of each culprit, `passed_ops` are the ops of passing units. Conditions on units of any op count
    only if they cover culprits of several ops, of which one passed elsewhere without meeting them. Otherwise the
    refused ops may share a rare property by chance. A rank of 5 or more that three ops share is no such chance.
    """
    alike: dict[tuple[int, int, str], list[ConditionRow]] = {}
    for entry in entries:
        alike.setdefault((entry.refused, entry.passing, entry.condition.subject.op), []).append(entry)
    found: list[Explanation] = []
    left: dict[str, list[ConditionRow]] = {}
    for same in alike.values():
        single = [] if same[0].passing else [Explanation((entry.condition,), entry.refused) for entry in same]
        sound = [one for one in single if _sound(one, ops, passed_ops)]
        found += sound
        if not sound:
            cheapest = min(same, key=lambda entry: _order(entry.condition))
            left.setdefault(cheapest.condition.subject.op, []).append(cheapest)
    anywhere = left.pop("", [])
    found += _pairs(combinations(anywhere, 2), ops, passed_ops)
    for within in left.values():
        found += _pairs(chain(combinations(within, 2), product(within, anywhere)), ops, passed_ops)
    return sorted(found, key=lambda one: one.order)


def _pairs(
    pairs: Iterable[tuple[ConditionRow, ConditionRow]], ops: Sequence[str], passed_ops: frozenset[str]
) -> list[Explanation]:
    found = []
    for first, second in pairs:
        both = first.refused & second.refused
        if not both or first.passing & second.passing:
            continue
        # A condition that no passing unit meets suffices alone; a pair with it serves only to name the op.
        enough = not (first.passing and second.passing)
        if not enough or Aspect.OP in (first.condition.subject.aspect, second.condition.subject.aspect):
            conditions = sorted((first.condition, second.condition), key=_order)
            pair = Explanation(tuple(conditions), both)
            if _sound(pair, ops, passed_ops):
                found.append(pair)
    return found


def _order(condition: Condition) -> tuple[int, str, int, str, str, str]:
    """A total order that depends only on the conditions; at equal cost the more informative ones come first."""
    subject = condition.subject
    aspect = _ASPECTS.index(subject.aspect)
    return condition.cost, subject.op, aspect, subject.name, condition.relation, str(condition.value)


def _sound(explanation: Explanation, ops: Sequence[str], passed_ops: frozenset[str]) -> bool:
    if explanation.op:
        return True
    covered = {op for number, op in enumerate(ops) if explanation.refused >> number & 1}
    if len(covered) < 2:
        return False
    if len(covered) >= _MANY_OPS and all(
        it.subject.aspect is Aspect.RANK and isinstance(it.value, int) and it.value >= _HIGH_RANK
        for it in explanation.conditions
    ):
        return True
    domain = all(condition.subject.aspect is Aspect.DOMAIN for condition in explanation.conditions)
    return domain or bool(covered & passed_ops)
