"""`onnx-bisect run` with TPU-MLIR, where it is installed: models whose truth is known, diagnosed whole."""

import json
from pathlib import Path

import onnx
import onnx.parser
import pytest

from onnxbisect_backends.folders import cache_folder
from onnxbisect_backends.toolchains.toolchain import toolchain
from support.cli.command_line import Shell, culprits

pytestmark = pytest.mark.compiler

VERSION = "1.8.1"
TARGET = ("--backend", "tpu-mlir", "--option", f"version={VERSION}")

#: As in Hiera, the image encoder of SAM 2: how far a window must be padded is computed with Mod, and a Size that
#: PyTorch wrote for `tile` is in the way, although all of it is constant.
WINDOWS = """
    g (float[1,4,6,6] x) => (float[1,4,6,6] y)
    <float[1] height = {6.0}, float[1] window = {4.0}, float[2] tiled = {1.0, 2.0}, float[4,4,1,1] w = {
        1, 0, 0, 0,  0, 1, 0, 0,  0, 0, 1, 0,  0, 0, 0, 1}> {
        [embed] a = Conv<kernel_shape = [1, 1]>(x, w)
        [pad_1] p = Mod<fmod = 1>(height, window)
        [padded_1] b = Mul(a, p)
        [act] c = Relu(b)
        [pad_2] q = Mod<fmod = 1>(height, window)
        [padded_2] d = Add(c, q)
        [count] n = Size(tiled)
        [tile] e = Gather<axis = 1>(d, n)
        [mix] y = Mul(d, e)
    }"""

#: Shapes as they are computed in a block of that encoder: what folding leaves in place, and what it removes.
BLOCK = """
    g (float[1,6,6,4] x) => (float[1,8,6,4] padded, float[1,36,4] y)
    <int64 second = {1}, int64 third = {2}, int64 window = {4}, int64[1] zero = {0}, int64[1] one = {1},
     int64[1] channels = {4}, int64[5] before = {0, 0, 0, 0, 0}, int64[2] after = {0, 0}, int64[1] last = {-1},
     int64[1] end = {4}, float[4] bias = {1.0, 2.0, 3.0, 4.0}> {
        [shape] s = Shape(x)
        [height] h = Gather(s, second)
        [width] w = Gather(s, third)
        [over] o = Mod(h, window)
        [under] u = Sub(window, o)
        [missing] m = Mod(u, window)
        [missing_1d] m1 = Unsqueeze(m, zero)
        [pads] p = Concat<axis = 0>(before, m1, after)
        [pad] padded = Pad(x, p)
        [pixels] n = Mul(h, w)
        [pixels_1d] n1 = Unsqueeze(n, zero)
        [flat] f = Concat<axis = 0>(one, n1, channels)
        [flatten] t = Reshape(x, f)
        [shape_2] s2 = Shape(x)
        [depth] d = Slice(s2, last, end)
        [depth_f] df = Cast<to = 1>(d)
        [root_q] rq = Sqrt(df)
        [root_k] rk = Sqrt(df)
        [scale_q] q = Mul(t, rq)
        [scale_k] k = Mul(t, rk)
        [shared] b = Identity(bias)
        [mix] qk = Add(q, k)
        [shift] y = Add(qk, b)
    }"""


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Shell:
    """With verdicts of its own, and the user's toolchains."""
    if complaint := toolchain("tpu-mlir", VERSION).missing:
        pytest.skip(complaint)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "toolchains").symlink_to(cache_folder() / "toolchains")
    return Shell(folder=tmp_path, monkeypatch=monkeypatch, capture=capfd)


