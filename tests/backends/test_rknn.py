"""RKNN-Toolkit2 itself, where it is installed (`onnx-bisect backends install rknn`): the contract, and what it is
known to do.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from onnxbisect.errors import OptionError
from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect_backends.contract import Backend, Limits, Outcome
from onnxbisect_backends.registry import make
from onnxbisect_backends.samples import samples_folder
from onnxbisect_backends.testing import BackendConformance, conv_net, processes_in, with_op
from onnxbisect_backends.toolchains.toolchain import toolchain
from onnxbisect_backends.vendors.rknn import backend as rknn
from onnxbisect_backends.vendors.rknn.log import layer_errors

SECONDS = Limits(seconds=150)


def usable(**options: str) -> Backend:
    backend = make("rknn", options)
    if complaint := backend.check():
        pytest.skip(complaint)
    return backend


def net(body: str) -> onnx.ModelProto:
    """A model in ONNX's text form, without its header; nodes are named in brackets."""
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {body}')


def ask(backend: Backend, model: onnx.ModelProto, folder: Path, limits: Limits = SECONDS) -> Verdict:
    probe, workdir = folder / "model.onnx", folder / "work"
    workdir.mkdir()
    onnx.save(model, probe)
    return backend.judge(backend.compile(probe, workdir, limits))


#: What accuracy_analysis of 2.3.2 prints of the net with a scaled channel in docs/precision.md, and its colours.
ERRORS = """
# simulator_error: calculate the output error of each layer of the simulator (compared to the 'golden' value).
#              entire: output error of each layer between 'golden' and 'simulator', these errors will accumulate.
layer_name                                     simulator_error
                                           entire              single
                                        cos      euc        cos      euc
------------------------------------------------------------------------------
[Input] x                             1.00000 | 0.0       1.00000 | 0.0
[exDataConvert] x_int8                0.99996 | 1.0230    0.99996 | 1.0230
[Conv] c0
[Relu] r0                             0.99993 | 1.0805    0.99993 | 1.0805
[Conv] up
[Relu] r3                             0.99994 | 25.200    0.99996 | 19.721
[Conv] c4
[Relu] r4                             \033[1;33m0.66636\033[0m | 11.559    \033[1;33m0.66667\033[0m | 11.530
[Conv] GlobalAveragePool_g_2conv0     \033[1;33m0.92424\033[0m | 1.4756    0.99999 | 0.0190
[Reshape] y_int8                      0.96972 | 0.1200    1.00000 | 0.0014
I The error analysis results save to: analysis/error_analysis.txt
"""


def test_the_table_of_errors_has_fused_tensors_in_one_layer() -> None:
    found = layer_errors(ERRORS)

    assert [it.tensors for it in found] == [
        ("x",),
        ("x_int8",),
        ("c0", "r0"),
        ("up", "r3"),
        ("c4", "r4"),
        ("GlobalAveragePool_g_2conv0",),
        ("y_int8",),
    ]
    assert (found[4].entire, found[4].single) == (0.66636, 0.66667)
    assert min(found, key=lambda it: it.single).tensors == ("c4", "r4")


def test_a_layer_of_the_table_whose_numbers_are_no_numbers_is_the_worst() -> None:
    found = layer_errors(
        "[Mul] p_a         1.00000 | 38.776    1.00000 | 15.867\n"
        "[Mul] p_b          q_inf  | q_inf      q_inf  | q_inf \n"
        "[Conv] c           q_nan  | q_nan     1.00000 | 0.0160\n"
    )

    assert [(it.tensors, it.entire, it.single) for it in found] == [
        (("p_a",), 1.0, 1.0),
        (("p_b",), -1.0, -1.0),
        (("c",), -1.0, 1.0),
    ]


@pytest.mark.compiler
class TestConformance(BackendConformance):
    def backend(self) -> Backend:
        return usable()

    def refused(self) -> onnx.ModelProto:
        return with_op("Acos")


