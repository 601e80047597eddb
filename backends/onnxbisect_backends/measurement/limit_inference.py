"""Infers a compiler's limits for an op from uses that compile and uses that do not.

A limit must come from an experiment: of two uses that differ in no other observed feature, one compiles and the other,
beyond the limit, does not; and nothing beyond the limit has ever compiled. Refused uses without such an explanation are
listed individually by the caller.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import TensorProto

from onnxbisect_backends.simulator.constraints import default_of, value_of
from onnxbisect_backends.simulator.profiles import AttrConstraint, InputConstraint, Scalar
from onnxbisect_backends.simulator.scope import Scope

#: The sorts of limit, most likely explanation first; `other` is no limit, but uses that differ in it are no
#: experiment.
_SORTS = ("dtype", "computed", "attr", "rank", "given", "other")

#: Attributes that repeat the shape of a weight, so their values are no limits.
_SIZES = frozenset({"hidden_size"})


@dataclass(frozen=True, kw_only=True, order=True)
class Feature:
    """A property of a use of an op: `sort` as in `_SORTS`, the attribute or input, and the value."""

    sort: int
    name: str
    value: str = ""


@dataclass(frozen=True, kw_only=True)
class Use:
    """One use of an op with its verdict."""

    features: Mapping[Feature, Scalar]
    passed: bool
    message: str


def features_of(node: onnx.NodeProto, scope: Scope) -> dict[Feature, Scalar]:
    """The observed properties of a use.

    These are attributes that are not at their default, dtypes by type parameter, which inputs are given and computed,
    the first input's rank, and the number of outputs. Shapes and values are not observed.
    """
    schema = scope.schema(node)
    if schema is None:
        return {}
    seen = _seen(node, scope, schema)
    return {Feature(sort=_SORTS.index(sort), name=name, value=repr(value)): value for sort, name, value in seen}


def limits(uses: Sequence[Use]) -> tuple[list[AttrConstraint | InputConstraint], list[int]]:
    """The limits, those that explain most first, and the indices of refused uses that none explains."""
    left = [index for index, use in enumerate(uses) if not use.passed]
    found: dict[tuple[int, str], list[tuple[Scalar, str]]] = {}
    candidates = dict(_established(uses))
    while left and candidates:
        explained = {it: [index for index in left if it in uses[index].features] for it in candidates}
        best = min(candidates, key=lambda it: (-len(explained[it]), it))
        if not explained[best]:
            break
        left = [index for index in left if index not in explained[best]]
        value = uses[explained[best][0]].features[best]
        found.setdefault((best.sort, best.name), []).append((value, candidates.pop(best)))
    return [_constraint(_SORTS[sort], name, seen) for (sort, name), seen in found.items()], left


def _established(uses: Sequence[Use]) -> Iterator[tuple[Feature, str]]:
    """The features that experiments show to be refused, each with the compiler's message."""
    passing = [use.features.keys() for use in uses if use.passed]
    fine = {feature for features in passing for feature in features}
    for use in uses:
        if not use.passed:
            for features in passing:
                difference = use.features.keys() - features
                if len(difference) == 1 and not difference & fine:
                    (feature,) = difference
                    if _SORTS[feature.sort] != "other" and all(
                        _in_its_place(feature, it) for it in features - use.features.keys()
                    ):
                        yield feature, use.message


def _in_its_place(feature: Feature, passing: Feature) -> bool:
    """Whether `passing`, a feature of a passing use, corresponds to `feature` of a refused one.

    It is another value of the same attribute or input, or the attribute that the input has replaced.
    """
    return passing.name == feature.name and (passing.sort == feature.sort or _SORTS[feature.sort] == "given")


def _seen(node: onnx.NodeProto, scope: Scope, schema: onnx.defs.OpSchema) -> Iterator[tuple[str, str, Scalar]]:
    for name in schema.attributes:
        written = scope.attribute(node, name)
        value = None if written is None else value_of(written)
        if value is None or value == default_of(node, name, scope):
            continue
        if isinstance(value, list | float) or name in _SIZES:
            yield "other", name, str(value)
        else:
            yield "attr", name, value
    yield "other", "outputs", sum(1 for name in node.output if name)
    parameters = {it.type_param_str for it in schema.type_constraints}
    for position, (tensor, formal) in enumerate(zip(node.input, schema.inputs, strict=False)):
        known = scope.type_of(tensor) if tensor else None
        if known is None:
            continue
        if formal.option == onnx.defs.OpSchema.FormalParameterOption.Optional:
            if not scope.is_given(tensor):
                continue
            yield "given", formal.name, True
        if not scope.is_constant(tensor):
            yield "computed", formal.name, True
        if formal.type_str in parameters and known.dtype:
            parameters.remove(formal.type_str)
            yield "dtype", formal.name, TensorProto.DataType.Name(known.dtype)
        if position == 0 and known.dims is not None:
            yield "rank", formal.name, len(known.dims)


def _constraint(sort: str, name: str, seen: Sequence[tuple[Scalar, str]]) -> AttrConstraint | InputConstraint:
    values, message = tuple(value for value, _ in seen), seen[0][1]
    match sort:
        case "attr":
            return AttrConstraint(kind="attr", name=name, rule="not_in", value=values, seen=message)
        case "dtype":
            return InputConstraint(kind="input", name=name, rule="dtype_not_in", value=values, seen=message)
        case "rank":
            return InputConstraint(kind="input", name=name, rule="rank_not_in", value=values, seen=message)
        case "computed":
            return InputConstraint(kind="input", name=name, rule="initializer", seen=message)
    return InputConstraint(kind="input", name=name, rule="absent", seen=message)
