"""`onnx-bisect run` with RKNN-Toolkit2, where it is installed: models whose truth is known, diagnosed whole."""

from pathlib import Path

import onnx
import onnx.parser
import pytest

from onnxbisect_backends.folders import cache_folder
from onnxbisect_backends.toolchains.toolchain import toolchain
from support.cli.command_line import Shell, culprits

pytestmark = pytest.mark.compiler

REAL = Path(__file__).parents[1] / "models" / "real"


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Shell:
    """With verdicts of its own, and the user's toolchains."""
    if complaint := toolchain("rknn").missing:
        pytest.skip(complaint)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "toolchains").symlink_to(cache_folder() / "toolchains")
    return Shell(folder=tmp_path, monkeypatch=monkeypatch, capture=capfd)


def save(body: str, path: Path) -> None:
    """A model in ONNX's text form, without its header; nodes are named in brackets."""
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {body}'), path)


@pytest.mark.timeout(1200)
@pytest.mark.long
def test_two_heads_of_repvit_fail_where_a_mean_meets_a_normalisation(shell: Shell) -> None:
    """Every node passes alone; the toolkit means to keep the axes that ReduceMean drops, and then trips over that."""
    model = REAL / "timm_repvit_m0_9__ts17.onnx"
    nodes = onnx.load(model, load_external_data=False).graph.node
    means = {node.output[0]: node.name for node in nodes if node.op_type == "ReduceMean"}
    heads = [node for node in nodes if node.op_type == "BatchNormalization" and node.input[0] in means]

    report = shell.report(str(model), "--backend", "rknn")

    assert report["certificate"]["status"] == "proven"
    (culprit,) = report["culprits"]
    assert sorted(culprit["occurrences"]) == sorted([means[node.input[0]], node.name] for node in heads)
    assert len(heads) == 2
    assert culprit["message"].startswith("Invalid rank for input:")
    assert report["stats"]["compiler_calls"] <= 16
    assert {row[2] for table in report["tables"] for row in table["rows"]} == {"NPU"}


@pytest.mark.long
def test_ops_that_fail_only_in_one_net_are_found_as_a_pair(shell: Shell) -> None:
    """Einsum compiles, quantised values do; a net with both does not."""
    body = """
        g (float[1,4,8] x) => (float[1,4,8] y) <float s = {0.1}, int8 z = {0}, float[8,8] w = {WEIGHTS}> {
            [first] a = Relu(x)
            [einsum] b = Einsum<equation = "bij,jk->bik">(a, w)
            [quantise] q = QuantizeLinear(b, s, z)
            [back] c = DequantizeLinear(q, s, z)
            [last] y = Relu(c)
        }"""
    save(body.replace("WEIGHTS", ", ".join(str(number / 64) for number in range(64))), shell.folder / "net.onnx")

    report = shell.report("net.onnx", "--backend", "rknn")

    assert culprits(report) == [["einsum", "quantise"]]
    assert report["culprits"][0]["kind"] == "interaction"
    assert report["certificate"]["status"] == "proven"


@pytest.mark.long
def test_quantised_every_piece_is_calibrated(shell: Shell) -> None:
    """A chip that knows integers only: what is left of the net is compiled with ranges of its own inputs."""
    save(
        "g (float[1,3,8,8] x) => (float[1,3,8,8] y) { [a] p = Relu(x) [b] q = Acos(p) [c] y = Sigmoid(q) }",
        shell.folder / "net.onnx",
    )

    report = shell.report("net.onnx", "--backend", "rknn", "--option", "target=rv1106", "--option", "quantize=true")

    assert culprits(report) == [["b"]]
    assert report["certificate"]["status"] == "proven"
    assert {row[3] for table in report["tables"] for row in table["rows"]} == {"INT8"}


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_toolkits_own_table_of_errors_says_where_wrong_numbers_begin(shell: Shell) -> None:
    """A square overflows float16 among twenty nodes, and what reads it; without the table it takes 14 calls."""
    down = "".join(f"[after{place}] t{place + 1} = {op}(t{place})\n" for place, op in enumerate(["Sin", "Cos"] * 8))
    body = f"""
        g (float[1,4,8] x) => (float[1,4,8] t16) <float[1] up = {{2000}}> {{
            [scale] a = Mul(x, up)
            [square] b = Mul(a, a)
            [root] c = Sqrt(b)
            [back] t0 = Div(c, up)
            {down}
        }}
    """
    save(body, model := shell.folder / "overflow.onnx")

    report = shell.report(str(model), "--backend", "rknn", "--option", "verify=true")

    assert report["certificate"]["status"] == "proven"
    assert culprits(report) == [["root"], ["square"]]
    assert {culprit["failure"] for culprit in report["culprits"]} == {"numeric"}
    assert report["stats"]["compiler_calls"] <= 9
