"""TPU-MLIR itself, where it is installed (`onnx-bisect backends install tpu-mlir`): the contract, and what it is known
to do.
"""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from onnxbisect.cut import Cutter
from onnxbisect.model import load
from onnxbisect.unitset import full
from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect_backends.contract import Backend, Limits, Outcome
from onnxbisect_backends.registry import make
from onnxbisect_backends.samples import samples_folder
from onnxbisect_backends.testing import BackendConformance, conv_net, with_op

SECONDS = Limits(seconds=250)

#: The quickest of those that can be installed; the newest has tests of its own.
OLDEST = "1.8.1"


def usable(version: str = OLDEST, **options: str) -> Backend:
    backend = make("tpu-mlir", {"version": version, **options})
    if complaint := backend.check():
        pytest.skip(complaint)
    return backend


def net(body: str, opset: int = 17, ir_version: int = 8) -> onnx.ModelProto:
    """A model in ONNX's text form, without its header."""
    return onnx.parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["" : {opset}]> {body}')


def ask(backend: Backend, model: onnx.ModelProto, folder: Path) -> Verdict:
    probe, workdir = folder / "model.onnx", folder / "work"
    workdir.mkdir(parents=True)
    onnx.save(model, probe)
    return backend.judge(backend.compile(probe, workdir, SECONDS))


@pytest.mark.compiler
class TestConformance(BackendConformance):
    limits = SECONDS

    def backend(self) -> Backend:
        return usable()

    def refused(self) -> onnx.ModelProto:
        return with_op("Selu")


@pytest.mark.compiler
@pytest.mark.parametrize("version", [OLDEST, "1.30.2"])
def test_every_op_type_that_it_lacks_is_named_at_once(tmp_path: Path, version: str) -> None:
    model = net("g (float[2,3] x) => (float[2,3] y) { a = Selu(x) b = Asinh(a) c = HardSwish(b) y = Relu(c) }")

    verdict = ask(usable(version), model, tmp_path)

    assert (verdict.status, verdict.kind) == (Status.FAIL, Kind.UNSUPPORTED)
    assert verdict.hints.ops == ("Asinh", "Selu")


@pytest.mark.compiler
def test_the_node_that_a_converter_gives_up_on_is_named_although_the_tool_does_not(tmp_path: Path) -> None:
    model = net("g (float[1,4] x) => (float[1,4] y) { a = Relu(x) b = Abs(x) c = Max(a, b) y = Max(a, c, x) }")

    verdict = ask(usable(), model, tmp_path)

    assert (verdict.status, verdict.kind) == (Status.FAIL, Kind.UNSUPPORTED)
    assert (verdict.hints.ops, verdict.hints.tensors) == (("Max",), ("y",))
    assert verdict.message == "converting Max 'y': AssertionError: assert (len(onnx_node.inputs) == 2)"


@pytest.mark.compiler
def test_places_in_mlir_are_tensors_of_the_model(tmp_path: Path) -> None:
    model = net("""
        g (float[1,1,4,4] x) => (float[1,1,8,8] y) <float[4] s = {1, 1, 2, 2}> {
            a = Relu(x)
            y = Resize<mode = "cubic">(a, , s)
        }""")

    verdict = ask(usable(), model, tmp_path)

    assert (verdict.status, verdict.hints.ops, verdict.hints.tensors) == (Status.FAIL, ("Resize",), ("y",))


@pytest.mark.compiler
def test_other_numbers_are_a_failure_of_their_own_kind(tmp_path: Path) -> None:
    """Where nobody writes them, its MaxPool has strides of its own."""
    model = net("g (float[1,2,9,9] x) => (float[1,2,8,8] y) { y = MaxPool<kernel_shape = [2, 2]>(x) }")

    verdict = ask(usable(), model, tmp_path)

    assert (verdict.status, verdict.kind) == (Status.FAIL, Kind.NUMERIC)
    assert (verdict.hints.ops, verdict.hints.tensors) == ((), ("y",))
    assert ask(usable(verify="false"), model, tmp_path / "blindly").passed


@pytest.mark.compiler
@pytest.mark.long
def test_of_wrong_numbers_it_says_which_tensors_are_wrong_and_which_are_right(tmp_path: Path) -> None:
    """What is computed from what MaxPool computes is wrong as well."""
    model = net("""
        g (float[1,2,9,9] x) => (float[1,2,8,8] y, float[1,2,9,9] z) {
            a = Sigmoid(x) z = Tanh(a) b = MaxPool<kernel_shape = [2, 2]>(a) y = Tanh(b)
        }""")

    hints = ask(usable(), model, tmp_path).hints

    assert (hints.ops, set(hints.tensors), set(hints.right)) == ((), {"b", "y"}, {"a", "z"})


