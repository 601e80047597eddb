"""Models that compute for ever, or everything: found out about within bounds, or refused in a sentence."""

import gc
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from onnxbisect.errors import ModelError
from onnxbisect.model import Established, Model
from onnxbisect.model import model as model_module
from onnxbisect.model.model import Allowance, ExceededError
from onnxbisect.model.values import TensorValues
from onnxbisect_backends.probing.forked import forked
from onnxbisect_backends.probing.loaded_model import LoadedModel

ALLOWED = Allowance(seconds=1, memory=1 << 30)
#: The text of a model around a Loop, and a part that has nothing to do with it.
LOOP = """<ir_version: 8, opset_import: ["": 17]>
g (float[2,3] x) => (float[] y, float[] z) <bool t = {{1}}, int64 n = {{{trips}}}, int64[1] half = {{3}}>
{{
   y = Loop ({count}, t, x) <body: graph = b (int64 i, bool c, float[] a) => (bool co, float[] ao) {{
      co = Identity (c)
      ao = {body}
   }}>
   s = Add (half, half)
   z = Reshape (x, s)
}}
"""


def nothing() -> Established:
    return Established(types={}, known={}, data_dependent=(), notes=("done",))


def taken(folder: Path, text: str) -> Model:
    onnx.save(parser.parse_model(text), folder / "model.onnx")
    return LoadedModel(folder / "model.onnx", {}).model


def test_the_result_comes_back() -> None:
    assert forked(nothing, ALLOWED).notes == ("done",)


def test_values_come_back_as_they_are() -> None:
    known = {"k": np.arange(1 << 20, dtype=np.int64)}
    found = forked(lambda: Established(types={}, known=known, data_dependent=(), notes=()), ALLOWED)
    assert np.array_equal(found.known["k"], known["k"])


def hang() -> Established:
    while True:
        pass


def starve() -> Established:
    time.sleep(3)
    return nothing()


def fill() -> Established:
    np.ones(2 << 30, dtype=np.uint8)
    return nothing()


def crash() -> Established:
    os.kill(os.getpid(), signal.SIGSEGV)
    return nothing()


def test_a_process_that_is_killed_from_outside_is_started_again(tmp_path: Path) -> None:
    """Otherwise the model would be read without what it computes, and its pieces be other questions."""
    killed = tmp_path / "killed"

    def work() -> Established:
        if not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return nothing()

    assert forked(work, ALLOWED).notes == ("done",)


@pytest.mark.parametrize("times", [1, 3])
def test_a_process_that_stands_still_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """As one that waits for a lock which another thread held at the fork."""
    monkeypatch.setattr("onnxbisect_backends.probing.forked._STILL", 0.5)

    def work() -> Established:
        begun = len(list(tmp_path.iterdir()))
        (tmp_path / str(begun)).touch()
        if begun < times:
            time.sleep(30)
        return nothing()

    if times == 1:
        assert forked(work, ALLOWED).notes == ("done",)
        return
    with pytest.raises(ExceededError, match=r"^stood still for 0 s$"):
        forked(work, ALLOWED)
    assert len(list(tmp_path.iterdir())) == times


class Waits:
    """As a generator that waits for threads where it is closed: the forked process has none of them."""

    def __init__(self) -> None:
        self.itself, self.process = self, os.getpid()

    def __del__(self) -> None:
        if os.getpid() != self.process:
            time.sleep(30)


def test_what_this_process_left_is_not_closed_in_the_forked_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxbisect_backends.probing.forked._STILL", 0.5)

    def work() -> Established:
        gc.collect()
        return nothing()

    gc.disable()  # what is left stays until the process is forked
    try:
        Waits()
        assert forked(work, ALLOWED).notes == ("done",)
    finally:
        gc.enable()


def children() -> str:
    """Those of this process, and those that have ended and were not waited for."""
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text()


@pytest.mark.parametrize(
    ("work", "how"),
    [(hang, "took more than 1 s"), (fill, "took more than 1024 MB of memory"), (crash, "was killed by SIGSEGV")],
)
def test_work_that_does_not_end_well(work: Callable[[], Established], how: str) -> None:
    before = children()  # servers of other tests
    began = time.monotonic()
    with pytest.raises(ExceededError) as caught:
        forked(work, ALLOWED)
    assert str(caught.value) == how
    assert time.monotonic() - began < 10
    assert children() == before


