"""Sequences become the tensors that they hold; outputs without a name are left out."""

from pathlib import Path

import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.file_remedies import Repair, Same, Save

MODELS = Path(__file__).parents[1] / "models"
#: Made once for each test, and the same for all its examples.
_FIXED = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


@given(data=st.data())
@_FIXED
def test_any_chain_of_sequence_ops(save: Save, repair: Repair, same: Same, data: st.DataObject) -> None:
    rows = data.draw(st.integers(2, 5), "rows")
    axis = data.draw(st.sampled_from([0, -2]), "axis")
    body = [f"s0 = SplitToSequence <axis = {axis}> (x)  k = Constant <value = int64 {{-1}}> ()"]
    held, last = rows, 0
    for _ in range(data.draw(st.integers(0, 6), "steps")):
        op = data.draw(st.sampled_from(["insert", "insert at", "erase", "erase at"]), "op")
        if op.startswith("erase") and held < 2:
            continue
        place = data.draw(st.integers(-held, held - 1), "place")
        body.append(f"p{last} = Constant <value = int64 {{{place}}}> ()")
        body.append(f"r{last} = SequenceAt(s{last}, p{last})  t{last} = Neg(r{last})")
        where = f", p{last}" if op.endswith("at") else ""
        made = f"SequenceInsert(s{last}, t{last}{where})" if "insert" in op else f"SequenceErase(s{last}{where})"
        held, last = held + (1 if "insert" in op else -1), last + 1
        body.append(f"s{last} = {made}")
    new = data.draw(st.integers(0, 1), "new axis")
    body.append(f"y = ConcatFromSequence <axis = {data.draw(st.sampled_from([0, -1]))}, new_axis = {new}> (s{last})")
    body.append(f"n = SequenceLength(s{last})  e = SequenceAt(s{last}, k)")
    opset = data.draw(st.sampled_from([11, 13, 17]), "opset")
    rank = ",".join("?" * (2 + new))
    text = f"g (float[{rows},3] x) => (float[{rank}] y, int64 n, float[?,?] e) {{ {'  '.join(body)} }}"
    path = save(text, opset=opset)
    candidate = repair(path, "sequences-to-tensors", "fold-constants")
    ops = {node.op_type for node in candidate.proto.graph.node}
    assert not any("Sequence" in op for op in ops), ops
    same(path, candidate.proto)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("g (float[4,3] x) => (seq(float) y) { y = SplitToSequence <axis = 0> (x) }", "output of the model"),
        (
            "g (float[4,3] x, int64 i) => (float[1,3] y) { s = SplitToSequence <axis = 0> (x)  y = SequenceAt(s, i) }",
            "not a constant",
        ),
        ("g (seq(float[3]) s) => (int64 n) { n = SequenceLength(s) }", "from outside"),
    ],
)
def test_what_is_not_known_before_the_model_runs_is_left(save: Save, repair: Repair, text: str, reason: str) -> None:
    candidate = repair(save(text), "sequences-to-tensors")
    assert not candidate.applied
    assert reason in candidate.declined[0].reason


def test_the_rest_of_the_file_stays(save: Save, repair: Repair, same: Same) -> None:
    text = """g (float[4,3] x) => (float[1,3] y) {
        [before] a = Neg(x)  [split] s = SplitToSequence <axis = 0> (a)
        [one] i = Constant <value = int64 {1}> ()  [at] b = SequenceAt(s, i)  [after] y = Relu(b) }"""
    path = save(text)
    candidate = repair(path, "sequences-to-tensors")
    assert candidate.sentence == "1 sequence replaced by tensors"
    before = {node.name: node for node in onnx.load(path).graph.node}
    after = {node.name: node for node in candidate.proto.graph.node}
    assert after["before"] == before["before"]
    assert [name for name in after if not name.startswith("split/")] == ["before", "at/Identity_0", "after"]
    assert sum(node.op_type == "Slice" for node in after.values()) == 1, "only what is read is cut out"
    same(path, candidate.proto)


def test_an_output_without_a_name_is_left_out(repair: Repair, same: Same) -> None:
    path = MODELS / "empty_optional_inputs.onnx"
    before = onnx.load(path)
    candidate = repair(path, "drop-empty-outputs")
    assert candidate.sentence == "empty outputs left out of 1 node"
    changed = [
        (old.op_type, list(new.output))
        for old, new in zip(before.graph.node, candidate.proto.graph.node, strict=True)
        if old != new
    ]
    assert changed == [("MaxPool", ["mp"])]
    same(path, candidate.proto)
