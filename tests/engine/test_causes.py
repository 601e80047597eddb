"""Why culprits are refused: what is said, and what is not said without evidence."""

from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from onnx import TensorProto, helper

from onnx_bisect import report_schema
from onnxbisect.causes.condition import RefusalConditions
from onnxbisect.causes.explain import causes
from onnxbisect.causes.terms import CauseState
from onnxbisect.diagnosis import Certainty, CompletedDiagnosis, CulpritKind
from onnxbisect.report.document import document
from onnxbisect.report.established import Records
from onnxbisect.unitset import members, of, size
from support.engine.refusals import GATHERS, WINDOWS, and_also, model_of, node, rank, refusing, scalar_indices, wide
from support.engine.report_factory import culprit


def found(job: CompletedDiagnosis) -> tuple[RefusalConditions, ...]:
    records = Records(job.probes)
    return causes(job.model, job.diagnosis, records.passed, alone=records.passed_alone)


def external(name: str) -> TensorProto:
    """A scalar that is in no file."""
    tensor = TensorProto(name=name, data_type=TensorProto.INT64, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="gone")
    return tensor


def test_thirteen_culprits_that_share_a_rank_have_one_cause(tmp_path: Path) -> None:
    job = wide(model_of(tmp_path, WINDOWS))
    assert len(job.diagnosis.culprits) == 13
    (cause,) = found(job)
    assert cause.text == "tensors of rank 6 or more"
    assert cause.state is CauseState.OBSERVED
    assert sorted(cause.culprits) == list(range(13))
    assert (size(cause.refused), size(cause.unknown)) == (13, 0)
    (contrast,) = cause.contrast
    assert contrast.passes == "the same ops with a tensor of rank 4 or less"
    ops = {job.model.universe.op[unit] for unit in members(contrast.units)}
    assert ops == {"Reshape", "Transpose", "Relu", "Exp"}


def test_gathers_that_differ_in_a_constant_index_have_one_cause(tmp_path: Path) -> None:
    model = model_of(tmp_path, GATHERS)
    job = refusing(model, scalar_indices)
    assert len(job.diagnosis.culprits) == 4
    (cause,) = found(job)
    assert cause.text == "Gather with scalar indices"
    assert cause.fits_too == ("Gather with data of rank 3 or more",)
    assert [contrast.passes for contrast in cause.contrast] == ["Gather with indices of rank 1"]
    assert size(cause.contrast[0].units) == 1


def test_of_two_conditions_that_cost_the_same_the_rank_is_named_before_an_attribute(tmp_path: Path) -> None:
    model = model_of(
        tmp_path,
        """(float[2,4,4] x) => (float[2,4,4] y) {
            s = Constant<value_ints = [1,2,4,4]>() back = Constant<value_ints = [2,4,4]>()
            a = Transpose<perm = [0,2,1]>(x) b = Reshape(a, s) c = Transpose<perm = [0,2,1,3]>(b)
            d = Relu(c) e = Transpose<perm = [0,1,3,2]>(d) y = Reshape(e, back)
        }""",
    )
    (cause,) = found(refusing(model, lambda it: it.op_type == "Transpose" and len(it.attribute[0].ints) == 4))
    assert cause.text == "Transpose with data of rank 4 or more"


def test_ops_that_never_passed_are_refused_themselves_and_nothing_is_made_up(tmp_path: Path) -> None:
    """Both read what nothing else reads, which may be chance."""
    model = model_of(
        tmp_path, "(float[2,3] x, double[2,3] u) => (float[2,3] y, double[2,3] v) { y = Relu(x) t = Sin(u) v = Cos(t) }"
    )
    job = refusing(model, lambda it: it.op_type in ("Sin", "Cos"))
    assert [(cause.text, cause.state) for cause in found(job)] == [
        ("Sin", CauseState.NO_CONTRAST),
        ("Cos", CauseState.NO_CONTRAST),
    ]


