"""The public library, as programs use it: from threads and event loops, with compilers of their own."""

import asyncio
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_bisect
from onnx_bisect import (
    Cancellation,
    CulpritKind,
    Ending,
    Event,
    Kind,
    NoReproducerError,
    OnnxBisectError,
    OptionError,
    PlanMade,
    ProbeAnswered,
    ProbeStarted,
    SearchEnded,
    SearchStarted,
    Status,
    Verdict,
)
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.session import OWN_FILE
from onnxbisect_backends.commands.any_command import CommandBackend
from onnxbisect_backends.contract import Description, Limits, Outcome

ROOT = Path(__file__).parents[2]
C2 = ROOT / "tests" / "cases" / "c2_chain100_3bad.onnx"
TRUTH = [("n17_Asinh",), ("n52_Cosh",), ("n88_Atan",)]
DECODER = ROOT / "examples" / "sam_decoder.onnx"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(tmp_path / "cache"))


def compiles(path: Path) -> bool:
    return not {node.op_type for node in onnx.load(path).graph.node} & {"Asinh", "Cosh", "Atan"}


def nodes(result: onnx_bisect.Result) -> list[tuple[str, ...]]:
    return [culprit.nodes for culprit in result.culprits]


def test_a_function_is_a_compiler(tmp_path: Path) -> None:
    result = onnx_bisect.diagnose(C2, backend=compiles)
    assert result.verdict is Status.FAIL
    assert nodes(result) == TRUTH
    assert [culprit.kind for culprit in result.culprits] == [CulpritKind.SINGLE] * 3
    assert sorted(name for cause in result.causes for name in cause.culprits) == sorted(it.id for it in result.culprits)
    assert result.certificate.proven
    assert result.ending is Ending.FINISHED
    assert result.target.backend == "compiles"
    for culprit in result.culprits:
        saved = culprit.save(tmp_path / "culprit.onnx")
        assert [node.op_type for node in onnx.load(saved).graph.node] == list(culprit.ops)
        assert not compiles(saved)


def test_a_culprit_of_many_nodes_has_a_file_and_is_not_compiled_again_for_it(tmp_path: Path) -> None:
    most = 70
    result = onnx_bisect.diagnose(C2, backend=lambda path: len(onnx.load(path).graph.node) <= most)
    (culprit,) = result.culprits
    assert culprit.kind is CulpritKind.CAPACITY
    assert len(onnx.load(culprit.save(tmp_path / "culprit.onnx")).graph.node) == len(culprit.nodes) > most
    assert not any(OWN_FILE in probe["why"] for probe in result.report["probes"])


def test_a_function_s_answers_are_not_kept_for_the_next_one() -> None:
    onnx_bisect.diagnose(C2, backend=compiles)
    assert onnx_bisect.diagnose(C2, backend=lambda path: True).verdict is Status.PASS


def test_a_function_may_say_more_than_yes_or_no() -> None:
    def verdict(path: Path) -> Verdict:
        if compiles(path):
            return Verdict(status=Status.PASS)
        return Verdict(status=Status.FAIL, kind=Kind.CRASH, message=f"segmentation fault in {path}")

    result = onnx_bisect.diagnose(C2, backend=verdict)
    assert nodes(result) == TRUTH
    assert {culprit.failure for culprit in result.culprits} == {Kind.CRASH}
    assert all(culprit.message.startswith("segmentation fault in /") for culprit in result.culprits)
    # one failure for the search, whatever the file is called
    assert {culprit["fingerprint"] for culprit in result.report["culprits"]} == {"segmentation fault in <name>"}
    assert result.stats.compile_seconds > 0


def test_a_function_that_raises_gives_no_answer() -> None:
    def broken(path: Path) -> bool:
        raise RuntimeError("no licence")

    result = onnx_bisect.diagnose(C2, backend=broken)
    assert result.verdict is Status.UNRESOLVED
    assert "no licence" in result.to_json()


def test_a_function_that_answers_nothing_is_a_mistake() -> None:
    with pytest.raises(OptionError, match="returned None"):
        onnx_bisect.diagnose(C2, backend=lambda path: None)  # type: ignore[arg-type, return-value]


def test_what_is_no_backend_is_a_mistake() -> None:
    with pytest.raises(OptionError, match="42 is no backend"):
        onnx_bisect.diagnose(C2, backend=42)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="options are for"):
        onnx_bisect.diagnose(C2, backend=compiles, options={"a": "b"})
    with pytest.raises(OptionError, match="jobs"):
        onnx_bisect.diagnose(C2, backend=compiles, jobs=0)


