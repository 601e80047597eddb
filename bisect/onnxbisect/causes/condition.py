"""A condition on a unit, such as `an input of rank 6 or more`, and its wording."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from onnxbisect.causes.features import (
    COMPUTED,
    CONSTANT,
    DYNAMIC,
    FOLDED,
    OMITTED,
    Subject,
)
from onnxbisect.causes.terms import Aspect, Relation

#: The value of an attribute that a node lacks and other nodes of its op have.
ABSENT = "absent"
_LISTED = 3
_HIGH_RANK = 5


@dataclass(frozen=True)
class Condition:
    """Holds for a unit if one of its values for `subject` has this relation to `value`."""

    subject: Subject
    relation: Relation
    value: int | str

    @property
    def cost(self) -> int:
        """The cost of stating the condition beside the op; of two conditions that fit, the cheaper is taken.

        Simple statements cost least. Exact values and sizes cost most, because they fit by chance more often.
        """
        aspect, relation = self.subject.aspect, self.relation
        if aspect in (Aspect.ELEMENTS, Aspect.DIMENSION):
            return 5 if aspect is Aspect.ELEMENTS else 6
        cost = {Aspect.OP: 0, Aspect.VALUE: 3, Aspect.SHAPE: 3, Aspect.INPUTS: 3, Aspect.OUTPUTS: 3}.get(aspect, 2)
        if aspect in (Aspect.RANK, Aspect.DTYPE) and not self.subject.op:
            cost += 1 if self.subject.name == "tensor" else 2
        if aspect is Aspect.LARGEST or relation is Relation.OTHER:
            cost += 1
        return cost + (self._rank_cost if aspect is Aspect.RANK else 0)

    @property
    def _rank_cost(self) -> int:
        """Low for scalars and for high ranks, which compilers often refuse; a single rank costs more than a range."""
        if self.value == 0 and self.relation is Relation.AT_MOST:
            return 0
        unusual = self.relation is Relation.AT_LEAST and isinstance(self.value, int) and self.value >= _HIGH_RANK
        return (0 if unusual else 1) + (1 if self.relation is Relation.IS else 0)

    @property
    def phrase(self) -> str:
        """The text that follows `Gather with` or `ops with`; empty for a condition on the op itself."""
        return phrase(self.subject, self.relation, (self.value,))

    def instead(self, values: Collection[int | str]) -> str:
        """The wording for units that have these values instead; empty where there are too many values."""
        if not values or self.subject.aspect is Aspect.SIGN:
            return ""
        numbers = [value for value in values if isinstance(value, int)] if len(values) > 1 else []
        if numbers and self.relation is Relation.AT_LEAST:
            return phrase(self.subject, Relation.AT_MOST, (max(numbers),))
        if numbers and self.relation is Relation.AT_MOST:
            return phrase(self.subject, Relation.AT_LEAST, (min(numbers),))
        texts = sorted(values, key=lambda value: (isinstance(value, str), value))
        if len(texts) > _LISTED:
            return phrase(self.subject, Relation.OTHER, (self.value,)) if self._has_others else ""
        return phrase(self.subject, Relation.IS, texts)

    @property
    def _has_others(self) -> bool:
        return self.relation is Relation.IS and self.subject.aspect in (Aspect.ATTRIBUTE, Aspect.VALUE)


def phrase(subject: Subject, relation: Relation, values: Sequence[int | str]) -> str:
    """`an int64 input`, `scalar indices`, `axis = 0 or 1`."""
    name = subject.name
    value = " or ".join(map(str, values))
    bound = value + {Relation.AT_LEAST: " or more", Relation.AT_MOST: " or less"}.get(relation, "")
    counted = bound.replace("less", "fewer")
    other = f"other than {value}" if relation is Relation.OTHER else f"= {value}"
    match subject.aspect:
        case Aspect.OP:
            return ""
        case Aspect.DOMAIN:
            return f"the domain {value}"
        case Aspect.RANK if subject.op:
            return f"scalar {name}" if relation is not Relation.AT_LEAST and value == "0" else f"{name} of rank {bound}"
        case Aspect.RANK:
            return f"{_a(name)} of rank {bound}"
        case Aspect.DTYPE:
            return f"{name} of type {value}" if subject.op else f"{_a(value)} {name}"
        case Aspect.SHAPE:
            return "a tensor whose shape is not fixed" if value == DYNAMIC else "an empty tensor"
        case Aspect.SOURCE:
            return _source(name, relation, values)
        case Aspect.ATTRIBUTE:
            if values == (ABSENT,) or values == [ABSENT]:
                return f"{name} given" if relation is Relation.OTHER else f"no {name}"
            return f"{name} {other}"
        case Aspect.VALUE:
            return f"{name} {other}"
        case Aspect.LARGEST:
            return f"{name} of {bound}"
        case Aspect.SIGN:
            return f"negative {name}"
        case Aspect.INPUTS | Aspect.OUTPUTS:
            return f"{counted} {subject.aspect.value}" if value != "1" else f"{counted} {subject.aspect.value[:-1]}"
        case Aspect.DIMENSION:
            return f"a dimension of {name} of {bound}"
        case Aspect.ELEMENTS:
            return f"{counted} elements in {name}"


def _source(name: str, relation: Relation, values: Sequence[int | str]) -> str:
    words = {
        CONSTANT: f"constant {name}",
        FOLDED: f"{name} computed from constants",
        COMPUTED: f"computed {name}",
        OMITTED: f"no {name}",
    }
    text = " or ".join(words[str(value)] for value in values)
    if relation is not Relation.OTHER:
        return text
    return f"{name} given" if values[0] == OMITTED else f"{name} that is not {values[0]!s}"


def _a(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aio" else f"a {noun}"
