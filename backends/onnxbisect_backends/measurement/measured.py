"""Builds a profile from a compiler's answers about single nodes, to give the same answers, and learns how it refuses.

A limit in it comes from an experiment: of two uses that differ in no other observed feature, one compiles and the
other, beyond the limit, does not; and nothing beyond the limit has ever compiled. Refused uses without such an
explanation are listed individually. Two more models, made of ops that were refused, show whether the compiler folds
constant ones, and how many its log names.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

import onnx
from onnx import TensorProto, helper

from onnxbisect.model.scopes import attribute_value, opset_versions
from onnxbisect.report.text import clip, plural, uncoloured
from onnxbisect.verdict import Kind, Verdict
from onnxbisect_backends.contract import Description
from onnxbisect_backends.measurement.node_tests import NODE, NodeTestForm
from onnxbisect_backends.simulator.constraints import GraphScope, default_of, enter, spelled
from onnxbisect_backends.simulator.profiles import (
    AttrConstraint,
    InputConstraint,
    LogDetail,
    OpSupport,
    Profile,
    RefusedVariant,
    Scalar,
    Unlisted,
)
from onnxbisect_backends.simulator.refusals import Rules, refusals

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


def features_of(node: onnx.NodeProto, scope: GraphScope) -> dict[Feature, Scalar]:
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
                    # what the passing use has in its place: another value of the same attribute or input, or the
                    # attribute that the input has replaced
                    in_its_place = all(
                        it.name == feature.name and (it.sort == feature.sort or _SORTS[feature.sort] == "given")
                        for it in features - use.features.keys()
                    )
                    if in_its_place and _SORTS[feature.sort] != "other":
                        yield feature, use.message


def _seen(node: onnx.NodeProto, scope: GraphScope, schema: onnx.defs.OpSchema) -> Iterator[tuple[str, str, Scalar]]:
    for name in schema.attributes:
        written = scope.attribute(node, name)
        value = None if written is None else attribute_value(written)
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


#: Most characters of a message in a profile.
_WORDS = 200

#: A timestamp in a log line, which would make every measurement different.
_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\S*\s*")

#: Listed without a test, because a Constant alone is nothing to compile.
_CONSTANT = {"Constant": OpSupport(note="Not asked: it cannot be a model on its own.")}


@dataclass(frozen=True, kw_only=True)
class MeasuredTest:
    """One node test in one form, with the compiler's answer."""

    test: str
    op: str
    form: NodeTestForm
    model: onnx.ModelProto
    verdict: Verdict


@dataclass(kw_only=True)
class MeasuredTests:
    """The answers, the ops that were tried, and the names of tests with a form that got no answer."""

    answers: list[MeasuredTest] = field(default_factory=list)
    ops: set[str] = field(default_factory=set)
    unanswered: set[str] = field(default_factory=set)


@dataclass(frozen=True, kw_only=True)
class RefusalBehaviour:
    """How a compiler treats refused ops; None where no answer shows it."""

    folds: bool | None = None
    report: LogDetail | None = None