def test_a_list_as_an_option_is_the_list_of_the_command_line() -> None:
    listed = onnx_bisect.diagnose(C2, backend="whitelist", options={"deny": ["Asinh", "Cosh", "Atan"]}, cache=False)
    typed = onnx_bisect.diagnose(C2, backend="whitelist", options={"deny": "Asinh,Cosh,Atan"}, cache=False)
    assert listed.verdict is Status.FAIL
    assert listed.headline == typed.headline


def test_it_prints_nothing_and_leaves_signals_alone(capfd: pytest.CaptureFixture[str]) -> None:
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    during = []
    onnx_bisect.diagnose(
        DECODER,
        backend="whitelist",
        options={"profile": "edgesam"},
        progress=lambda event: during.append(signal.getsignal(signal.SIGINT)),
    )
    assert capfd.readouterr() == ("", "")
    assert set(during) == {before[signal.SIGINT]}
    assert {number: signal.getsignal(number) for number in signal.valid_signals()} == before


def test_events_tell_the_search_from_beginning_to_end() -> None:
    events: list[Event] = []
    caller = threading.get_ident()

    def told(event: Event) -> None:
        assert threading.get_ident() == caller
        events.append(event)

    result = onnx_bisect.diagnose(C2, backend=compiles, jobs=2, progress=told)
    first, *_, last = events
    assert isinstance(first, SearchStarted)
    assert first.units == 100
    assert last == SearchEnded(ending=Ending.FINISHED)
    started = [event for event in events if isinstance(event, ProbeStarted)]
    answered = [event for event in events if isinstance(event, ProbeAnswered)]
    assert len(started) == result.stats.compiler_calls
    assert [event.probe for event in answered] == [probe["id"] for probe in result.report["probes"]]
    plan = [event for event in events if isinstance(event, PlanMade)][-1]
    assert [found.ops for found in plan.found] == [("Asinh",), ("Cosh",), ("Atan",)]
    assert any(str(event).startswith("fail (error): the whole model (100 units") for event in answered)
    assert all(str(event) and "\n" not in str(event) for event in events)


def test_what_a_callback_raises_ends_the_search_and_comes_out() -> None:
    def told(event: Event) -> None:
        if isinstance(event, ProbeAnswered):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        onnx_bisect.diagnose(C2, backend=compiles, jobs=2, progress=told)


def test_four_threads_at_a_time() -> None:
    def one(number: int) -> onnx_bisect.Result:
        if number % 2:
            return onnx_bisect.diagnose(C2, backend=compiles, jobs=2)
        return onnx_bisect.diagnose(DECODER, backend="whitelist", options={"profile": "edgesam"}, cache=False)

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(one, range(8)))
    assert [nodes(result) for result in results[1::2]] == [TRUTH] * 4
    assert len({str(result.report["culprits"]) for result in results[::2]}) == 1
    assert len(results[0].culprits) == 7


def test_in_a_running_event_loop() -> None:
    async def main() -> tuple[onnx_bisect.Result, onnx_bisect.Result, int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.01)

        ticking = asyncio.create_task(tick())
        beside = await asyncio.to_thread(onnx_bisect.diagnose, C2, backend=compiles)
        ticking.cancel()
        return beside, onnx_bisect.diagnose(C2, backend=compiles), ticks

    with ThreadPoolExecutor(1) as pool:  # Playwright keeps a loop running in this thread after tests of the site
        beside, inside, ticks = pool.submit(asyncio.run, main()).result()
    assert nodes(beside) == nodes(inside) == TRUTH
    assert ticks > 1


def hanging(folder: Path, name: str) -> CommandBackend:
    """Answers about the whole model, and hangs on everything else until a file is there."""
    script = folder / f"{name}.py"
    script.write_text(
        "import sys, time, onnx\nfrom pathlib import Path\n"
        "nodes = onnx.load(sys.argv[1]).graph.node\n"
        "started, release = Path(sys.argv[2]), Path(sys.argv[3])\n"
        "if len(nodes) < 100:\n    started.touch()\n    while not release.exists():\n        time.sleep(0.05)\n"
        "sys.exit(bool({'Asinh', 'Cosh', 'Atan'} & {node.op_type for node in nodes}))\n"
    )
    started, release = folder / f"{name}.started", folder / f"{name}.release"
    return CommandBackend([sys.executable, str(script), "{model}", str(started), str(release)])