@pytest.mark.compiler
def test_numbers_are_compared_on_the_samples_beside_the_probe(tmp_path: Path) -> None:
    """Without alpha its LeakyRelu is a Relu, which is as good where nothing is negative."""
    model = net("g (float[2,8] x, float[8] z) => (float[2,8] y) { a = LeakyRelu(x) y = Add(a, z) }")
    folder = samples_folder(tmp_path / "model.onnx")
    folder.mkdir()
    np.savez(folder / "0.npz", x=np.ones((2, 8), np.float32))

    verdict = ask(usable(tolerance="0.9999,0.9999"), model, tmp_path)

    assert verdict.passed
    assert {row[2] for row in verdict.tables[0].rows} <= {"EQUAL", "CLOSE", "SIMILAR"}
    assert not ask(usable(tolerance="0.9999,0.9999"), model, tmp_path / "of its own").passed


@pytest.mark.compiler
def test_what_cannot_be_compared_passes_and_is_said_to_be_unknown(tmp_path: Path) -> None:
    relu = "g (float[2] x) => (float[2] y) { y = Relu(x) }"
    newer = ask(usable(), net(relu, opset=21, ir_version=10), tmp_path / "newer")
    large = ask(
        usable(verify_mb="1"), net("g (float[1024,512] x) => (float[1024,512] y) { y = Relu(x) }"), tmp_path / "large"
    )

    assert [verdict.status for verdict in (newer, large)] == [Status.PASS, Status.PASS]
    assert [verdict.tables[0].rows[0][2] for verdict in (newer, large)] == [
        "not compared: the tool's onnxruntime does not read IR version 10",
        "not compared: its tensors hold 2 MB, more than verify_mb=1",
    ]


@pytest.mark.compiler
def test_a_file_of_a_newer_form_is_compared_in_an_older_one(tmp_path: Path) -> None:
    """Its operator set is older than its IR version; LeakyRelu without alpha is a Relu there."""
    for op, status in {"Relu": Status.PASS, "LeakyRelu": Status.FAIL}.items():
        model = net(f"g (float[64] x) => (float[64] y) {{ y = {op}(x) }}", ir_version=10)
        verdict = ask(usable(tolerance="0.9999,0.9999"), model, tmp_path / op)
        assert verdict.status is status
        assert verdict.tables[0].rows[0][2] in ("EQUAL", "CLOSE", "SIMILAR", "NOT_SIMLIAR")


@pytest.mark.compiler
def test_a_comparison_that_its_runner_dies_in_is_said_to_be_none(tmp_path: Path) -> None:
    """Its MaxPool makes another shape, which Add does not take; the runner dies in the middle of a line."""
    verdict = ask(
        usable(),
        net("""
            g (float[1,4,9,9] x) => (float[1,4,9,9] y) {
                a = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x) b = Sigmoid(x) y = Add(a, b)
            }"""),
        tmp_path,
    )

    assert verdict.passed
    assert [table.rows for table in verdict.tables] == [
        (("", "", "not compared: the tool could not run the model on the samples"),)
    ]


@pytest.mark.compiler
def test_constants_alone_are_no_question(tmp_path: Path) -> None:
    """Once they are folded there is nothing left to compile."""
    verdict = ask(usable(), net("g () => (float[2] y) <float[2] c = {1, 2}> { y = Relu(c) }"), tmp_path)

    assert (verdict.status, verdict.kind) == (Status.UNRESOLVED, Kind.INVALID)


@pytest.mark.compiler
@pytest.mark.long
def test_a_constant_that_only_cutting_makes_an_output_is_no_question(tmp_path: Path) -> None:
    """It folds some ops itself in a file whose constants it leaves alone, and then has no output to return."""
    text = "g (float[2] x) => (float[2] y, float[2] c) <int64[2] w = {1, 2}> { y = Relu(x) c = Cast<to = 1>(w) }"

    assert ask(usable(), net(text), tmp_path / "folded").passed
    verdict = ask(usable(), net(text, ir_version=10), tmp_path / "as it is")
    assert (verdict.status, verdict.kind) == (Status.UNRESOLVED, Kind.INVALID)