@pytest.mark.compiler
def test_what_it_leaves_out_is_refused_and_all_of_it_is_named(tmp_path: Path) -> None:
    """It ends with exit status 0 and a file; each node that has no code is a line of the log."""
    model = net("""
        g (float[1,4,8,8] x) => (float[1,4] y) {
            [first] a = Relu(x)
            [second] b = Acos(a)
            [third] y = Det(b)
        }""")

    verdict = ask(usable(), model, tmp_path)

    assert (verdict.status, verdict.kind) == (Status.FAIL, Kind.UNSUPPORTED)
    assert (set(verdict.hints.nodes), set(verdict.hints.ops)) == ({"second", "third"}, {"Acos", "Det"})


@pytest.mark.compiler
def test_an_exception_names_its_node_and_speaks_plainly(tmp_path: Path) -> None:
    verdict = ask(usable(), net("g (float[8] x) => (float[k] y) { [lonely] y = Unique(x) }"), tmp_path)

    assert (verdict.status, verdict.kind) == (Status.FAIL, Kind.UNSUPPORTED)
    assert (verdict.hints.nodes, verdict.hints.ops) == (("lonely",), ("Unique",))
    assert verdict.message.startswith("The input 0 of Unique('lonely') need to be constant!")


@pytest.mark.compiler
def test_death_by_a_signal_is_a_crash(tmp_path: Path) -> None:
    model = net("g (uint8[1,4,8,8] x) => (float[1,4,8,8] y) { [c] a = Cast<to = 1>(x) [r] y = Relu(a) }")

    verdict = ask(usable(), model, tmp_path)

    assert (verdict.status, verdict.kind) == (Status.FAIL, Kind.CRASH)
    assert "SIGABRT" in verdict.message
    assert "Not Support Dtype: 2. please check precision!" in verdict.message


@pytest.mark.compiler
def test_a_silent_death_tells_the_pass_in_which_it_came(tmp_path: Path) -> None:
    model = net("g (int8[1,4,8,8] x) => (float[1,4,8,8] y) { [c] a = Cast<to = 1>(x) [r] y = Relu(a) }")

    verdict = ask(usable(), model, tmp_path)

    assert verdict.message == "Killed by SIGSEGV. Its last words: start: OpEmit"


@pytest.mark.compiler
def test_inputs_of_dtypes_that_it_dies_of_are_not_asked() -> None:
    taken = frozenset({"float", "float16", "double", "int32", "int64", "bool"})
    assert usable().describe().probe_format.input_dtypes == taken


@pytest.mark.compiler
@pytest.mark.long
def test_a_hang_is_no_failure(tmp_path: Path) -> None:
    """A Transpose of rank 6 by itself never ends; between two Reshapes it compiles."""
    model = net("""
        g (float[1,2,2,2,2,16] x) => (float[1,2,2,2,2,16] y) {
            [t] y = Transpose<perm = [0, 2, 1, 4, 3, 5]>(x)
        }""")

    verdict = ask(usable(), model, tmp_path, Limits(seconds=15))

    assert (verdict.status, verdict.kind) == (Status.UNRESOLVED, Kind.TIMEOUT)
    assert processes_in(tmp_path) == []


@pytest.mark.compiler
@pytest.mark.parametrize("target", ["rk3588", "rk3576"])
def test_the_place_of_every_node_is_told(tmp_path: Path, target: str) -> None:
    """The table of the RK3576 has a column more."""
    verdict = ask(usable(target=target), with_op("Sin"), tmp_path)

    assert verdict.status is Status.PASS
    (table,) = verdict.tables
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    placed = {row["node"]: (row["operator"], row["runs on"]) for row in rows}
    assert placed["before"] == ("Relu", "NPU")
    assert placed["the_op"] == ("Sin", "CPU")


@pytest.mark.compiler
def test_a_node_on_the_cpu_fails_where_that_is_forbidden(tmp_path: Path) -> None:
    verdict = ask(usable(fallback="forbid"), with_op("Sin"), tmp_path)

    assert (verdict.status, verdict.kind) == (Status.FAIL, Kind.FALLBACK)
    assert (verdict.hints.nodes, verdict.hints.ops) == (("the_op",), ("Sin",))
    assert verdict.message == "Sin 'the_op' runs on the CPU."
    assert any("CPU" in row for table in verdict.tables for row in table.rows)