def test_a_search_is_cancelled_without_the_one_beside_it(tmp_path: Path) -> None:
    cancellation = Cancellation()
    with ThreadPoolExecutor(2) as pool:
        ended = pool.submit(
            onnx_bisect.diagnose, C2, backend=hanging(tmp_path, "ended"), jobs=2, cancellation=cancellation
        )
        kept = pool.submit(onnx_bisect.diagnose, C2, backend=hanging(tmp_path, "kept"))
        try:
            give_up = time.monotonic() + 60
            while not ((tmp_path / "ended.started").exists() and (tmp_path / "kept.started").exists()):
                assert time.monotonic() < give_up
                time.sleep(0.05)
            cancellation.cancel()
            result = ended.result(timeout=30)
        finally:
            cancellation.cancel()
            (tmp_path / "ended.release").touch()
            (tmp_path / "kept.release").touch()
        assert nodes(kept.result(timeout=60)) == TRUTH
        assert not any(probe["verdict"] == "unresolved" for probe in kept.result().report["probes"])
    assert result.ending is Ending.CANCELLED
    assert result.verdict is Status.FAIL
    assert not result.certificate.proven
    assert [probe["size"] for probe in result.report["probes"]] == [100]


def test_what_is_cancelled_before_asks_nothing() -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    result = onnx_bisect.diagnose(C2, backend=compiles, cancellation=cancellation)
    assert (result.ending, result.stats.compiler_calls) == (Ending.CANCELLED, 0)


def test_a_function_that_runs_on_is_left_alone() -> None:
    release = threading.Event()
    cancellation = Cancellation()

    def slow(path: Path) -> bool:
        cancellation.cancel()
        return release.wait(60)

    try:
        result = onnx_bisect.diagnose(C2, backend=slow, cancellation=cancellation)
    finally:
        release.set()
    assert result.ending is Ending.CANCELLED
    assert result.report["probes"] == []


def test_a_culprit_that_was_not_seen_to_fail_has_no_file(tmp_path: Path) -> None:
    """The budget ended the search before."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy")
    ops = [
        helper.make_node("Relu", ["x"], ["a"], name="n0"),
        helper.make_node("Sinh", ["a"], ["b"], name="n1"),
        helper.make_node("Cosh", ["b"], ["y"], name="n2"),
    ]
    path = tmp_path / "small.onnx"
    graph = helper.make_graph(ops, "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)

    def no_sinh(probe: Path) -> bool:
        return "Sinh" not in {node.op_type for node in onnx.load(probe).graph.node}

    result = onnx_bisect.diagnose(path, backend=no_sinh, budget_calls=1)
    assert result.ending is Ending.CALLS
    for culprit in result.culprits:
        with pytest.raises(NoReproducerError):
            culprit.save(tmp_path / "culprit.onnx")
    result.write(tmp_path / "out")
    assert not list((tmp_path / "out").rglob("*.onnx"))


def test_a_culprit_s_weights_go_along(tmp_path: Path) -> None:
    """They lie beside the file, under its name, and are those that the model has beside it."""
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    out.mkdir()
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64]) for name in "xy")
    weight = numpy_helper.from_array(np.full((64, 64), 0.5, np.float32), "w")
    ops = [
        helper.make_node("Relu", ["x"], ["a"], name="n0"),
        helper.make_node("MatMul", ["a", "w"], ["y"], name="n1"),
    ]
    model = helper.make_model(
        helper.make_graph(ops, "g", [x], [y], [weight]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.save(model, source / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0)

    def no_matmul(path: Path) -> bool:
        return "MatMul" not in {node.op_type for node in onnx.load(path).graph.node}

    (culprit,) = onnx_bisect.diagnose(source / "m.onnx", backend=no_matmul).culprits
    saved = culprit.save(out / "mine.onnx")
    assert sorted(path.name for path in out.iterdir()) == ["mine.data", "mine.onnx"]
    loaded = onnx.load(saved)
    assert (numpy_helper.to_array(loaded.graph.initializer[0]) == 0.5).all()


class RefusesSinhAtTheEnd:
    """A compiler that refuses Sinh only where the model ends with it, and otherwise guards the ends of probes."""

    name = "ends"
    options: dict[str, object] = {}  # noqa: RUF012

    def describe(self) -> Description:
        return Description(tool="ends", version="1", probe_format=ProbeFormat(covered=("Sinh",)))

    def check(self) -> str | None:
        return None

    def compile(self, probe: Path, workdir: Path, limits: Limits) -> Outcome:
        graph = onnx.load(probe).graph
        ends = {value.name for value in graph.output}
        return Outcome(exit_code=int(any(node.op_type == "Sinh" and ends & {*node.output} for node in graph.node)))

    def judge(self, outcome: Outcome) -> Verdict:
        return Verdict(status=Status.FAIL if outcome.exit_code else Status.PASS, seconds=outcome.seconds)


def test_a_report_counts_the_variants_that_were_searched(tmp_path: Path) -> None:
    """To this target the Sinh at the model's end is another question than the one in the middle."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy")
    tensors = ["x", "a", "b", "c", "y"]
    ops = [
        helper.make_node(op, [source], [sink], name=f"n{number}")
        for number, (op, source, sink) in enumerate(
            zip(["Relu", "Sinh", "Relu", "Sinh"], tensors, tensors[1:], strict=False)
        )
    ]
    path = tmp_path / "ends.onnx"
    graph = helper.make_graph(ops, "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    result = onnx_bisect.diagnose(path, backend=RefusesSinhAtTheEnd())
    assert nodes(result) == [("n3",)]
    assert result.report["model"]["variants"] == 3
    assert {row["op"]: (row["variants"], row["verdict"]) for row in result.report["op_table"]} == {
        "Sinh": (2, "mixed"),
        "Relu": (1, "pass"),
    }
    assert len({*onnx_bisect.inspect(path).ops}) == 2  # of the model alone, whatever the target


def test_a_model_that_is_none_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "no.onnx").write_bytes(b"no model")
    with pytest.raises(onnx_bisect.ModelError):
        onnx_bisect.diagnose(tmp_path / "no.onnx", backend=compiles)
    assert issubclass(onnx_bisect.ModelError, OnnxBisectError)