def test_what_several_ops_share_is_a_cause_where_one_of_them_passed_without_it(tmp_path: Path) -> None:
    model = model_of(
        tmp_path,
        "(float[2,3] x, double[2,3] u) => (float[2,3] y, double[2,3] v) { y = Sin(x) t = Sin(u) v = Cos(t) }",
    )
    job = refusing(model, lambda it: it.input[0] in ("u", "t"))
    (cause,) = found(job)
    assert cause.text == "double tensors"
    assert cause.contrast[0].passes == "the same ops with a float tensor"


def test_all_ops_of_another_domain(tmp_path: Path) -> None:
    model = model_of(
        tmp_path, "(float[2,3] x) => (float[2,3] y) { a = Relu(x) b = acme.One(a) c = acme.Two(b) y = Relu(c) }"
    )
    (cause,) = found(refusing(model, lambda it: it.domain == "acme"))
    assert (cause.text, cause.state) == ("ops of acme", CauseState.NO_CONTRAST)


@pytest.mark.parametrize(
    ("body", "refused", "text", "passes"),
    [
        (
            "a = Softmax<axis = 0>(x) b = Softmax<axis = 1>(a) y = Softmax<axis = 1>(b)",
            "a",
            "Softmax with axis = 0",
            "Softmax with axis = 1",
        ),
        (
            "z = Constant<value = float[1,6] {1,2,3,4,5,6}>() a = Mul(x, z) y = Mul(a, x)",
            "a",
            "Mul with constant B",
            "Mul with computed B",
        ),
        (
            "i = Constant<value_ints = [-1]>() j = Constant<value_ints = [0]>() k = Constant<value_ints = [1]>() "
            "l = Constant<value_ints = [-2]>() a = Gather<axis = 1>(x, i) b = Gather<axis = 1>(x, j) "
            "c = Gather<axis = 1>(x, k) d = Gather<axis = 1>(x, l) y = Concat<axis = 1>(a, b, c, d)",
            "a d",
            "Gather with negative indices",
            "Gather without negative indices",
        ),
        (
            "a = Concat<axis = 1>(x, x, x, x, x, x) b = Concat<axis = 1>(a, a) y = Concat<axis = 1>(b, x)",
            "a",
            "Concat with 6 or more inputs",
            "Concat with 2 inputs",
        ),
    ],
)
def test_a_cause_says_what_the_refused_ones_have_and_what_passes_instead(
    tmp_path: Path, body: str, refused: str, text: str, passes: str
) -> None:
    model = model_of(tmp_path, f"(float[2,6] x) => (y) {{ {body} }}")
    (cause,) = found(refusing(model, lambda it: it.output[0] in refused.split()))
    assert cause.text == text
    assert cause.contrast[0].passes == passes


def test_the_only_difference_that_is_left_is_the_size(tmp_path: Path) -> None:
    model = model_of(
        tmp_path,
        "(float[2,3] x, float[64,3] u) => (y, v) { a = Relu(x) y = Relu(a) b = Relu(u) v = Relu(b) }",
    )
    job = refusing(model, lambda it: it.input[0] in ("u", "b"))
    # a culprit is a variant, and shapes are no part of that: its places are those that were refused
    (cause,) = found(job)
    assert cause.text == "Relu with 192 or more elements in X"
    assert cause.contrast[0].passes == "Relu with 6 elements in X"