def save(body: str, path: Path, ir_version: int = 8) -> Path:
    """A model in ONNX's text form, without its header; nodes are named in brackets."""
    onnx.save(onnx.parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["" : 17]> {body}'), path)
    return path


@pytest.mark.timeout(1200)
@pytest.mark.long
def test_a_file_too_new_to_be_folded_fails_at_what_folding_removes(shell: Shell) -> None:
    newer = save(WINDOWS, shell.folder / "newer.onnx", ir_version=10)

    report = shell.report(str(newer), *TARGET, "--as-is")

    found = {tuple(culprit["ops"]): culprit["occurrences"] for culprit in report["culprits"]}
    assert found == {("Mod",): [["pad_1"], ["pad_2"]], ("Size",): [["count"]]}
    assert report["certificate"]["status"] == "proven"
    assert report["stats"]["compiler_calls"] <= 8
    first = report["preflight"][0]
    assert (first["id"], first["severity"]) == ("ir-newer-than-tool", "error")
    assert first["detail"] == "IR version 10, TPU-MLIR reads up to 9"


@pytest.mark.timeout(600)
@pytest.mark.long
def test_the_same_file_in_an_older_format_compiles(shell: Shell) -> None:
    older = save(WINDOWS, shell.folder / "older.onnx", ir_version=8)

    report = shell.report(str(older), *TARGET)

    assert (report["verdict"], report["stats"]["compiler_calls"]) == ("pass", 1)
    assert "ir-newer-than-tool" not in {finding["id"] for finding in report["preflight"]}
    (numbers,) = report["tables"]
    assert {row[2] for row in numbers["rows"]} <= {"EQUAL", "CLOSE", "SIMILAR"}

    newer = shell.report(str(save(WINDOWS, shell.folder / "newer.onnx", ir_version=10)), *TARGET)
    assert newer["compiles_after"]["sentence"] == "ir_version 10 → 9"
    assert newer["stats"]["compiler_calls"] <= 2


@pytest.mark.timeout(1200)
@pytest.mark.long
def test_without_folding_what_computes_a_shape_is_asked_with_who_takes_it(shell: Shell) -> None:
    """Initializers in its place would pass where the model fails (Pad), and fail where it passes (Sqrt).

    Without Mod in the file it still fails: at pads and weights that are computed, and at products of dimensions.
    """
    newer = save(BLOCK, shell.folder / "newer.onnx", ir_version=10)

    report = shell.report(str(newer), *TARGET, "--as-is")

    assert sorted(culprits(report)) == [["missing"], ["over"], ["pad"], ["pixels_1d"], ["shared"]]
    assert report["needs_context"] == []
    assert report["certificate"]["status"] == "proven"
    assert report["stats"]["compiler_calls"] <= 20
    assert not any("_beside" in note for note in report["model"]["notes"])
    older = save(BLOCK, shell.folder / "older.onnx", ir_version=8)
    assert shell.report(str(older), *TARGET)["verdict"] == "pass"


@pytest.mark.timeout(1200)
@pytest.mark.long
def test_what_it_takes_out_is_not_to_blame_beside_what_it_refuses(shell: Shell) -> None:
    """Without its neighbour an Identity would make an input an output, at which the tool fails."""
    model = save(
        """
        g (float[1,4] x) => (float[1,4] y) {
            [start] a = Relu(x)
            [bad] b = Selu(a)
            [nothing] c = Identity(b)
            [worse] d = Asinh(c)
            [end] y = Abs(d)
        }""",
        shell.folder / "model.onnx",
    )

    report = shell.report(str(model), *TARGET)

    assert culprits(report) == [["bad"], ["worse"]]
    assert report["certificate"]["status"] == "proven"


@pytest.mark.timeout(1200)
@pytest.mark.long
def test_a_bias_that_is_computed_fails_only_together_with_what_adds_it(shell: Shell) -> None:
    """Its converter looks biases up by name, and finds none that a DequantizeLinear makes."""
    model = save(
        """
        g (float[1,1,4,4] x) => (float[1,1,4,4] y)
        <float[1,1,1,1] w = {3.0}, int32[1] b = {4}, float s = {0.5}, int32 z = {0}> {
            [start] a = Relu(x)
            [scale] f = DequantizeLinear(b, s, z)
            [conv] c = Conv<kernel_shape = [1, 1]>(a, w, f)
            [end] y = Abs(c)
        }""",
        shell.folder / "model.onnx",
    )

    report = shell.report(str(model), *TARGET)

    assert culprits(report) == [["scale", "conv"]]
    assert report["certificate"]["status"] == "proven"


@pytest.mark.timeout(600)
@pytest.mark.long
def test_a_newer_version_takes_what_an_older_one_refuses(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    if complaint := toolchain("tpu-mlir", "1.30.2").missing:
        pytest.skip(complaint)
    softsign = """soft (float[1,16] x) => (float[1,16] y) {
        [relu] a = Relu(x)
        [soft] b = Softsign(a)
        [sig] y = Sigmoid(b)
    }"""
    path = save(softsign, shell.folder / "soft.onnx")

    report = shell.report(str(path), *TARGET, "--try", "version")

    (newer,) = report["alternatives"]
    assert (newer["options"], newer["whole"]) == ({"version": "1.30.2"}, "pass")
    assert newer["takes"] == [culprit["id"] for culprit in report["culprits"]]
    assert newer["compiler_calls"] == 2
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # or versions between them would be installed
    done = shell.call("regress", str(path), *TARGET[:2], "--versions", "1.8.1..1.30.2", "--format", "json")
    assert done.code == 0, done.err
    history = json.loads(done.out)
    assert history["versions"] == ["1.8.1", "1.30.2"]
    found = {"+".join(part["ops"]): part["changes"] for part in history["parts"]}
    change = {"takes": True, "before": "1.8.1", "since": "1.30.2", "open": []}
    assert found == {"": [change], "Softsign": [change]}
