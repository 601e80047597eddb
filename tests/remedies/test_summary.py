"""A repair as people and programs read it."""

import json
import re
from pathlib import Path

import onnx
from markdown_it import MarkdownIt
from onnx import TensorProto, helper

from onnxbisect.language import CHINESE, within
from onnxbisect.remedies import Repair
from onnxbisect.remedies.document import RepairDocument, document
from onnxbisect.remedies.summary import lines, markdown
from onnxbisect.rewrites import Exactness
from support.remedies.simulated import SimulatedCompiler, refusing, repaired
from support.site.text import english_left

HOSTILE = "a`b|<img src=x>\x1b[31m\u202e"


def small(*ops: str, prefix: str = "") -> onnx.ModelProto:
    tensors = ["x", *(f"{prefix}t{number}" for number in range(len(ops)))]
    nodes = [
        helper.make_node(op, [tensors[number]], [tensors[number + 1]], name=f"{prefix}{op}_{number}")
        for number, op in enumerate(ops)
    ]
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in (tensors[0], tensors[-1])]
    made = helper.make_graph(nodes, "g", value[:1], value[1:])
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def told(found: Repair) -> RepairDocument:
    return document(found.before.model, found, Exactness.ROUNDING, diagnosis_calls=3, repair_calls=2)


def test_each_place_is_told_with_its_numbers_before_and_after(tmp_path: Path) -> None:
    found = told(repaired(small("Abs", "Neg", "Abs"), SimulatedCompiler(folder=tmp_path, refuses=refusing("Abs"))))
    first, second = found.changes
    assert (first.node, second.node) == ("Abs_0", "Abs_2")
    assert first.before.inputs == ("x: float[2, 3]",)
    assert [row.op for row in first.after] == ["Relu", "Mul", "Relu", "Add"]
    assert first.after[-1].outputs == first.before.outputs
    assert first.compiles
    assert "  2 Abs → Relu, Mul, Relu, Add: abs-relu, exact, difference 0, compiles" in lines(found)
    text = markdown(found)
    assert "torch.relu(x) + torch.relu(-x) instead of x.abs()" in text
    assert "- t0: float[2, 3] = Abs(x: float[2, 3])" in text


def test_the_file_begins_with_what_the_terminal_shows(tmp_path: Path) -> None:
    asked = SimulatedCompiler(folder=tmp_path, refuses=refusing("Abs", "Softplus", "Exp", "Sigmoid"))
    found = told(repaired(small("Abs", "Neg", "Softplus", "Exp", "Abs", "Softplus"), asked))
    assert found.changes
    assert found.left
    shown, written = (re.findall(r"[\w.→]+", text) for text in ("\n".join(lines(found)), markdown(found)))
    assert written[: len(shown)] == shown
    assert "Softplus_2" in shown


def test_what_differs_in_the_targets_own_type_is_told(tmp_path: Path) -> None:
    asked = SimulatedCompiler(folder=tmp_path, refuses=refusing("HardSigmoid"))
    found = repaired(small("Neg", "HardSigmoid"), asked, low=TensorProto.FLOAT16)
    told_of = document(
        found.before.model, found, Exactness.ROUNDING, diagnosis_calls=3, repair_calls=2, computes_in="float16"
    )
    assert "Computed in float16, as the target does, it differs by at most" in markdown(told_of)


def test_the_document_is_json_whatever_was_measured(tmp_path: Path) -> None:
    """A relative difference from nothing is infinite, which JSON cannot say."""
    found = repaired(
        small("Abs", "Neg"), SimulatedCompiler(folder=tmp_path, refuses=refusing("Abs", "Relu", "Max", "Min", "Clip"))
    )
    parsed = json.loads(json.dumps(told(found).to_json(), allow_nan=False))
    assert parsed["format"] == "onnx-bisect/repair@1"
    assert parsed["left"][0]["ops"] == ["Abs"]
    assert {struck["node"] for struck in parsed["struck"]} == {"Abs_0"}


def test_names_of_a_model_cannot_act_on_a_terminal_or_in_markdown(tmp_path: Path) -> None:
    model = small("Abs", "Neg", "Softplus", prefix=HOSTILE)
    refuses = refusing("Abs", "Softplus", "Exp", "Sigmoid")
    found = told(repaired(model, SimulatedCompiler(folder=tmp_path, refuses=refuses)))
    assert found.changes
    assert found.left
    for text in (markdown(found), "\n".join(lines(found))):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "<img" not in MarkdownIt("commonmark").enable("table").render(markdown(found))


def test_an_op_that_was_seen_to_pass_is_preferred(tmp_path: Path) -> None:
    compiler = SimulatedCompiler(folder=tmp_path, refuses=refusing("HardSwish"))
    with_it = repaired(small("HardSigmoid", "HardSwish", "Neg"), compiler)
    assert [it.candidate.name for it in with_it.places] == ["hardswish-hardsigmoid"]
    without = SimulatedCompiler(folder=tmp_path, refuses=refusing("HardSwish", "HardSigmoid"))
    assert [it.candidate.name for it in repaired(small("HardSwish", "Neg"), without).places] == ["hardswish-clip"]


def test_a_repair_is_told_in_chinese(tmp_path: Path) -> None:
    asked = SimulatedCompiler(folder=tmp_path, refuses=refusing("Abs", "Erf", "Tanh", "Exp"))
    found = told(repaired(small("Abs", "Neg", "Abs", "Exp"), asked))
    with within(CHINESE):
        shown, text = lines(found), markdown(found)
    (abs_,) = (line for line in shown if "2 Abs → Relu, Mul, Relu, Add: abs-relu" in line)
    assert all(said in abs_ for said in ("精确", "差异 0", "编译通过"))
    assert "没有修复办法" in "\n".join(shown)
    # what a rule says of itself stays as it is
    ours = [it for it in (*shown, *re.sub(r"(?s)```.*?```|(`+).+?\1", "", text).splitlines()) if not it.startswith("[")]
    assert not [line for line in ours if "不适用" not in line and list(english_left(line))]
