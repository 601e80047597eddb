"""Every text of a compiler's that we know is read as what it is: `texts/` has them, word for word."""

import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from onnxbisect.json_form import from_json, to_json
from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect_backends.commands.toml_backend import TomlBackend
from onnxbisect_backends.contract import Backend, Outcome
from onnxbisect_backends.logs import Pattern, read_log
from onnxbisect_backends.registry import make
from onnxbisect_backends.vendors import ort, pulsar2, qnn, rknn, tpu_mlir
from onnxbisect_backends.vendors.tpu_mlir.log import unfolded

FILES = {path.stem: tomllib.loads(path.read_text()) for path in Path(__file__).with_name("texts").glob("*.toml")}

#: Those of the backends that are Python.
PATTERNS: dict[str, Sequence[Pattern]] = {
    "onnxruntime": ort.PATTERNS,
    "pulsar2": pulsar2.PATTERNS,
    "qnn": qnn.PATTERNS,
    "rknn": rknn.PATTERNS,
    "tpu-mlir": tpu_mlir.PATTERNS,
}

#: Texts of failures at the last count. One more is good news; one less is a text that nobody reads any longer.
FAILURES = 186


def cases(key: str) -> list[Any]:
    return [
        pytest.param(name, case, id=f"{name}-{number}-{case['text'].split()[0][:30]}")
        for name, file in sorted(FILES.items())
        for number, case in enumerate(file.get(key, ()))
    ]


def backend_of(name: str) -> Backend:
    return make(name, FILES[name].get("options", {}))


def patterns_of(backend: Backend) -> Sequence[Pattern]:
    if isinstance(backend, TomlBackend):
        return backend.patterns
    return PATTERNS[backend.name]


@pytest.mark.parametrize(("name", "case"), cases("failures"))
def test_a_text_is_read_as_what_it_is(name: str, case: dict[str, Any]) -> None:
    backend = backend_of(name)
    exit_code = case.get("exit_code", FILES[name].get("exit_code", 1))

    matched = read_log(case["text"], patterns_of(backend)).kind
    verdict = backend.judge(Outcome(exit_code=exit_code, log=case["text"]))

    status = Status(case.get("status", Status.FAIL))
    assert matched is not None or status is Status.UNRESOLVED, "no pattern matches"
    assert (verdict.status, verdict.kind) == (status, Kind(case["kind"]) if "kind" in case else None)
    assert set(verdict.hints.ops) == set(case.get("ops", ()))
    assert set(verdict.hints.nodes) == set(case.get("nodes", ()))
    assert verdict.message == case.get("message", verdict.message)
    if status is Status.FAIL:
        assert set(verdict.hints.tensors) == set(case.get("tensors", ()))


@pytest.mark.parametrize(("name", "case"), cases("harmless"))
def test_what_good_compiles_print_is_no_complaint(name: str, case: dict[str, Any]) -> None:
    reading = read_log(case["text"], patterns_of(backend_of(name)))

    assert (reading.kind, reading.refused, bool(reading.hints)) == (None, False, False)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(FILES))
@pytest.mark.parametrize(
    "log",
    ["x" * (1 << 19), "a.b." * (1 << 17), "\n" * (1 << 19), '%1 = "top.Abs"(%0) ' * (1 << 13)],
    ids=["word", "dots", "empty", "ops"],
)
def test_a_log_of_any_shape_is_read_in_time_that_grows_with_it(name: str, log: str) -> None:
    backend = backend_of(name)
    began = time.process_time()

    backend.judge(Outcome(exit_code=1, log=log))

    assert time.process_time() - began < 1.5


def test_no_text_got_lost() -> None:
    assert len(cases("failures")) >= FAILURES


def test_tpu_mlir_says_where_it_has_not_folded() -> None:
    (log,) = [it["text"] for it in FILES["tpu-mlir"]["failures"] if "'Mod', 'Size'" in it["text"]]
    verdict = backend_of("tpu-mlir").judge(Outcome(exit_code=1, log=log))
    assert verdict.hints.unfolded == ("WARNING: ConstantFolding failed.", "WARNING: onnxsim opt failed.")
    assert from_json(to_json(verdict), Verdict) == verdict
    assert unfolded("INFO : ConstantFolding finished") == ()
