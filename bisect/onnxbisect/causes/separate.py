"""Find the shortest combinations of conditions that some refused units meet and no passing unit meets."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations, product

from onnxbisect.causes.condition import Condition
from onnxbisect.causes.table import ConditionRow
from onnxbisect.causes.terms import Aspect

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
    if len(covered) >= _MANY_OPS and all(map(_is_high_rank, explanation.conditions)):
        return True
    domain = all(condition.subject.aspect is Aspect.DOMAIN for condition in explanation.conditions)
    return domain or bool(covered & passed_ops)


def _is_high_rank(condition: Condition) -> bool:
    subject, value = condition.subject, condition.value
    return subject.aspect is Aspect.RANK and isinstance(value, int) and value >= _HIGH_RANK