def test_an_argument_that_submit_does_not_have_is_a_mistake() -> None:
    mistyped: Any = {"budget_call": 3}
    with onnx_bisect.Client("http://127.0.0.1:9", "") as client, pytest.raises(TypeError, match="'budget_call'"):
        client.submit_parts([], **mistyped)


def test_every_name_of_the_library_is_there() -> None:
    assert [name for name in onnx_bisect.__all__ if not hasattr(onnx_bisect, name)] == []


def test_a_compiler_that_says_the_same_of_everything_is_not_asked_on() -> None:
    calls = []

    def compile_it(path: Path) -> Verdict:
        calls.append(path)
        return Verdict(status=Status.UNRESOLVED, kind=Kind.ERROR, message="the licence has expired")

    result = onnx_bisect.diagnose(C2, backend=compile_it, files=False)

    assert result.verdict is Status.UNRESOLVED
    assert result.headline.endswith(": the licence has expired")
    assert any(
        "every probe the same error: the licence has expired" in sentence for sentence in result.certificate.unknown
    )
    assert len(calls) <= 4


def test_a_part_that_gets_no_answer_does_not_end_the_search() -> None:
    """The words are the same every time, and of one place."""

    def compile_it(path: Path) -> Verdict:
        ops = {node.op_type for node in onnx.load(path).graph.node}
        if "Asinh" in ops:
            return Verdict(status=Status.UNRESOLVED, kind=Kind.ERROR, message="the licence has expired")
        return Verdict(status=Status.FAIL if ops & {"Cosh", "Atan"} else Status.PASS, kind=None)

    result = onnx_bisect.diagnose(C2, backend=compile_it, files=False)

    assert {culprit.nodes for culprit in result.culprits} >= {("n52_Cosh",), ("n88_Atan",)}


def test_what_is_no_token_is_not_repeated() -> None:
    onnx_bisect.Client("http://127.0.0.1:9", "obk_1\n").close()
    for token in ("obk_\N{LATIN SMALL LETTER E WITH ACUTE}", "obk_1\nobk_2"):
        with pytest.raises(
            onnx_bisect.OptionError, match=r"^The token has characters that no token has: give it as .* printed it\.$"
        ):
            onnx_bisect.Client("http://127.0.0.1:9", token)
