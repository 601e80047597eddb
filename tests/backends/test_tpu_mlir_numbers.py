"""Which differences from onnxruntime's numbers count for TPU-MLIR's backend, and what a failure says of them."""

import multiprocessing
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

from onnxbisect.verdict import Kind, Status
from onnxbisect_backends.contract import Outcome
from onnxbisect_backends.registry import make
from onnxbisect_backends.samples import made_up, samples_folder
from onnxbisect_backends.vendors.tpu_mlir import tpu_mlir_steps, tpu_mlir_tool

#: The outputs of the model, as the steps tell them to the tool's process.
OUTPUTS = '["y"]'
RIGHT = np.array([1.0, 2.0, 3.0], np.float32)
#: Probabilities of a text detector on a picture without text, as the tool and as onnxruntime computed them.
TINY = np.array([1.0656e-05, 3.780e-06, 1e-9], np.float32), np.array([1.0669e-05, 3.725e-06, 0.0], np.float32)


def no_other(target: str, reference: str) -> bool:
    """There is no other sample."""
    return False


def compared(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    new: Mapping[str, np.ndarray],
    old: Mapping[str, np.ndarray],
    failed: tuple[str, ...],
) -> bool:
    """Whether a comparison counts as passed in which the tool rejects these tensors, and takes all others."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("ONNXBISECT_OUTPUTS", OUTPUTS)
    for name, arrays in (("new.npz", new), ("old.npz", old)):
        np.savez(name, allow_pickle=False, **arrays)

    def tool(target: str, reference: str, tolerance: str, excepts: str = "-") -> None:
        assert (target, reference, tolerance, excepts) == ("new.npz", "old.npz", "0.99,0.99", "-")
        for name in old:
            result = "NOT_SIMLIAR [FAILED]" if name in failed else "SIMILAR [PASSED]"
            os.write(1, f"[{name:<32}]  {result}\n".encode())
        if failed:
            raise RuntimeError("[!Error]: npz_tool.py compare")

    try:
        tpu_mlir_tool.comparing(tool, no_other)("new.npz", "old.npz", "0.99,0.99", excepts="-")
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize(
    ("new", "old", "passes"),
    [
        (*TINY, True),
        (RIGHT + 0.5, RIGHT, False),
        # 1e-5 of the largest number, and more than that
        (RIGHT * 1e6 + np.float32(20), RIGHT * 1e6, True),
        (RIGHT * 1e6 + np.float32(400), RIGHT * 1e6, False),
        # nothing but zeros to compare with, of which a relative measure makes nothing
        (np.full(3, 5e-7, np.float32), np.zeros(3, np.float32), True),
        (np.full(3, 5e-3, np.float32), np.zeros(3, np.float32), False),
        # NaN or infinity in both, and in one
        (np.array([np.nan, np.inf, 1e-9]), np.array([np.nan, np.inf, 0.0]), True),
        (np.array([np.inf, 1.0]), np.array([-np.inf, 1.0]), False),
        (np.array([np.nan, 1.0]), np.array([0.0, 1.0]), False),
        # a constant, and another shape
        (np.full(4, 7.0), np.full(4, 7.00001), True),
        (np.full(3, 7.0), np.full(4, 7.0), False),
    ],
)
def test_a_difference_too_small_to_count_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new: np.ndarray, old: np.ndarray, passes: bool
) -> None:
    assert compared(tmp_path, monkeypatch, {"y_Op": new}, {"y_Op": old}, ("y_Op",)) == passes


def test_outputs_come_before_inner_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mask that the tool keeps in another form is no failure of a model whose outputs are right."""
    new, old = {"a_Where": RIGHT + 1, "y_Softmax": RIGHT}, {"a_Where": RIGHT, "y_Softmax": RIGHT}
    assert compared(tmp_path, monkeypatch, new, old, ("a_Where",))
    tiny = {**new, "y_Softmax": RIGHT + np.float32(1e-7)}
    assert compared(tmp_path, monkeypatch, tiny, old, ("a_Where", "y_Softmax"))
    wrong = {**new, "y_Softmax": RIGHT + 1}
    assert not compared(tmp_path, monkeypatch, wrong, old, ("a_Where", "y_Softmax"))