def test_what_this_process_holds_is_not_the_models() -> None:
    """A notebook may hold a model of torch that is larger than what a small ONNX file is allowed."""
    held = np.ones(3 << 29, dtype=np.uint8)
    allowed = replace(ALLOWED, seconds=10)  # memory that is touched first takes a second on some machines

    def work() -> Established:
        np.ones(1 << 29, dtype=np.uint8)
        return nothing()

    assert forked(work, allowed).notes == ("done",)
    with pytest.raises(ExceededError, match=r"^took more than 1024 MB of memory$"):
        forked(fill, allowed)
    del held


def test_a_model_that_there_is_no_memory_to_write_takes_too_much() -> None:
    tensor = onnx.TensorProto(data_type=onnx.TensorProto.UINT8, dims=[600 << 20], raw_data=bytes(600 << 20))
    allowed = replace(ALLOWED, seconds=10)  # as above

    def work() -> Established:
        tensor.SerializeToString()
        return nothing()

    with pytest.raises(ExceededError, match=r"^took more than 1024 MB of memory$"):
        forked(work, allowed)


def test_work_that_waits_for_a_processor_is_waited_for() -> None:
    assert forked(starve, ALLOWED).notes == ("done",)


def test_a_refusal_stays_one() -> None:
    def refuse() -> Established:
        raise ModelError("It has no nodes.")

    with pytest.raises(ModelError, match=r"It has no nodes\."):
        forked(refuse, ALLOWED)


def test_a_fault_stays_one() -> None:
    def fail() -> Established:
        raise ZeroDivisionError

    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        forked(fail, ALLOWED)


@pytest.mark.long
@pytest.mark.parametrize(
    ("count", "trips", "body", "why"),
    [
        ('""', 1, "Relu (a)", "(takes too long here)"),
        ("n", 60, "Concat <axis = 0> (a, a)", "(takes too much memory)"),
    ],
    ids=["endless", "growing"],
)
def test_a_loop_is_left_out_and_the_rest_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: str, trips: int, body: str, why: str
) -> None:
    monkeypatch.setattr(model_module, "_SECONDS", 8.0)
    monkeypatch.setattr(model_module, "_MEMORY", 768 << 20)
    began = time.monotonic()
    model = taken(tmp_path, LOOP.format(count=count, trips=trips, body=body))
    # its own seconds count, and five times as many of the clock where the machine is busy
    assert time.monotonic() - began < 5 * 8 + 20
    assert f"onnxruntime does not run 'Loop' on made-up inputs {why}" in " ".join(model.notes)
    assert [dim.dim_value for dim in model.types["z"].tensor_type.shape.dim] == [6]
    assert model.known["s"].tolist() == [6]
    assert [name.split("_")[0] for name in model.costly] == ["Loop"]
    z = onnx.ValueInfoProto(name="z", type=model.types["z"])
    assert next(TensorValues(model).samples([z]))["z"].shape == (6,)
    began = time.monotonic()
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 3])
    assert next(TensorValues(model).samples([y]))["y"].shape == (2, 3)
    assert time.monotonic() - began < 2  # made up: the loop does not run again for samples


def test_inference_without_an_end_is_said_of_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(*_: object, **__: object) -> None:
        hang()

    monkeypatch.setattr(model_module, "_SECONDS", 1.0)
    monkeypatch.setattr("onnxbisect.model.shapes._Establish.facts", endless)
    with pytest.raises(ModelError, match=r"Shape inference of the model, by onnx, took more than"):
        taken(tmp_path, LOOP.format(count="n", trips=1, body="Relu (a)"))


def test_what_only_running_brings_down_is_inferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxbisect.model.run._Attempt.run", lambda *_: os.abort())
    model = taken(tmp_path, LOOP.format(count="n", trips=1, body="Relu (a)"))
    assert any("was killed by SIGABRT, so it was not run" in note for note in model.notes)
    assert [dim.dim_value for dim in model.types["s"].tensor_type.shape.dim] == [1]
