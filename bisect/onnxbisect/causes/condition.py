"""A condition on a unit, such as `an input of rank 6 or more`, its wording, and that of a cause."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from onnxbisect.causes.features import COMPUTED, CONSTANT, DYNAMIC, FOLDED, OMITTED, FeatureSubject, Row
from onnxbisect.causes.terms import Aspect, CauseState, Relation
from onnxbisect.diagnosis import Certainty, CulpritKind
from onnxbisect.language import english, shortened
from onnxbisect.unitset import UnitSet

#: The value of an attribute that a node lacks and other nodes of its op have.
ABSENT = "absent"
_LISTED = 3
#: What a condition calls any tensor of a unit, as `_a` and `wording` write it; for the catalogue.
NOUNS = (
    english("tensor"),
    english("input"),
    english("output"),
    english("a tensor"),
    english("an input"),
    english("an output"),
    english("tensors"),
    english("inputs"),
    english("outputs"),
    english("ops"),
    english(" or "),
)
_HIGH_RANK = 5


@dataclass(frozen=True)
class Condition:
    """Holds for a unit if one of its values for `subject` has this relation to `value`."""

    subject: FeatureSubject
    relation: Relation
    value: int | str

    @property
    def cost(self) -> int:
        """The cost of stating the condition beside the op; of two conditions that fit, the cheaper is taken.

        Simple statements cost least. Exact values and sizes cost most, because they fit by chance more often.
        """
        aspect, relation = self.subject.aspect, self.relation
        if aspect in (Aspect.ELEMENTS, Aspect.DIMENSION, Aspect.ALIGNMENT):
            return 5 if aspect is Aspect.ELEMENTS else 6
        cost = {Aspect.OP: 0, Aspect.VALUE: 3, Aspect.SHAPE: 3, Aspect.INPUTS: 3, Aspect.OUTPUTS: 3}.get(aspect, 2)
        if aspect in (Aspect.RANK, Aspect.DTYPE) and not self.subject.op:
            cost += 1 if self.subject.name == "tensor" else 2
        if aspect is Aspect.LARGEST or relation is Relation.OTHER:
            cost += 1
        if aspect is Aspect.RANK and not (relation is Relation.AT_MOST and self.value == 0):
            # low for scalars and for high ranks, which compilers often refuse; a single rank costs more than a range
            high = relation is Relation.AT_LEAST and isinstance(self.value, int) and self.value >= _HIGH_RANK
            cost += (0 if high else 1) + (1 if relation is Relation.IS else 0)
        return cost

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
            return (
                phrase(self.subject, Relation.OTHER, (self.value,))
                if self.relation is Relation.IS and self.subject.aspect in (Aspect.ATTRIBUTE, Aspect.VALUE)
                else ""
            )
        return phrase(self.subject, Relation.IS, texts)


def phrase(subject: FeatureSubject, relation: Relation, values: Sequence[int | str]) -> str:
    """`an int64 input`, `scalar indices`, `axis = 0 or 1`."""
    name = subject.name
    value = " or ".join(map(str, values))
    bound = counted = value
    if relation is Relation.AT_LEAST:
        bound = counted = english("{value} or more", value=value)
    elif relation is Relation.AT_MOST:
        bound, counted = english("{value} or less", value=value), english("{value} or fewer", value=value)
    match subject.aspect:
        case Aspect.OP:
            return ""
        case Aspect.DOMAIN:
            return english("the domain {bound}", bound=value)
        case Aspect.RANK if subject.op:
            if relation is not Relation.AT_LEAST and value == "0":
                return english("scalar {name}", name=name)
            return english("{noun} of rank {bound}", noun=name, bound=bound)
        case Aspect.RANK:
            return english("{noun} of rank {bound}", noun=_a(name), bound=bound)
        case Aspect.DTYPE if subject.op:
            return english("{name} of type {bound}", name=name, bound=value)
        case Aspect.DTYPE if _a(value).startswith("an "):
            return english("an {value} {noun}", value=value, noun=name)
        case Aspect.DTYPE:
            return english("a {value} {noun}", value=value, noun=name)
        case Aspect.SHAPE if value == DYNAMIC:
            return english("a tensor whose shape is not fixed")
        case Aspect.SHAPE:
            return english("an empty tensor")
        case Aspect.SOURCE:
            return _source(name, relation, values)
        case Aspect.ATTRIBUTE:
            if values == (ABSENT,) or values == [ABSENT]:
                return _given(name) if relation is Relation.OTHER else english("no {name}", name=name)
            return _valued(name, relation, value)
        case Aspect.VALUE:
            return _valued(name, relation, value)
        case Aspect.LARGEST:
            return english("{name} of {bound}", name=name, bound=bound)
        case Aspect.SIGN:
            return english("negative {name}", name=name)
        case Aspect.INPUTS if value == "1":
            return english("{bound} input", bound=counted)
        case Aspect.INPUTS:
            return english("{bound} inputs", bound=counted)
        case Aspect.OUTPUTS if value == "1":
            return english("{bound} output", bound=counted)
        case Aspect.OUTPUTS:
            return english("{bound} outputs", bound=counted)
        case Aspect.DIMENSION:
            return english("a dimension of {name} of {bound}", name=name, bound=bound)
        case Aspect.ELEMENTS:
            return english("{bound} elements in {name}", bound=counted, name=name)
        case Aspect.ALIGNMENT if relation is Relation.AT_MOST:
            return english("{dimension} that is no multiple of {bound}", dimension=name, bound=2 * int(values[0]))
        case Aspect.ALIGNMENT:
            return english("{dimension} that is a multiple of {bound}", dimension=name, bound=value)


def _given(name: str) -> str:
    return english("{name} given", name=name)


def _valued(name: str, relation: Relation, value: str) -> str:
    if relation is Relation.OTHER:
        return english("{name} other than {bound}", name=name, bound=value)
    return english("{name} = {bound}", name=name, bound=value)


def _source(name: str, relation: Relation, values: Sequence[int | str]) -> str:
    words = {
        CONSTANT: english("constant {name}", name=name),
        FOLDED: english("{name} computed from constants", name=name),
        COMPUTED: english("computed {name}", name=name),
        OMITTED: english("no {name}", name=name),
    }
    text = " or ".join(words[str(value)] for value in values)
    if relation is not Relation.OTHER:
        return text
    if values[0] == OMITTED:
        return _given(name)
    return english("{name} that is not {bound}", name=name, bound=values[0])


def _a(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aio" else f"a {noun}"


@dataclass(frozen=True, kw_only=True)
class AskedNeighbour:
    """The result of compiling a culprit with one thing changed (`onnxbisect.neighbours`).

    `culprit` is its index in `Diagnosis.culprits`, `text` describes the change and the result, `row` holds the
    features.
    """

    culprit: int
    text: str
    row: Row
    passed: bool


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """Units that passed although they meet all conditions of a cause except `condition`; `passes` describes them.

    `units` is empty where the evidence is a changed culprit.
    """

    condition: Condition
    passes: str
    units: UnitSet


@dataclass(frozen=True, kw_only=True)
class RefusalConditions:
    """Conditions that some culprits meet and no passing unit meets.

    `culprits` are indices into `Diagnosis.culprits`; each culprit has one cause. `refused` are the units of confirmed
    culprits that meet all `conditions`, `unknown` those that meet them and neither belong to such a culprit nor passed.
    An unexplained cause has no conditions; its culprits are only alike. `established` tells that one of the culprits is
    confirmed, and that what passed differs from it in the condition and not also in what is beside it; otherwise the
    cause is in doubt. Without a confirmed culprit `refused` holds the units of the others. `in_company`: what passed
    did so only beside other ops than those beside the culprits, and they may be what matters. `fits_too` are
    alternative conditions that separate the same culprits from the passing units equally well.
    """

    state: CauseState
    text: str
    culprits: tuple[int, ...]
    established: bool
    conditions: tuple[Condition, ...] = ()
    refused: UnitSet = 0
    unknown: UnitSet = 0
    contrast: tuple[Contrast, ...] = ()
    fits_too: tuple[str, ...] = ()
    in_company: bool = False

    @property
    def telling(self) -> bool:
        """Whether the cause says more than which ops are refused."""
        return self.state in (CauseState.CONFIRMED, CauseState.OBSERVED) and not self.in_company


_OPS = 4


def text_of(conditions: Sequence[Condition]) -> str:
    """A description of the units that meet all of these conditions."""
    phrases = [condition.phrase for condition in conditions if _beside_the_op(condition)]
    if not _op(conditions) and len(conditions) == 1 and phrases:
        condition = conditions[0]
        subject, value = condition.subject, condition.value
        match subject.aspect:
            case Aspect.RANK:
                bound = str(value)
                if condition.relation is Relation.AT_LEAST:
                    bound = english("{value} or more", value=value)
                return english("{noun} of rank {bound}", noun=f"{subject.name}s", bound=bound)
            case Aspect.DTYPE:
                if subject.name == "input":
                    return english("{value} inputs", value=value)
                if subject.name == "output":
                    return english("{value} outputs", value=value)
                return english("{value} tensors", value=value)
            case _:
                return _joined(english("ops"), [condition.phrase])
    return _joined(_units(conditions), phrases)


def passing_text(conditions: Sequence[Condition], missed: Condition, instead: str) -> str:
    """A description of passing units that miss one condition, with the value that they have `instead`, if any."""
    phrases = [condition.phrase for condition in conditions if condition != missed and _beside_the_op(condition)]
    units = _units(conditions) if _op(conditions) else english("the same ops")
    if not instead:
        return english("{sentence} without {phrase}", sentence=_joined(units, phrases), phrase=missed.phrase)
    return _joined(units, [*phrases, instead])


def other_ops_text(conditions: Sequence[Condition], ops: Sequence[str]) -> str:
    """A description of passing units of other ops that meet all conditions but the op."""
    phrases = [condition.phrase for condition in conditions if _beside_the_op(condition)]
    return english("{sentence}: {names}", sentence=_joined(english("other ops"), phrases), names=shortened(ops, _OPS))


def nothing_passed(conditions: Sequence[Condition]) -> str:
    """The statement that no unit that meets these conditions passed."""
    condition = conditions[0]
    if len(conditions) > 1 or (condition.subject.op and condition.subject.aspect is not Aspect.OP):
        return english("none passed")
    match condition.subject.aspect:
        case Aspect.OP:
            return english("no {op} passed", op=condition.subject.op)
        case Aspect.DOMAIN:
            return english("nothing of {value} passed", value=condition.value)
        case Aspect.RANK if condition.subject.name == "tensor":
            return english("nothing of rank {value} passed", value=condition.value)
        case _:
            return english("nothing with {phrase} passed", phrase=condition.phrase)


def unexplained(kind: CulpritKind, certainty: Certainty, ops: Sequence[str]) -> str:
    """A description of culprits that no condition explains."""
    text = shortened(ops, _OPS, " + ")
    match kind:
        case CulpritKind.INTERACTION:
            text = english("{names}, only together", names=text)
        case CulpritKind.COUNT:
            text = english("too many of {op}", op=ops[0])
        case CulpritKind.CAPACITY:
            return english("too much at once")
    if certainty is Certainty.FLAKY:
        return english("{sentence}, flaky", sentence=text)
    return english("{sentence}, suspected", sentence=text) if certainty is Certainty.SUSPECTED else text


def _op(conditions: Sequence[Condition]) -> str:
    return next((condition.subject.op for condition in conditions if condition.subject.op), "")


def _units(conditions: Sequence[Condition]) -> str:
    domain = next((str(it.value) for it in conditions if it.subject.aspect is Aspect.DOMAIN), "")
    return _op(conditions) or (english("ops of {domain}", domain=domain) if domain else english("ops"))


def _joined(units: str, phrases: Sequence[str]) -> str:
    return (
        english("{subject} with {phrases}", subject=units, phrases=english(" and ").join(phrases)) if phrases else units
    )


def _beside_the_op(condition: Condition) -> bool:
    return condition.subject.aspect not in (Aspect.OP, Aspect.DOMAIN)