def measured_profile(
    name: str,
    measured: MeasuredTests,
    description: Description,
    behaviour: RefusalBehaviour,
    *,
    source: str,
    tests: int,
) -> Profile:
    """The profile: an op is listed if some use of it compiled.

    Refused uses become limits where the answers show which (`limit_inference`); other ones are listed individually.
    `tests` is the number of existing tests. An op is refused if one of its tests failed in every form; if that is not
    known of any, the op is unknown.
    """
    answers, unanswered = measured.answers, measured.unanswered
    by_op: dict[str, list[MeasuredTest]] = {}
    for answer in sorted(answers, key=lambda it: (it.op, it.test, list(NodeTestForm).index(it.form))):
        if answer.verdict.passed or answer.verdict.failed:
            by_op.setdefault(answer.op, []).append(answer)
    supported = {
        op: _support(of_op, unanswered) for op, of_op in by_op.items() if any(it.verdict.passed for it in of_op)
    }
    settled = {answer.op for of_op in by_op.values() for answer in of_op if answer.test not in unanswered}
    refused = {op: _words(_likeliest(by_op[op])) for op in by_op if op in settled and op not in supported}
    silent = sorted(measured.ops - supported.keys() - refused.keys() - _CONSTANT.keys())
    answered = len({answer.test for of_op in by_op.values() for answer in of_op})
    # its usual message for a refused op, with `{op}` and `{node}` in place of the names
    said = Counter(words.replace(op, "{op}").replace(NODE, "{node}") for op, words in refused.items() if op in words)
    usual = [words for words, count in said.most_common(1) if count > 1]
    profile = Profile(
        profile=name,
        tool=description.tool,
        version=description.version,
        source=source,
        semantics="An op is listed where one of its tests compiled, in some form; node_tests says how many did. "
        "Constraints are what tests that differ in one thing show; refuses lists what no constraint explains.",
        folds=bool(behaviour.folds),
        report=behaviour.report or LogDetail.FIRST,
        refusal=usual[0] if usual else "{op} is refused",
        notes=(
            f"{plural(answered, 'test')} of {plural(len(by_op), 'op')} answered, as {len(answers)} models"
            + (f"; {plural(tests - answered, 'test')} cannot be asked or got no answer." if tests > answered else "."),
            *(["Whether it folds constants first was not seen."] if behaviour.folds is None else []),
            *([f"No answer in every form about {', '.join(silent)}."] if silent else []),
            *(["What its log names of several offenders was not seen."] if behaviour.report is None else []),
        ),
        unlisted=Unlisted.UNKNOWN,
        ops=dict(sorted({**_CONSTANT, **supported}.items())),
        refused=dict(sorted(refused.items())),
    )
    wrong = sorted({answer.test for answer in disagreements(profile, answers) if answer.op not in silent})
    note = f"On {plural(len(wrong), 'test')} it answers otherwise than the tool: {', '.join(wrong)}."
    return profile.model_copy(update={"notes": (*profile.notes, note)}) if wrong else profile


def disagreements(profile: Profile, answers: Sequence[MeasuredTest]) -> list[MeasuredTest]:
    """The answers that the profile would not have given."""
    rules = Rules(profile=profile)
    return [
        answer
        for answer in answers
        if (answer.verdict.passed or answer.verdict.failed)
        and answer.verdict.failed != any(it.kind is not Kind.UNKNOWN for it in refusals(answer.model, rules))
    ]


def _support(answers: Sequence[MeasuredTest], unanswered: Set[str]) -> OpSupport:
    scopes = []
    for answer in answers:
        model = answer.model
        scopes.append((model.graph.node[0], enter(model.graph, opsets=opset_versions(model.opset_import), outer=None)))
    uses = [
        Use(features=features_of(node, scope), passed=answer.verdict.passed, message=_words(answer))
        for answer, (node, scope) in zip(answers, scopes, strict=True)
    ]
    constraints, unexplained = limits(uses)
    compiled = [scope for use, scope in zip(uses, scopes, strict=True) if use.passed]
    fine = {spelled(*scope, exact=exact) for scope in compiled for exact in (False, True)}
    refuses: dict[str, str] = {}
    for index in unexplained:
        spellings = (spelled(*scopes[index], exact=exact) for exact in (False, True))
        spelling = next((it for it in spellings if it is not None and it not in fine), None)
        if spelling is not None:
            refuses.setdefault(spelling, uses[index].message)
    passed = {answer.test for answer in answers if answer.verdict.passed}
    tests = passed | {answer.test for answer in answers} - unanswered
    return OpSupport(
        constraints=tuple(constraints),
        refuses=tuple(RefusedVariant(variant=spelling, message=refuses[spelling]) for spelling in sorted(refuses)),
        node_tests=f"{len(passed)}/{len(tests)}",
        failed_tests=tuple(sorted(tests - passed)),
    )