@pytest.mark.compiler
def test_its_own_changes_of_layout_may_be_on_the_cpu(tmp_path: Path) -> None:
    constants = ", ".join(f"float[4] {name} = {{1.0, 1.0, 1.0, 1.0}}" for name in "sbmv")
    model = net(f"g (float[1,4] x) => (float[1,4] y) <{constants}> {{ [bn] y = BatchNormalization(x, s, b, m, v) }}")

    verdict = ask(usable(fallback="forbid"), model, tmp_path)

    assert verdict.status is Status.PASS, verdict
    assert any("CPU" in row for table in verdict.tables for row in table.rows)


def test_a_chip_of_integers_asks_for_quantisation() -> None:
    with pytest.raises(OptionError, match=r"^rv1106 computes in integers only; add --option quantize=true\.$"):
        make("rknn", {"target": "rv1106"})


@pytest.mark.compiler
def test_quantised_models_are_calibrated_on_the_samples_beside_the_probe(tmp_path: Path) -> None:
    backend = usable(target="rv1106", quantize="true", calibration_size="2")
    assert backend.describe().samples == 2
    assert backend.describe().weights_matter
    folder = samples_folder(tmp_path / "model.onnx")
    folder.mkdir()
    for number in range(2):
        values = np.random.default_rng(number).standard_normal((1, 3, 16, 16)).astype(np.float32)
        np.savez(folder / f"{number}.npz", x=values)

    verdict = ask(backend, conv_net(), tmp_path)

    assert verdict.status is Status.PASS, verdict
    (table,) = verdict.tables
    assert {row[table.columns.index("dtype")] for row in table.rows} == {"INT8"}


@pytest.mark.compiler
def test_without_samples_nothing_is_known_of_a_quantised_model(tmp_path: Path) -> None:
    verdict = ask(usable(quantize="true"), conv_net(), tmp_path)

    assert verdict.status is Status.UNRESOLVED
    assert verdict.message == "There are no samples to calibrate on: none were made for this model"


#: From the log of a real run: Hiera's encoder, as SAM 2 has it, for the rk3588.
FUSION = """\
\x1b[1;33mW\x1b[0m \x1b[1;33mbuild: Show op fuse match nodes:
Rule: convert_rs_add_rs_to_rs_gather_elements
Subgraph:
Op type: Reshape
Op name: /blocks.0/attn/proj/MatMul_output_0_mm_tp_rs
  Input:
    /blocks.0/attn/proj/MatMul_output_0_mm_tp : [8192, 8, 1, 96]
Op type: Add
Op name: /blocks.0/attn/proj/Add
  Input:
    blocks.0.attn.proj.bias : [1, 1, 1, 96]

\x1b[0m
\x1b[1;33mW\x1b[0m \x1b[1;33mYou can add disable_rules=['convert_rs_add_rs_to_rs_gather_elements'] in rknn.config() to \
temporarily disable the error rule!
\x1b[0m
\x1b[1;31mE\x1b[0m \x1b[1;31mbuild: Traceback (most recent call last):
  File "rknn/api/rules/utils.py", line 183, in rknn.api.rules.utils.Graph.op
ValueError: inputs or 'outputs' must be set!
"""


def test_a_fusion_that_fails_is_told_with_its_rule_and_points_at_its_nodes() -> None:
    verdict = make("rknn", {}).judge(Outcome(exit_code=1, log=FUSION))

    assert (verdict.status, verdict.kind) == (Status.FAIL, Kind.ERROR)
    assert verdict.message.startswith("ValueError: inputs or 'outputs' must be set!")
    assert "--option disable_rules=convert_rs_add_rs_to_rs_gather_elements" in verdict.message
    assert "/blocks.0/attn/proj/Add" in verdict.hints.nodes
    assert "/blocks.0/attn/proj/MatMul_output_0" in verdict.hints.tensors


@pytest.mark.compiler
def test_rules_may_be_left_out(tmp_path: Path) -> None:
    """A toolkit that does not know an option of ours would refuse even this net."""
    backend = usable(disable_rules="convert_rs_add_rs_to_rs_gather_elements, unsqueeze_to_4d_exdataconvert")

    verdict = ask(backend, conv_net(), tmp_path)

    assert verdict.status is Status.PASS, verdict
    assert len(backend.options["disable_rules"]) == 2