def test_channels_that_a_compiler_does_not_align_explain_all_that_is_refused(tmp_path: Path) -> None:
    """Products of 16 to 56 columns in two variants, of which those that are no multiple of 16 are refused."""
    widths = {"a": 16, "b": 24, "c": 32, "d": 40, "e": 48, "f": 56}
    weights = ", ".join(f"float[4,{width}] w{name}" for name, width in widths.items())
    body = " ".join(
        f"{name} = {'MatMul' if name in 'abc' else 'Gemm'}(x, w{name}) y{name} = Relu({name})" for name in widths
    )
    outputs = ", ".join(f"y{name}" for name in widths)
    model = model_of(tmp_path, f"(float[2,4] x, {weights}) => ({outputs}) {{ {body} }}")
    job = refusing(model, lambda it: it.op_type in ("MatMul", "Gemm") and widths[it.output[0]] % 16 != 0)
    assert {cause.text for cause in found(job)} == {
        "MatMul with dimension 1 of B that is no multiple of 16",
        "Gemm with dimension 1 of B that is no multiple of 16",
    }
    passes = {cause.contrast[0].passes for cause in found(job)}
    assert passes == {
        "MatMul with dimension 1 of B that is a multiple of 16",
        "Gemm with dimension 1 of B that is a multiple of 16",
    }


def test_what_also_fits_is_said(tmp_path: Path) -> None:
    """One refused Softmax, one that passed, two differences: the record does not decide."""
    model = model_of(
        tmp_path,
        "(float[2,6] x) => (y) { s = Constant<value_ints = [2,2,3]>() a = Softmax<axis = 1>(x) b = Reshape(a, s) "
        "y = Softmax<axis = 0>(b) }",
    )
    (cause,) = found(refusing(model, lambda it: it.output[0] == "y"))
    assert {cause.text, *cause.fits_too} == {"Softmax with axis = 0", "Softmax with input of rank 3 or more"}


def test_an_opset_that_no_schema_can_have_is_taken_for_a_later_one(tmp_path: Path) -> None:
    model = model_of(tmp_path, "(float[2,6] x) => (y) { a = acme.One(x) b = Softmax<axis = 0>(a) y = Softmax(b) }")
    for entry in model.proto.opset_import:
        entry.version = 1 << 40
    texts = [cause.text for cause in found(refusing(model, lambda it: it.output[0] in "ab"))]
    assert sorted(texts) == ["Softmax with axis = 0", "acme::One"]


def test_the_value_of_a_constant_in_a_file_that_is_gone_is_no_feature(tmp_path: Path) -> None:
    model = model_of(tmp_path, GATHERS)
    for it in model.proto.graph.node:
        if it.op_type == "Constant" and it.output[0] == "i0":
            it.attribute[0].CopyFrom(helper.make_attribute("value", external("i0")))
    (cause,) = found(refusing(model, scalar_indices))
    assert cause.text == "Gather with scalar indices"


def test_where_the_same_passed_elsewhere_nothing_explains_it(tmp_path: Path) -> None:
    model = model_of(tmp_path, "(float[2,6] x) => (y) { a = Sigmoid(x) b = Mul(a, x) c = Sigmoid(b) y = Relu(c) }")
    (cause,) = found(refusing(model, lambda it: it.output[0] == "c"))
    assert (cause.state, cause.conditions, cause.text) == (CauseState.UNEXPLAINED, (), "Sigmoid")


def test_a_tensor_of_unknown_rank_that_passed_is_none_of_lower_rank(tmp_path: Path) -> None:
    """What an op of another domain makes has no known rank, so nobody may say that nothing of rank 3 passed."""
    model = model_of(
        tmp_path,
        """(float[2,6] x, float[2,2,3] u) => (y, v, w, q) {
            a = acme.Op(x) y = Relu(a) v = Relu(u) w = Neg(u) q = Neg(x)
        }""",
    )
    assert [cause.text for cause in found(refusing(model, lambda it: "u" in it.input))] == ["tensors of rank 3 or more"]
    unknown = replace(model, types={name: kind for name, kind in model.types.items() if name not in ("a", "y")})
    texts = [cause.text for cause in found(refusing(unknown, lambda it: "u" in it.input))]
    assert sorted(texts) == ["Neg with X of rank 3 or more", "Relu"]