def test_where_an_output_was_not_compared_an_inner_tensor_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not compared(tmp_path, monkeypatch, {"a_Add": RIGHT + 1}, {"a_Add": RIGHT}, ("a_Add",))


FIRST = """[Running]: npz_tool.py compare outputs.npz probe_ref_outputs.npz
[y_Sigmoid                       ]  NOT_SIMLIAR [FAILED]
npz compare FAILED.
[onnx-bisect] [y_Sigmoid] differs by at most 0.25, in numbers up to 1
"""
AGAIN = "[onnx-bisect] other numbers on made-up input: comparing on another sample\n"
SECOND = """[Running]: npz_tool.py compare outputs.npz probe_ref_outputs.npz
[a_Mul                           ]  NOT_SIMLIAR [FAILED]
[y_Sigmoid                       ]  NOT_SIMLIAR [FAILED]
npz compare FAILED.
[onnx-bisect] [a_Mul] differs by at most 5.4e-08, in numbers up to 1.07e-05, too small to count
[onnx-bisect] [y_Sigmoid] differs by at most 0.5, in numbers up to 1
"""


def test_a_failure_says_the_largest_difference_and_names_no_tiny_one() -> None:
    verdict = make("tpu-mlir", {"version": "1.30.2"}).judge(Outcome(exit_code=1, log=FIRST + AGAIN + SECOND))
    assert (verdict.status, verdict.kind) == (Status.FAIL, Kind.NUMERIC)
    assert verdict.message.startswith("y differs by at most 0.5, in numbers up to 1 (")
    assert verdict.hints.tensors == ("y",)
    assert verdict.hints.right == ("a",)
    assert verdict.tables[0].rows == (("a", "Mul", "TINY"), ("y", "Sigmoid", "NOT_SIMLIAR"))


def test_what_the_conversion_said_counts_on_each_sample() -> None:
    said = "Not Support Resize Cubic !!!! Using Linear Instead !!!!!\n"
    passed = "[Running]: npz_tool.py compare outputs.npz\n[y_Resize  ]  SIMILAR [PASSED]\nnpz compare PASSED.\n"
    log = said + FIRST + AGAIN + passed
    verdict = make("tpu-mlir", {"version": "1.30.2"}).judge(
        Outcome(exit_code=0, log=log, artifacts=(Path("probe.mlir"),))
    )
    assert (verdict.status, verdict.kind) == (Status.FAIL, Kind.NUMERIC)


