"""Files whose own inputs and outputs a tool does not take: what is found, and the file that it takes."""

from pathlib import Path

import onnx
import pytest

from onnxbisect.exactness import Exactness
from onnxbisect.file_remedies import REMEDIES, File, candidates, promising
from onnxbisect.model import load
from onnxbisect.model.facts import TensorFacts
from onnxbisect.preflight import Severity, ToolLimits, preflight
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.proof import random_feeds
from onnxbisect.remedies import OrtProver, Samples
from onnxbisect.rewrites import NotApplicable
from support.engine.cut_models import input_names, output_names, read

LONG = "convolution;relu;" * 10

#: The rate of Silero VAD: an integer of rank 0 that a branch captures.
RATE = """<ir_version: 8, opset_import: ["": 17]>
vad (float[1,4] x, int64 sr) => (float[1,4] y, bool slow)
<int64 rate = {16000}>
{
  slow = Less(sr, rate)
  y = If(slow) <
    then_branch = yes () => (float[1,4] t) { f = Cast<to = 1>(sr)  t = Mul(x, f) },
    else_branch = no () => (float[1,4] e) { e = Neg(x) }
  >
}"""

LIMITS = ProbeFormat(min_input_rank=1, min_output_rank=1, longest_name=127, output_dtypes=frozenset({"float"}))


def reader(probe_format: ProbeFormat = LIMITS) -> ToolLimits:
    return ToolLimits(tool="tool", probe_format=probe_format)


def found(model: object, probe_format: ProbeFormat = LIMITS) -> dict[str, str]:
    findings = preflight(model, reader(probe_format))  # type: ignore[arg-type]
    return {it.id: it.detail for it in findings if it.id.startswith("boundary-") and it.severity is Severity.ERROR}


def test_what_a_tool_does_not_take_of_the_file_is_found(tmp_path: Path) -> None:
    model = read(
        tmp_path,
        RATE.replace("x)", f"{'x' * 140})")
        .replace("float[1,4] x", f"float[1,4] {'x' * 140}")
        .replace("Mul(x,", f"Mul({'x' * 140},"),
    )

    assert found(model, ProbeFormat()) == {}
    said = found(model)
    assert said["boundary-rank"].startswith(
        "input 'sr' has rank 0, output 'slow' has rank 0; tool takes inputs of rank 1"
    )
    assert said["boundary-dtype"] == "output 'slow' is bool; tool takes none of this dtype there"
    assert "has 140 bytes; tool reads 127 at most" in said["boundary-name-too-long"]


def test_a_file_is_made_that_the_tool_takes_and_it_is_proven(tmp_path: Path) -> None:
    model = read(tmp_path, RATE)
    findings = preflight(model, reader())
    assert promising(model, findings, reader())

    (first, *_) = candidates(model, findings, reader())

    assert first.sentence == (
        "input 'sr' made int64[1] instead of int64[]; output 'slow' made float32[1] instead of bool[]"
    )
    assert input_names(first.proto) == ["x", "sr"]
    assert output_names(first.proto) == ["y", "slow"]
    onnx.checker.check_model(first.proto, full_check=True)
    original = onnx.load(model.path)
    samples = Samples(usual=[*random_feeds(original.graph.input, 3)])
    proof = OrtProver(original, TensorFacts.of(model), lambda: samples, folder=tmp_path).compared(first.proto)
    assert proof.outputs
    assert all(output.agrees for output in proof.outputs), proof


