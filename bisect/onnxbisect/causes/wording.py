"""Word a cause, without counts: `tensors of rank 6 or more`, `Gather with scalar indices`."""

from collections.abc import Sequence

from onnxbisect.causes.condition import Condition
from onnxbisect.causes.terms import Aspect, Relation
from onnxbisect.diagnosis import Certainty, CulpritKind
from onnxbisect.language import english, shortened

_OPS = 4


def text_of(conditions: Sequence[Condition]) -> str:
    """A description of the units that meet all of these conditions."""
    phrases = [condition.phrase for condition in conditions if _beside_the_op(condition)]
    if not _op(conditions) and len(conditions) == 1 and phrases:
        return _plural(conditions[0])
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


def _plural(condition: Condition) -> str:
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
