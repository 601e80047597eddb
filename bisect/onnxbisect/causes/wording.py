"""Word a cause, without counts: `tensors of rank 6 or more`, `Gather with scalar indices`."""

from collections.abc import Sequence

from onnxbisect.causes.condition import Condition
from onnxbisect.causes.terms import Aspect, Relation
from onnxbisect.diagnosis import Certainty, CulpritKind

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
    units = _units(conditions) if _op(conditions) else "the same ops"
    if not instead:
        return f"{_joined(units, phrases)} without {missed.phrase}"
    return _joined(units, [*phrases, instead])


def other_ops_text(conditions: Sequence[Condition], ops: Sequence[str]) -> str:
    """A description of passing units of other ops that meet all conditions but the op."""
    phrases = [condition.phrase for condition in conditions if _beside_the_op(condition)]
    return f"{_joined('other ops', phrases)}: {listed(ops)}"


def nothing_passed(conditions: Sequence[Condition]) -> str:
    """The statement that no unit that meets these conditions passed."""
    condition = conditions[0]
    if len(conditions) > 1 or (condition.subject.op and condition.subject.aspect is not Aspect.OP):
        return "none passed"
    match condition.subject.aspect:
        case Aspect.OP:
            return f"no {condition.subject.op} passed"
        case Aspect.DOMAIN:
            return f"nothing of {condition.value} passed"
        case Aspect.RANK if condition.subject.name == "tensor":
            return f"nothing of rank {condition.value} passed"
        case _:
            return f"nothing with {condition.phrase} passed"


def unexplained(kind: CulpritKind, certainty: Certainty, ops: Sequence[str]) -> str:
    """A description of culprits that no condition explains."""
    text = listed(ops, " + ")
    match kind:
        case CulpritKind.INTERACTION:
            text = f"{text}, only together"
        case CulpritKind.COUNT:
            text = f"too many of {ops[0]}"
        case CulpritKind.CAPACITY:
            return "too much at once"
    return text if certainty is Certainty.CONFIRMED else f"{text}, {certainty.value}"


def listed(names: Sequence[str], separator: str = ", ") -> str:
    """The first few names, joined."""
    shown = separator.join(names[:_OPS])
    return shown if len(names) <= _OPS else f"{shown} and {len(names) - _OPS} more"


def _op(conditions: Sequence[Condition]) -> str:
    return next((condition.subject.op for condition in conditions if condition.subject.op), "")


def _units(conditions: Sequence[Condition]) -> str:
    domain = next((str(it.value) for it in conditions if it.subject.aspect is Aspect.DOMAIN), "")
    return _op(conditions) or (f"ops of {domain}" if domain else "ops")


def _joined(units: str, phrases: Sequence[str]) -> str:
    return f"{units} with {' and '.join(phrases)}" if phrases else units


def _beside_the_op(condition: Condition) -> bool:
    return condition.subject.aspect not in (Aspect.OP, Aspect.DOMAIN)


def _plural(condition: Condition) -> str:
    subject, value = condition.subject, condition.value
    match subject.aspect:
        case Aspect.RANK:
            return f"{subject.name}s of rank {value}" + (" or more" if condition.relation is Relation.AT_LEAST else "")
        case Aspect.DTYPE:
            return f"{value} {subject.name}s"
        case _:
            return f"ops with {condition.phrase}"