@pytest.mark.parametrize("second", [RIGHT, RIGHT + 1])
def test_wrong_numbers_on_one_made_up_sample_are_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: np.ndarray
) -> None:
    """The model is run on another sample, as it was converted for the first one."""
    monkeypatch.chdir(tmp_path)
    np.savez("0.npz", allow_pickle=False, x=RIGHT)
    np.savez("1.npz", allow_pickle=False, x=RIGHT * 2)
    monkeypatch.setenv(tpu_mlir_tool._ANOTHER, "1.npz")
    ran: list[tuple[str, float]] = []

    def in_onnxruntime(inputs: Mapping[str, np.ndarray], file: str) -> dict[str, np.ndarray]:
        ran.append((file, float(inputs["x"][0, 0])))
        return {"y": RIGHT}

    def converted(inputs: Mapping[str, np.ndarray], file: str) -> dict[str, np.ndarray]:
        ran.append((file, float(inputs["x"][0, 0])))
        return {"y": RIGHT + 1 if len(ran) == 2 else second}

    def tool(target: str, reference: str) -> None:
        with np.load(target) as new, np.load(reference) as old:
            right = np.array_equal(new["y"], old["y"])
        print(f"[y   ]  {'SIMILAR [PASSED]' if right else 'NOT_SIMLIAR [FAILED]'}")
        if not right:
            raise RuntimeError("[!Error]: npz_tool.py compare")

    runner = SimpleNamespace(onnx_inference=in_onnxruntime, mlir_inference=converted)
    runs = tpu_mlir_tool.Runs(runner)
    compare = tpu_mlir_tool.comparing(tool, runs.again)
    repeated = {"x": np.stack([RIGHT, RIGHT])}  # to fill a batch
    np.savez("old.npz", allow_pickle=False, **runner.onnx_inference(repeated, "a.onnx"))
    np.savez("new.npz", allow_pickle=False, **runner.mlir_inference(repeated, "a.mlir"))
    if second is RIGHT:
        compare("new.npz", "old.npz")
    else:
        with pytest.raises(RuntimeError, match="npz_tool"):
            compare("new.npz", "old.npz")
    assert ran == [("a.onnx", 1), ("a.mlir", 1), ("a.onnx", 2), ("a.mlir", 2)]
    with np.load("probe_in_f32.npz") as stored:  # beside the outputs, for the steps that follow
        assert stored["x"].tolist() == np.stack([RIGHT * 2, RIGHT * 2]).tolist()


@pytest.mark.parametrize("invented", [True, False])
def test_the_samples_of_the_user_count_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, invented: bool) -> None:
    told: list[str | None] = []

    def step(root: Path, tool: str, *words: str) -> int:
        assert words[words.index("--test_input") + 1] == "0.npz"
        told.append(os.environ.get(tpu_mlir_tool._ANOTHER))
        return 1

    monkeypatch.setattr(tpu_mlir_steps, "call", step)
    order = {"verify": True, "tolerance": "0.99,0.99", "made_up": invented}
    assert tpu_mlir_steps._transform(tmp_path, "model.onnx", order, ["0.npz", "1.npz"]) == 1
    assert told == ["1.npz" if invented else None]
    assert tpu_mlir_tool._ANOTHER not in os.environ


@pytest.mark.parametrize("status", [0, 255])
def test_a_comparison_starts_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], status: int
) -> None:
    (tmp_path / "npz_tool.py").write_text(
        f"""
import multiprocessing, os, sys
seen = multiprocessing.Manager().dict()
def compare(name):
    seen[name] = os.getpid()
workers = [multiprocessing.Process(target=compare, args=(name,)) for name in sys.argv[2:]]
for it in workers:
    it.start()
for it in workers:
    it.join()
print(dict(seen))
sys.exit({status})
"""
    )
    others: list[list[str]] = []
    run = tpu_mlir_tool.in_this_process(others.append, tmp_path)
    words, process = list(sys.argv), multiprocessing.Process
    if status:
        with pytest.raises(RuntimeError, match=r"^\[!Error\]: npz_tool.py compare a b$"):
            run(["npz_tool.py", "compare", "a b"])
    else:
        run(["npz_tool.py", "compare", "a b"])
    said = capfd.readouterr().out
    assert said.startswith("[Running]: npz_tool.py compare a b\n")
    assert str({"a": os.getpid(), "b": os.getpid()}) in said
    assert ("[Success]: npz_tool.py compare a b" in said) == (status == 0)
    assert (sys.argv, multiprocessing.Process) == (words, process)
    run(["tpuc-opt", "probe.mlir"])
    assert others == [["tpuc-opt", "probe.mlir"]]


def test_made_up_samples_are_marked(tmp_path: Path) -> None:
    probe = tmp_path / "model.onnx"
    onnx.save(
        onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
        ),
        probe,
    )
    assert not made_up(probe)
    samples_folder(probe).mkdir()
    assert not made_up(probe)
    (samples_folder(probe) / "made_up").touch()
    assert made_up(probe)
