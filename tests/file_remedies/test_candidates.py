"""Which files are tried, in which order; each remedy against the models of this repository."""

from pathlib import Path

import onnx
import pytest
from onnx import helper

from onnxbisect.errors import ModelError
from onnxbisect.file_remedies import MOST_CANDIDATES, REMEDIES, ChangedCopy, File, candidates, repaired
from onnxbisect.file_remedies.candidates import Applied
from onnxbisect.model import load
from onnxbisect.model.gate import complaint
from onnxbisect.preflight import NEWER_THAN_TOOL, REFUSED_AT_BOUNDARY, ToolLimits, checks, preflight
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.proof import compare, random_feeds
from onnxbisect.rewrites import Exactness
from onnxbisect.verdict import Hints
from support.examples import models
from support.file_remedies import Same, Save

MODELS = Path(__file__).parents[1] / "models"
REAL = sorted((MODELS / "real").glob("*.onnx"))
SHAPES = {
    "bert_base12_h256_dyn__ts17": {name: [1, 16] for name in ("input_ids", "attention_mask", "token_type_ids")},
}


def of(path: Path, reader: ToolLimits, **shapes: list[int]) -> list[ChangedCopy]:
    model = load(path, input_shapes=shapes)
    return list(candidates(model, preflight(model, reader), reader))


def applied(found: list[ChangedCopy]) -> list[list[str]]:
    return [[it.remedy for it in candidate.applied] for candidate in found]


FOLDABLE = """g (float[2,3] x) => (float[2,3] y) <float zero = {0}> {
    s = Shape(x)  r = Reshape(x, s)  p = Softmax(r)  n = IsNaN(p)  w = Where(n, zero, p)  y = Relu(w)
}"""


def test_a_file_that_is_too_new_is_answered_by_its_version_alone_first(save: Save) -> None:
    path = save(FOLDABLE, ir_version=10)
    found = of(path, ToolLimits(tool="Chipper", newest_ir=9, newest_opset=19))

    assert applied(found) == [
        ["lower-ir-version"],
        ["fold-constants", "lower-ir-version"],
        ["remove-nan-guards", "fold-constants", "lower-ir-version"],
    ]
    assert [candidate.exactness for candidate in found] == ["exact", "exact", "domain"]
    assert found[0].sentence == "ir_version 10 → 9"
    before = onnx.load(path)
    before.ir_version = 9
    assert found[0].proto == before


def test_a_file_that_is_newer_in_both_ways_is_lowered_in_both_at_once(save: Save) -> None:
    found = of(save(FOLDABLE, opset=20, ir_version=10), ToolLimits(tool="Chipper", newest_ir=9, newest_opset=19))
    assert applied(found)[0] == ["lower-opset", "lower-ir-version"]


def test_reductions_that_a_tool_may_not_read_are_written_as_before(save: Save, same: Same) -> None:
    path = save("g (float[2,3] x) => (float[2,1] y) <int64[1] a = {1}> { y = ReduceMean(x, a) }", opset=18)
    (candidate,) = of(path, ToolLimits(tool="Chipper", newest_ir=9, newest_opset=19))
    assert applied([candidate]) == [["axes-to-attributes"]]
    assert [attribute.name for attribute in candidate.proto.graph.node[0].attribute] == ["axes"]
    same(path, candidate.proto)


@pytest.mark.parametrize(
    ("op", "remedies"),
    [("Exp", [["floats-in-float32"]]), ("Where", [["unsigned-to-signed"]]), ("Relu", [])],
)
def test_an_op_that_is_named_may_be_refused_for_the_type_that_it_reads(
    save: Save, op: str, remedies: list[list[str]]
) -> None:
    """Its node stays the same in a file whose tensors have another type."""
    graph = {
        "Exp": "a = Relu(x) d = Cast<to = 11>(a) e = Exp(d) y = Cast<to = 1>(e)",
        "Where": "a = Relu(x) b = Cast<to = 9>(a) d = Cast<to = 2>(a) e = Where(b, d, d) y = Cast<to = 1>(e)",
        "Relu": "a = Relu(x) d = Cast<to = 11>(a) e = Exp(d) y = Cast<to = 1>(e)",
    }
    model = load(save(f"g (float[2,3] x) => (float[2,3] y) {{ {graph[op]} }}"))
    reader = ToolLimits(tool="Chipper")
    found = list(candidates(model, preflight(model, reader), reader, hints=Hints(ops=(op,))))
    assert applied(found) == remedies
    assert all(candidate.needed for candidate in found)


def test_there_are_never_more_than_four(save: Save) -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[2,3] x) => (float[2,3] y) <float zero = {0}> '
        "{ c = Constant <value_float = 1.0> ()  y = Add(p, c)  p = Relu(m)  n = IsNaN(x)  m = Where(n, zero, x) }"
    )
    values = helper.make_tensor("s", onnx.TensorProto.FLOAT, [1], [1.0])
    indices = helper.make_tensor("i", onnx.TensorProto.INT64, [1], [2])
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2, 3]))
    found = of(save(proto), ToolLimits(tool="Chipper", newest_ir=9, newest_opset=19))
    assert 0 < len(found) <= MOST_CANDIDATES
    assert len({tuple(ids) for ids in applied(found)}) == len(found)


def test_what_probes_hide_is_done_to_every_candidate_and_is_none_by_itself(save: Save) -> None:
    body = "g (float[2,3] x) => (float[2,3] y) { y = LeakyRelu(x) }"
    reader = ToolLimits(tool="Chipper", newest_ir=9, probe_format=ProbeFormat(explicit_defaults=True))
    assert applied(of(save(body, ir_version=10), reader)) == [["write-defaults", "lower-ir-version"]]
    assert of(save(body, ir_version=9), reader) == []