@pytest.mark.compiler
def test_a_rule_that_the_toolkit_lacks_is_told_before_anything_is_asked() -> None:
    """The toolkit takes any name, and goes without nothing."""
    usable()

    complaint = make("rknn", {"disable_rules": "convert_rs_add_rs_to_rs_gather_element"}).check()

    assert complaint is not None
    assert "has no rule 'convert_rs_add_rs_to_rs_gather_element' to disable" in complaint
    assert "did you mean 'convert_rs_add_rs_to_rs_gather_elements'?" in complaint


@pytest.mark.compiler
def test_what_is_folded_to_nothing_is_refused_nowhere(tmp_path: Path) -> None:
    """The shape of a tensor, cut out, is a constant: the toolkit wants no model of that, and folds it in any other."""
    verdict = ask(usable(), net("g (float[1,4] x) => (int64[2] y) { [s] y = Shape(x) }"), tmp_path)

    assert verdict.status is Status.PASS
    assert "are constants" in verdict.message


#: Of a condition that follows from a shape, as PyTorch's exporters write `squeeze` and sizes of a batch.
KNOWN_CONDITION = """[s] s = Shape(x) [i] i = Constant <value = int64 {1}> () [g] d = Gather(s, i)
[k] k = Constant <value = int64 {4}> () [e] c = Equal(d, k)"""
BRANCHES = """<then_branch = t () => (float[1,4] a) { [ra] a = Relu(r) },
else_branch = f () => (float[1,4] b) { [rb] b = Identity(r) }>"""


@pytest.mark.compiler
@pytest.mark.parametrize(
    "body",
    [
        f"{KNOWN_CONDITION} [t] r = Tanh(x) [if] y = If (c) {BRANCHES}",
        f"{KNOWN_CONDITION} [t] r = Tanh(x) [if] z = If (c) {BRANCHES} [r] y = Exp(z)",
        f"{KNOWN_CONDITION} [r] r = Identity(x) [if] z = If (c) {BRANCHES} [t] w = Tanh(z) [a] y = Add(w, z)",
        "[z] z = Constant <value = float {0}> () [m] y = Mul(x, z)",
        "[z] z = Constant <value = float {0}> () [m] m = Mul(z, x) [a] y = Sin(m)",
    ],
    ids=["if", "behind-if", "through-if", "times-0", "behind-times-0"],
)
def test_what_the_toolkit_folds_without_reason_is_refused(body: str, tmp_path: Path) -> None:
    """It said that all outputs are constants, and its refusal was taken for that of a cut of shape computations."""
    verdict = ask(usable(), net(f"g (float[1,4] x) => (float[1,4] y) {{ {body} }}"), tmp_path)

    assert verdict.status is Status.FAIL
    assert "are constants" in verdict.message


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (f"{KNOWN_CONDITION} [t] r = Tanh(x) [if] z = If (c) {BRANCHES} [e] y = Exp(z)", "float[1,4]", Status.FAIL),
        ("[z] z = Constant <value = float {0}> () [m] y = Mul(x, z)", "float[1,4]", Status.FAIL),
        ("[s] s = Shape(x) [c] y = Cast <to = 1> (s)", "float[2]", Status.PASS),
    ],
    ids=["behind-if", "times-0", "shape"],
)
def test_a_model_that_loses_an_output_is_refused_unless_that_is_a_constant(
    body: str, kind: str, status: Status, tmp_path: Path
) -> None:
    """The toolkit converts the rest, and its exit status is 0."""
    graph = f"g (float[1,4] x) => ({kind} y, float[1,4] w) {{ {body} [w] w = Sigmoid(x) }}"

    verdict = ask(usable(), net(graph), tmp_path)

    assert verdict.status is status
    assert ("These outputs ['y'] of model are constants" in verdict.message) is (status is Status.FAIL)