def _words(answer: MeasuredTest) -> str:
    verdict = answer.verdict
    said = _TIME.sub("", uncoloured(verdict.message or verdict.fingerprint or str(verdict.kind)))
    return clip(said, _WORDS)


def _likeliest(answers: Sequence[MeasuredTest]) -> MeasuredTest:
    """The answer, about the first test, whose message says most about the op.

    Preferably its hints name the op, and its weights are constant, because computed weights may be the reason.
    """
    first = [answer for answer in answers if answer.test == answers[0].test]
    named = [answer for answer in first if answer.model.graph.node[0].op_type in answer.verdict.hints.ops] or first
    return next((answer for answer in named if answer.form is NodeTestForm.WEIGHTS), named[0])


def folding_model(answers: Sequence[MeasuredTest]) -> onnx.ModelProto | None:
    """`y = x + Op(constant)` with a refused op; it compiles if constants are folded first."""
    for refused in _refused(answers):
        graph, taken = onnx.GraphProto(name="folding"), refused.model.graph
        given, made = taken.input[0], taken.output[0]
        dims = [dim.dim_value for dim in given.type.tensor_type.shape.dim]
        node = graph.node.add()
        node.CopyFrom(taken.node[0])
        node.input[:], node.output[:] = ["constant"], ["folded"]
        graph.initializer.append(helper.make_tensor("constant", TensorProto.FLOAT, dims, [0.5] * math.prod(dims)))
        graph.input.add(name="x", type=made.type)
        graph.output.add(name="y", type=made.type)
        graph.node.append(helper.make_node("Add", ["x", "folded"], ["y"], name="after"))
        return _model(graph, refused.model)
    return None


def reporting_model(answers: Sequence[MeasuredTest]) -> onnx.ModelProto | None:
    """Two refused ops side by side in one model."""
    refused = list(_refused(answers))
    for other in refused[1:]:
        first = refused[0]
        if list(first.model.opset_import) != list(other.model.opset_import):
            continue
        graph = onnx.GraphProto(name="reporting")
        for number, one in enumerate((first, other), 1):
            taken = one.model.graph
            node = graph.node.add()
            node.CopyFrom(taken.node[0])
            node.name = f"node_{number}"
            node.input[:] = [f"x{number}"]
            node.output[:] = [f"y{number}"]
            graph.input.add(name=f"x{number}", type=taken.input[0].type)
            graph.output.add(name=f"y{number}", type=taken.output[0].type)
        return _model(graph, first.model)
    return None


def report_of(model: onnx.ModelProto, verdict: Verdict) -> LogDetail | None:
    """How many of the model's nodes the log named; None if the model did not fail."""
    if not verdict.failed:
        return None
    hints = verdict.hints
    named = [node for node in model.graph.node if node.op_type in hints.ops or node.name in hints.nodes]
    return {0: LogDetail.NONE, 1: LogDetail.FIRST}.get(len(named), LogDetail.ALL)


def _refused(answers: Sequence[MeasuredTest]) -> Iterator[MeasuredTest]:
    """Of each op that never compiled, a use with one float input and one float output of known shapes."""
    passed = {answer.op for answer in answers if answer.verdict.passed}
    seen: set[str] = set()
    for answer in sorted(answers, key=lambda it: (it.op, it.test)):
        graph = answer.model.graph
        if "::" in answer.op or answer.op in passed | seen or not answer.verdict.failed or graph.initializer:
            continue
        ends = [value.type.tensor_type for value in (*graph.input, *graph.output)]
        plain = all(it.elem_type == TensorProto.FLOAT and all(dim.dim_value > 0 for dim in it.shape.dim) for it in ends)
        if plain and len(ends) == 2 and len(graph.node[0].input) == len(graph.node[0].output) == 1:
            seen.add(answer.op)
            yield answer


def _model(graph: onnx.GraphProto, like: onnx.ModelProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=list(like.opset_import), ir_version=like.ir_version)