def test_units_that_neither_passed_nor_failed_are_counted_as_unknown(tmp_path: Path) -> None:
    model = model_of(tmp_path, WINDOWS)
    job = refusing(model, lambda it: it.op_type != "Transpose" and any(rank(model, t) >= 6 for t in it.output))
    unasked = of(unit for unit in range(len(model.units)) if rank(model, node(model, unit).output[0]) >= 6)
    probes = tuple(
        replace(probe, units=probe.units & ~unasked) if probe.verdict.passed else probe for probe in job.probes
    )
    (cause,) = found(replace(job, probes=probes))
    assert cause.text == "outputs of rank 6 or more"
    assert (size(cause.refused), size(cause.unknown)) == (7, 3)


def test_culprits_of_several_nodes_are_listed_by_their_ops_and_not_explained(tmp_path: Path) -> None:
    model = model_of(tmp_path, WINDOWS)
    names = {node(model, unit).output[0]: unit for unit in range(len(model.units))}
    pairs = [of([names[a], names[b]]) for a, b in (("a1", "a2"), ("d0", "d1"))]
    both = [culprit(model, [pair], CulpritKind.INTERACTION, "together") for pair in pairs]
    whole = culprit(model, [model.universe.everything], CulpritKind.CAPACITY, "too large")
    job = and_also(refusing(model, lambda it: it.op_type == "Neg"), [*both, whole])
    told = {cause.text: (cause.state, cause.culprits) for cause in found(job)}
    assert told == {
        "Neg": (CauseState.NO_CONTRAST, (0,)),
        "Transpose + Relu, only together": (CauseState.UNEXPLAINED, (1, 2)),
        "too much at once": (CauseState.UNEXPLAINED, (3,)),
    }


def test_a_cause_of_suspected_culprits_is_suspected(tmp_path: Path) -> None:
    model = model_of(tmp_path, GATHERS)
    (cause,) = found(refusing(model, scalar_indices, certainty=Certainty.SUSPECTED))
    assert (cause.text, cause.established) == ("Gather with scalar indices", False)


def test_places_of_suspected_culprits_are_not_counted_as_refused(tmp_path: Path) -> None:
    job = wide(model_of(tmp_path, WINDOWS))
    first, *others = job.diagnosis.culprits
    doubted = replace(first, certainty=Certainty.SUSPECTED)
    (cause,) = found(replace(job, diagnosis=replace(job.diagnosis, culprits=(doubted, *others))))
    assert (len(cause.culprits), cause.established) == (13, True)
    assert (size(cause.refused), size(cause.unknown)) == (12, 1)


def test_the_document_has_each_culprit_in_one_cause(tmp_path: Path) -> None:
    model = model_of(tmp_path, WINDOWS)
    report = document(refusing(model, lambda it: it.op_type == "Neg" or rank(model, it.output[0]) >= 6))
    jsonschema.validate(report, report_schema())
    listed = [identity for cause in report["causes"] for identity in cause["culprits"]]
    assert sorted(listed) == sorted(entry["id"] for entry in report["culprits"])
    for entry in report["culprits"]:
        assert entry["id"] in report["causes"][entry["cause"]]["culprits"]
    names = {probe["id"]: probe for probe in report["probes"]}
    for cause in report["causes"]:
        for contrast in cause["contrast"]:
            assert contrast["probe"]
            assert names[contrast["probe"]]["verdict"] == "pass"