@pytest.mark.compiler
@pytest.mark.long
def test_probes_say_what_it_takes_for_granted(tmp_path: Path) -> None:
    """Attributes and constants in the forms that it fails at, and reads wrongly, when the file alone is asked."""
    model = net(
        """
        g (float[1,1,6,6] x) => (float[1,1,4,4] y) <float[1,1,3,3] w = {1, 0, 1, 0, 1, 0, 1, 0, 1}> {
            c = Constant<value_float = -1.0>()
            a = Conv(x, w)
            b = Mul(a, c)
            y = LeakyRelu(b)
        }""",
        opset=16,
    )
    backend = usable()
    onnx.save(model, tmp_path / "file.onnx")
    whole = load(tmp_path / "file.onnx")

    piece = Cutter(whole).cut(full(len(whole.units)), backend.describe().probe_format)

    assert not ask(backend, model, tmp_path / "bare").passed
    assert ask(backend, piece.proto, tmp_path / "dressed").passed


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("processor", "quantize", "result"), [("bm1684x", "INT8", "probe.bmodel"), ("cv181x", "", "probe.cvimodel")]
)
@pytest.mark.long
def test_models_for_processors_are_made(tmp_path: Path, processor: str, quantize: str, result: str) -> None:
    backend = usable(processor=processor, quantize=quantize, calibration="2")
    probe = tmp_path / "model.onnx"
    onnx.save(conv_net(), probe)
    (tmp_path / "work").mkdir()

    outcome = backend.compile(probe, tmp_path / "work", SECONDS)

    assert backend.judge(outcome).passed, outcome.log
    assert Path(result) in outcome.artifacts


@pytest.mark.compiler
def test_what_a_processor_lacks_is_named(tmp_path: Path) -> None:
    model = net("g (float[1,3,4,4] x) => (float[1,3,4,4] y) { a = Relu(x) y = Floor(a) }")

    verdict = ask(usable(processor="cv181x"), model, tmp_path)

    assert (verdict.status, verdict.kind) == (Status.FAIL, Kind.UNSUPPORTED)
    assert (verdict.hints.ops, verdict.hints.tensors) == (("Floor",), ("y",))


@pytest.mark.compiler
def test_a_processor_that_the_wheel_has_nothing_for_is_no_fault_of_the_model(tmp_path: Path) -> None:
    verdict = ask(usable(processor="mars3", quantize="BF16"), conv_net(), tmp_path)

    assert verdict.status is Status.UNRESOLVED
    assert "can't find symbol" in verdict.message


@pytest.mark.compiler
def test_the_newest_version_compiles_and_compares(tmp_path: Path) -> None:
    verdict = ask(usable("1.30.2"), conv_net(), tmp_path)

    assert verdict.passed
    assert {row[1] for row in verdict.tables[0].rows} >= {"MaxPool", "Relu"}


@pytest.mark.compiler
def test_an_input_may_have_the_name_of_numpys_own_argument(tmp_path: Path) -> None:
    verdict = ask(usable(), net("g (float[2,8] file) => (float[2,8] y) { y = Relu(file) }"), tmp_path)

    assert verdict.passed, verdict.message


@pytest.mark.compiler
def test_it_says_what_it_reads_and_what_it_supports() -> None:
    old, new = usable().describe(), usable("1.30.2").describe()

    assert (old.newest_ir, old.newest_opset) == (new.newest_ir, new.newest_opset) == (9, 19)
    assert old.ops is not None
    assert new.ops is not None
    assert {"Conv", "GridSample"} <= old.ops & new.ops
    assert "Mod" in new.ops - old.ops
    assert "Size" not in old.ops | new.ops


def test_the_sets_that_it_prints_are_read_in_one_order() -> None:
    backend = make("tpu-mlir", {})
    logs = ("RuntimeError: Op not support:{'Size', 'Mod'}\n", "RuntimeError: Op not support:{'Mod', 'Size'}\n")

    first, second = (backend.judge(Outcome(exit_code=1, log=log)) for log in logs)

    assert first.hints == second.hints
    assert first.fingerprint == second.fingerprint


def test_a_comparison_that_breaks_off_finds_nothing_wrong_with_the_model() -> None:
    log = """[Running]: npz_tool.py compare outputs.npz probe_ref_outputs.npz --tolerance 0.99,0.99 --except - -vv
OSError: [Errno 28] No space left on device
RuntimeError: [!Error]: npz_tool.py compare outputs.npz probe_ref_outputs.npz
"""
    verdict = make("tpu-mlir", {}).judge(Outcome(exit_code=1, log=log, artifacts=(Path("probe.mlir"),)))

    assert verdict.status is Status.UNRESOLVED


def test_an_assertion_of_tpuc_opt_names_the_op_and_says_what_it_expects() -> None:
    log = """[Running]: tpuc-opt probe_origin.mlir --struct-optimize --shape-infer -o probe.mlir
ASSERT executed at/__w/tpu-mlir/tpu-mlir/lib/Dialect/Top/Interfaces/MatMul.cpp:66
ASSERT INFO:a_s[i] == b_s[i] || a_s[i] == 1 || b_s[i] == 1
Operation:
RuntimeError: [!Error]: tpuc-opt probe_origin.mlir --struct-optimize --shape-infer -o probe.mlir
"""
    verdict = make("tpu-mlir", {}).judge(Outcome(exit_code=1, log=log))

    assert verdict.hints.ops == ("MatMul",)
    assert verdict.kind is Kind.UNSUPPORTED
    assert verdict.message == "ASSERT INFO:a_s[i] == b_s[i] || a_s[i] == 1 || b_s[i] == 1"