def test_a_file_with_fewer_dimensions_is_made_and_proven(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2,1,3,2,2] x) => (float[2,1,3,2,2] y) { y = Exp(x) }"""
    model, limits = read(tmp_path, text), ProbeFormat(max_input_rank=4, max_output_rank=4)
    assert "tool takes inputs of rank 4 and less, outputs of rank 4 and less" in found(model, limits)["boundary-rank"]

    (first, *_) = candidates(model, preflight(model, reader(limits)), reader(limits))

    assert first.sentence.startswith("input 'x' made float32[2,3,2,2] instead of float32[2,1,3,2,2]")
    original = onnx.load(model.path)
    samples = Samples(usual=[*random_feeds(original.graph.input, 2)])
    assert (
        OrtProver(original, TensorFacts.of(model), lambda: samples, folder=tmp_path)
        .compared(first.proto)
        .outputs[0]
        .agrees
    )


@pytest.mark.parametrize(
    ("of_file", "taken", "exactness"),
    [
        ("double", "float", Exactness.ROUNDING),
        ("float", "float16", Exactness.APPROXIMATE),
        ("bfloat16", "float", Exactness.EXACT),
        ("float16", "float", Exactness.EXACT),
        ("float", "double", Exactness.EXACT),
        ("bool", "float", Exactness.EXACT),
    ],
)
def test_a_narrower_float_at_the_boundary_is_not_called_exact(
    of_file: str, taken: str, exactness: Exactness, tmp_path: Path
) -> None:
    text = f"""<ir_version: 8, opset_import: ["": 17]> g ({of_file}[2] x) => ({of_file}[2] y) {{ y = Identity(x) }}"""
    limits = ProbeFormat(input_dtypes=frozenset({taken}), output_dtypes=frozenset({taken}))
    model = read(tmp_path, text)

    (first, *_) = candidates(model, preflight(model, reader(limits)), reader(limits))

    assert first.exactness is exactness


def test_a_node_without_a_name_is_called_the_same_in_the_changed_file(tmp_path: Path) -> None:
    """A report about it names nodes that the user's file has."""
    text = """<ir_version: 8, opset_import: ["": 17]>
        g (double[2] x) => (double[2] y, double[2] z) { y = Relu(x)  [n] z = Neg(x) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    model = load(tmp_path / "model.onnx")
    taken = reader(ProbeFormat(input_dtypes=frozenset({"float"}), output_dtypes=frozenset({"float"})))
    (it,) = (it for it in REMEDIES if it.id == "neutral-boundary")

    changed = it.apply(File.of(model), taken).proto

    assert output_names(changed) == ["y", "z"]
    assert [node.name for node in model.proto.graph.node] == ["Relu_y", "n"]
    assert {node.op_type: node.name for node in changed.graph.node if node.op_type != "Cast"} == {
        "Relu": "Relu_y",
        "Neg": "n",
    }


def test_names_are_shortened_in_the_file(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
        g (float[2] x) => (float[2] y) { y = Relu(x) }"""
    proto = onnx.parser.parse_model(text)
    proto.graph.input[0].name = proto.graph.node[0].input[0] = LONG
    model = read(tmp_path, proto)
    assert list(found(model)) == ["boundary-name-too-long"]

    (first,) = candidates(model, preflight(model, reader()), reader())

    assert input_names(first.proto) == [LONG[:127]]
    assert first.sentence.startswith("input names shortened to 127 bytes: 'convolution;relu;")
    original = onnx.load(model.path)
    samples = Samples(usual=[*random_feeds(original.graph.input, 2)])
    assert (
        OrtProver(original, TensorFacts.of(model), lambda: samples, folder=tmp_path)
        .compared(first.proto)
        .outputs[0]
        .agrees
    )


@pytest.mark.parametrize("remedy", ["neutral-boundary", "shorten-names"])
def test_a_file_that_the_tool_takes_stays(remedy: str, tmp_path: Path) -> None:
    model = read(tmp_path, RATE)
    (it,) = (it for it in REMEDIES if it.id == remedy)
    with pytest.raises(NotApplicable):
        it.apply(File.of(model), reader(ProbeFormat(longest_name=64)))


def test_an_output_of_another_rank_by_a_wrong_repair_still_differs(tmp_path: Path) -> None:
    model = read(tmp_path, '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }')
    original = onnx.load(model.path)
    wrong = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[n] y) <int64[1] a = {0}> {
            r = Relu(x)
            y = Unsqueeze(r, a)
        }"""
    )
    del wrong.graph.output[0].type.tensor_type.shape.dim[:]
    wrong.graph.output[0].type.tensor_type.ClearField("shape")
    samples = Samples(usual=[*random_feeds(original.graph.input, 2)])
    proof = OrtProver(original, TensorFacts.of(model), lambda: samples, folder=tmp_path).compared(wrong)
    assert not all(output.agrees for output in proof.outputs)