#: Two ops that a compiler takes only fused with what is behind them, and one place where that is missing.
FUSED = """(float[1,2,4,4] x, float[2,8] u) => (float[1,2,4,4] y, float[2,8] v) {
    a = Exp(x) b = Neg(a) y = Relu(b)
    p = Exp(u) q = Floor(p) v = Relu(q)
}"""


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        ("Exp(x)", "Exp(u)", "rank"),
        ("Add(x, k)", "Add(u, w)", "rank"),
        ("Softmax<axis = 1>(x)", "Softmax<axis = -1>(u)", "attribute"),
        ("Mul(x, k)", "Mul(u, u)", "constness"),
    ],
)
def test_what_passed_beside_other_ops_only_is_no_evidence(tmp_path: Path, first: str, second: str, kind: str) -> None:
    """What is beside it, which the compiler may fuse, differs as much as the condition does."""
    text = f"""(float[1,2,4,4] x, float[2,8] u) => (float[1,2,4,4] y, float[2,8] v)
        <float[1] k = {{2}}, float[8] w = {{1,1,1,1,1,1,1,1}}> {{
        a = {first} b = Neg(a) y = Relu(b)  p = {second} q = Floor(p) v = Relu(q) }}"""
    model = model_of(tmp_path, text)
    job = refusing(model, lambda it: it.output[0] == "a")
    (cause,) = found(job)
    assert cause.in_company
    assert (cause.telling, cause.established) == (False, False)

    unit = next(unit for unit, names in enumerate(model.universe.names) if node(model, unit).output[0] == "p")
    (sure,) = causes(model, job.diagnosis, Records(job.probes).passed, alone=of([unit]))
    assert (sure.telling, sure.established, sure.in_company) == (True, True, False)


def test_two_kinds_of_places_on_each_side_may_be_two_fused_patterns(tmp_path: Path) -> None:
    """As where every Erf alone is refused, and taken within the GELU of two kinds of layers."""
    text = """(float[1,2,4,4] x, float[2,8] u) => (float[1,2,4,4] y, float[1,2,4,4] z, float[2,8] v, float[2,8] w) {
        a = Exp(x) b = Neg(a) y = Relu(b)  c = Abs(x) d = Exp(c) z = Sqrt(d)
        p = Exp(u) q = Floor(p) v = Relu(q)  f = Sin(u) g = Exp(f) w = Ceil(g) }"""
    model = model_of(tmp_path, text)
    (cause,) = found(refusing(model, lambda it: it.output[0] in ("a", "d")))
    assert cause.in_company
    assert (cause.telling, cause.established) == (False, False)


def test_beside_the_same_ops_it_is_the_condition_that_differs(tmp_path: Path) -> None:
    model = model_of(tmp_path, FUSED.replace("Floor", "Neg"))
    (cause,) = found(refusing(model, lambda it: it.output[0] == "a"))
    assert (cause.telling, cause.established) == (True, True)


#: The head of a detector: all that reads a tensor of rank 5 is refused, and none of these ops occurs elsewhere.
TAIL = """(float[1,8,4,4] x) => (float[1,4,4,2] y) {
    s = Constant<value_ints = [1,2,4,4,4]>() from = Constant<value_ints = [0]>() to = Constant<value_ints = [2]>()
    axis = Constant<value_ints = [2]>() k = Constant<value_float = 2.0>()
    r = Relu(x) a = Reshape(r, s) b = Transpose<perm = [0,1,3,4,2]>(a) c = Sigmoid(b) d = Slice(c, from, to, axis)
    e = Mul(d, k) f = Exp(e) g = ReduceMax<keepdims = 0>(f) y = Unsqueeze(g, to)
}"""


def test_ops_that_have_nothing_in_common_but_a_high_rank_of_what_they_read_have_one_cause(tmp_path: Path) -> None:
    text = TAIL.replace("float[1,4,4,2] y", "float[1] y").replace("Unsqueeze(g, to)", "Reshape(g, from1)")
    text = text.replace("k = Const", "from1 = Constant<value_ints = [1]>() k = Const")
    model = model_of(tmp_path, text)
    job = refusing(model, lambda it: rank(model, it.input[0]) >= 5)
    assert len(job.diagnosis.culprits) == 6
    (cause,) = found(job)
    assert cause.text == "inputs of rank 5 or more"
    assert sorted(cause.culprits) == list(range(6))
    assert cause.telling
    assert not cause.established  # nothing of these ops was seen to pass
    assert [contrast.passes for contrast in cause.contrast] == ["other ops with an input of rank 4 or less"]