def test_dimensions_that_the_user_bound_are_bound_in_every_candidate(save: Save, same: Same) -> None:
    path = save(
        "g (float[batch,3] x) => (float[batch,3] y) { s = Shape(x)  r = Reshape(x, s)  y = Relu(r) }", ir_version=10
    )
    reader = ToolLimits(tool="Chipper", newest_ir=9)
    assert applied(of(path, reader))[0] == ["lower-ir-version"]

    first, folded = of(path, reader, x=[2, 3])

    assert first.sentence == "dimensions bound: x float32[2,3]; ir_version 10 → 9"
    assert [node.op_type for node in folded.proto.graph.node] == ["Reshape", "Relu"]
    assert [d.dim_value for d in folded.proto.graph.output[0].type.tensor_type.shape.dim] == [2, 3]
    same(path, folded.proto, x=[2, 3])


def test_what_functions_hide_is_answered_once_they_are_inlined(save: Save, same: Same) -> None:
    path = save(
        """g (float[2] x) => (float[2] y) { y = my.Plus(x) }
        <domain: "my", opset_import: ["" : 17]>
        Plus (a) => (b) { one = Constant <value_float = 1.0> ()  c = Identity(a)  b = Add(c, one) }""",
        domains=', "my" : 1',
    )
    (candidate,) = of(path, ToolLimits(tool="Chipper"))
    assert [node.op_type for node in candidate.proto.graph.node] == ["Add"]
    same(path, candidate.proto)


def test_a_clean_file_has_none(save: Save) -> None:
    assert of(save("g (float[2,3] x) => (float[2,3] y) { y = Relu(x) }"), ToolLimits(tool="Chipper")) == []


def test_every_remedy_that_the_preflight_names_answers_that_finding() -> None:
    answers = {remedy.id: set(remedy.answers) for remedy in REMEDIES}
    named = {check.id: check.remedy for check in checks() if check.remedy}
    of_one_tool = {*NEWER_THAN_TOOL, "opset-older-than-tool", *REFUSED_AT_BOUNDARY}
    assert {id_ for ids in answers.values() for id_ in ids} == {*named, *of_one_tool}
    for check, remedy in named.items():
        assert check in answers[remedy]


#: Have tests of their own: they change the interface, are for data in other files, or no small model here needs them.
_ELSEWHERE = (
    *("safe-names", "weights-inside", "neutral-boundary", "shorten-names", "floats-in-float32"),
    *("unsigned-to-signed", "drop-empty-tensors", "batch-pools", "random-to-inputs"),
    *("whole-norms", "reciprocals-to-divisions", "erf-to-tanh", "lower-ranks"),
    "declare-opset-of-ops",
)


@pytest.mark.parametrize("remedy", [remedy.id for remedy in REMEDIES if remedy.id not in _ELSEWHERE])
def test_small_models_compute_the_same_and_keep_their_interface(remedy: str) -> None:
    tried = 0
    reader = ToolLimits(tool="Chipper", newest_ir=8, newest_opset=13)
    for path in sorted(MODELS.glob("*.onnx")):
        model = load(path)
        candidate = repaired(File.of(model), [remedy, "name-nodes"], reader)
        if remedy not in {applied.remedy for applied in candidate.applied}:
            continue
        inputs = model.proto.graph.input
        assert candidate.proto.graph.name == onnx.load(path).graph.name
        if model.unbound:
            continue
        try:
            compared = compare(model.proto, model.proto, random_feeds(inputs, 1), folder=path.parent)
        except ModelError:  # custom ops and bfloat16, which onnxruntime does not run
            continue
        compared = compare(model.proto, candidate.proto, random_feeds(inputs, 2), folder=path.parent)
        assert compared.agrees
        assert candidate.exactness is not Exactness.EXACT or not any(it.absolute for it in compared.differences), path
        tried += 1
    assert tried or remedy in (
        "bind-dimensions",
        "name-nameless-nodes",
        "remove-nan-guards",
        "remove-neutral-factors",
        "bound-masks",
        "omit-reduction",
        "remove-copies",
    )


@pytest.mark.parametrize("path", models(REAL))
def test_real_models_compute_the_same(path: Path) -> None:
    shapes = SHAPES.get(path.stem, {})
    model = load(path, input_shapes=shapes)
    reader = ToolLimits(tool="Chipper", newest_ir=7, newest_opset=13)
    found = list(candidates(model, preflight(model, reader), reader))
    assert found
    for candidate in found:
        assert not complaint(candidate.proto)
        assert {entry.domain: entry.version for entry in candidate.proto.opset_import}[""] == 13
        compared = compare(model.proto, candidate.proto, random_feeds(model.proto.graph.input, 1), folder=path.parent)
        assert compared.agrees, candidate.sentence
        stored = {tensor.name: tensor for tensor in onnx.load(path, load_external_data=False).graph.initializer}
        kept = [tensor for tensor in candidate.proto.graph.initializer if tensor.name in stored]
        assert kept
        assert all(tensor == stored[tensor.name] for tensor in kept)


def test_what_was_done_in_several_rounds_is_one_clause() -> None:
    rounds = [
        Applied(remedy="resolve-control-flow", sentence=text, exactness=Exactness.EXACT, domain="")
        for text in (
            "1 If replaced by the branch that it takes",
            "opset 20 → 19",
            "3 If replaced by the branch that it takes",
        )
    ]
    candidate = ChangedCopy(proto=onnx.ModelProto(), applied=tuple(rounds))
    assert candidate.sentence == "4 If replaced by the branches that they take; opset 20 → 19"
    alone = ChangedCopy(proto=onnx.ModelProto(), applied=(rounds[0], rounds[1]))
    assert alone.sentence == "1 If replaced by the branch that it takes; opset 20 → 19"