@pytest.mark.compiler
def test_what_is_cut_out_behind_an_op_of_unknown_output_is_not_asked(tmp_path: Path) -> None:
    """The toolkit takes an input without a shape for a scalar, and refuses it: that is no word about the op."""
    model = net("g (float[1,4] n) => (float[1,4] y) { [r] y = Relu(n) }")
    model.graph.input[0].type.tensor_type.ClearField("shape")

    verdict = ask(usable(), model, tmp_path)

    assert (verdict.status, verdict.message) == (Status.UNRESOLVED, "The shape of the input 'n' is not known.")


def test_a_log_that_is_cut_proves_no_success() -> None:
    verdict = make("rknn", {}).judge(Outcome(exit_code=0, log="I rknn building done.", log_truncated=True))

    assert verdict.status is Status.UNRESOLVED


def test_without_a_table_nothing_is_known_of_where_nodes_run() -> None:
    allowed, forbidden = (
        make("rknn", {"fallback": value}).judge(Outcome(exit_code=0)).status for value in ("allow", "forbid")
    )

    assert (allowed, forbidden) == (Status.PASS, Status.UNRESOLVED)


#: Two registers of an RK3588, one of them twice (airockchip/rknn-toolkit2 #163).
OVERFLOWS = """\
E RKNN: [13:38:22.316] REGTASK: The bit width of field value exceeds the limit, target: v2, offset: 0x500c, \
shift = 0, limit: 0x1fff, value: 0x20cf
E RKNN: [13:38:22.316] REGTASK: The bit width of field value exceeds the limit, target: v2, offset: 0x4038, \
shift = 16, limit: 0x1fff, value: 0x419f
E RKNN: [13:38:22.317] REGTASK: The bit width of field value exceeds the limit, target: v2, offset: 0x4038, \
shift = 16, limit: 0x1fff, value: 0x4210
"""


def test_a_value_that_exceeds_its_register_is_told_and_may_be_forbidden() -> None:
    """The toolkit ends with status 0 and a file. Whether that is right on the chip nobody knows without one."""
    allowed, forbidden = (
        make("rknn", {"overflow": value}).judge(Outcome(exit_code=0, log=OVERFLOWS)) for value in ("allow", "forbid")
    )

    assert allowed.passed
    (table,) = allowed.tables
    assert table.rows == (("0x4038", "16", "0x1fff", "0x4210", "2"), ("0x500c", "0", "0x1fff", "0x20cf", "1"))
    assert (forbidden.status, forbidden.kind) == (Status.FAIL, Kind.UNSUPPORTED)
    assert "0x4210 exceeds register 0x4038" in forbidden.message


def test_a_toolkit_that_cannot_be_loaded_says_nothing_of_the_model() -> None:
    script = Path(rknn.__file__).with_name("rknn_convert.py")
    done = subprocess.run([sys.executable, "-P", script, "m.onnx", "out", "{}"], capture_output=True, text=True)

    verdict = make("rknn", {}).judge(Outcome(exit_code=done.returncode, log=done.stderr))

    assert verdict.status is Status.UNRESOLVED
    assert "RKNN-Toolkit2 cannot be loaded" in verdict.message


def test_verdicts_are_kept_under_what_the_toolkit_is_installed_with() -> None:
    assert make("rknn", {}).describe().environment == toolchain("rknn").digest


@pytest.mark.parametrize(("given", "megabytes", "seconds"), [(600.0, 1, 248.0), (600.0, 100, 600.0), (7.0, 1, 7.0)])
def test_a_compile_has_time_by_the_size_of_its_model_unless_the_user_says_otherwise(
    given: float, megabytes: int, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Limits] = []

    def run(argv: list[str], *, limits: Limits, **_: object) -> Outcome:
        asked.append(limits)
        return Outcome(exit_code=0)

    monkeypatch.setattr("onnxbisect_backends.vendors.rknn.backend.run", run)
    probe = tmp_path / "model.onnx"
    with probe.open("wb") as file:
        file.truncate(megabytes * 10**6)
    (tmp_path / "work").mkdir()

    make("rknn", {}).compile(probe, tmp_path / "work", Limits(seconds=given))

    assert asked[0].seconds == seconds
