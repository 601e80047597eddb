"""Hosts die of models, of their worker and of being told to; nobody waits in vain and nothing is left of them."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxbisect.drawing.network import read_network
from onnxbisect.errors import ModelError, OnnxBisectError
from onnxbisect_db.errors import DamagedFileError
from onnxbisect_worker.context import machine_fault
from onnxbisect_worker.model_processes.confinement import environment
from onnxbisect_worker.model_processes.pool import ModelPool, processes_folder
from onnxbisect_worker.model_requests.layout import hold
from onnxbisect_worker.model_requests.protocol import (
    Case,
    ModelProcess,
    OtherVersionError,
    ProcessKilledError,
    ProcessLostError,
    ReportOutcome,
    ToolBrokenError,
)
from support import TESTS
from support.worker.hosted import MODELS, NOTHING, Place
from support.worker.process_tree import children, gone, hosts_of, keepers_of, within
from support.worker.small_models import model, relus

#: Says where it runs, then does not end by itself; a child of its own, which left its session, does not either.
SLEEPS = """
name = "sleeps"
summary = "Does not end."
command = ["sh", "-c", "setsid sleep 1000 & echo $! $$ > {here}/writing; mv {here}/writing {here}/pids; sleep 1000", \
"{model}"]
"""


def toml(folder: Path, text: str) -> str:
    path = folder / "compiler.toml"
    path.write_text(text)
    return str(path)


def says(command: str, more: str = "") -> str:
    """A compiler that fails with what a shell command prints."""
    return f"""
name = "says"
summary = "Fails with what a command prints."
command = ["sh", "-c", "{command}; exit 1", "{{model}}"]
{more}
"""


def field(number: int, content: bytes) -> bytes:
    """A protobuf field of bytes: Python's protobuf itself refuses to build what is nested too deeply."""
    size, head = len(content), bytearray([number << 3 | 2])
    while size > 127:
        head.append(size & 127 | 128)
        size >>= 7
    return bytes([*head, size]) + content


def nested(depth: int) -> bytes:
    out = field(12, helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4]).SerializeToString())
    leaf = node = helper.make_node("Relu", ["x"], ["y"]).SerializeToString()
    for _ in range(depth):
        branches = b""
        for name, inside in ((b"then_branch", node), (b"else_branch", leaf)):
            graph = field(1, inside) + field(2, b"branch") + out
            branches += field(5, field(1, name) + field(6, graph) + b"\xa0\x01\x05")
        node = field(1, b"c") + field(2, b"y") + field(4, b"If") + branches
    raw = model(tensors=(numpy_helper.from_array(np.array(True), "c"),))
    return raw + field(7, field(1, node))


def claiming(elements: int) -> bytes:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[elements], raw_data=b"1234")
    return model(helper.make_node("Add", ["x", "w"], ["y"]), tensors=(tensor,))


def huge(elements: int) -> bytes:
    shape = numpy_helper.from_array(np.array([elements], np.int64), "s")
    value = numpy_helper.from_array(np.ones(1, np.float32))
    nodes = (
        helper.make_node("ConstantOfShape", ["s"], ["c"], value=value),
        helper.make_node("ReduceSum", ["c"], ["r"], keepdims=0),
        helper.make_node("Add", ["x", "r"], ["y"]),
    )
    return model(*nodes, tensors=(shape,))


def in_model_processes(statement: str) -> str:
    """What `sitecustomize` does to run a statement in every model process, which is forked by what the server forks."""
    return (
        "forks = 0\n"
        "def forked():\n"
        "    global forks\n"
        "    forks += 1\n"
        "    if forks == 2:\n"
        f"        {statement}\n"
        "if 'onnxbisect_worker.model_processes.server' in sys.orig_argv:\n"
        "    os.register_at_fork(after_in_child=forked)\n"
    )


def the_host() -> int:
    """The process of the only host of this process."""
    (pid,) = hosts_of(os.getpid())
    return pid


def test_what_is_no_model_for_us_ends_in_a_sentence(tmp_path: Path) -> None:
    place = Place.at(tmp_path, nodes=300)
    with place.hosts() as hosts:
        for raw, sentence in (
            (relus(301), "model.onnx has more than 300 nodes, which is the limit here."),
            (nested(60), "model.onnx is not an ONNX model: its bytes are no protobuf message. Export it again."),
            (os.urandom(4096), "model.onnx is not an ONNX model: its bytes are no protobuf message. Export it again."),
            (b"", "model.onnx is empty. Export or download it again."),
        ):
            with hosts.acquire(place.case(raw)) as host, pytest.raises(ModelError) as refused:
                host.prepare()
            assert str(refused.value) == sentence


def test_a_bomb_ends_in_an_answer(tmp_path: Path) -> None:
    """Which one is the engine's to say; the host goes on, or says what it died of."""
    place = Place.at(tmp_path, model_memory=1 << 30, model_seconds=60)
    with place.hosts() as hosts:
        for raw in (claiming(1 << 40), huge(1 << 38), nested(20)):
            with hosts.acquire(place.case(raw)) as host:
                try:
                    everything = host.prepare().universe.everything
                    assert host.draw()
                    assert host.key(everything)
                    assert host.ask(everything, seconds_left=None).answer
                    written = host.report(NOTHING, tmp_path, logs={})
                    assert isinstance(written, ReportOutcome)
                    assert written.document["units"]
                except OnnxBisectError as error:
                    assert str(error)[-1] in ".!?"  # noqa: PT017 - either is an answer
        with hosts.acquire(place.case(relus(2))) as host:
            assert host.prepare().universe.op == ("Relu", "Relu")


def test_a_host_draws_its_model(tmp_path: Path) -> None:
    place = Place.at(tmp_path)
    with place.hosts() as hosts, hosts.acquire(place.case(relus(3))) as host:
        host.prepare()
        drawn = read_network(BytesIO(host.draw().encode()))
    assert ([*drawn.ops], [[*link] for link in drawn.links]) == (["Relu"] * 3, [[0, 1, 0], [1, 2, 1]])


def test_a_model_of_too_many_nodes_inside_of_bodies_is_refused(tmp_path: Path) -> None:
    place = Place.at(tmp_path, nodes=20)
    with (
        place.hosts() as hosts,
        hosts.acquire(place.case(nested(20))) as host,
        pytest.raises(ModelError, match="more than 20 nodes"),
    ):
        host.prepare()


def test_data_in_a_file_of_the_models_own_name_is_refused(tmp_path: Path) -> None:
    place = Place.at(tmp_path / "data")
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="model.onnx")
    raw = model(helper.make_node("Add", ["x", "w"], ["y"]), tensors=(tensor,))
    files = {"model.onnx": place.files.put([bytes(16)]).sha256}
    refused = pytest.raises(ModelError, match=r"A data file cannot lie at 'model\.onnx'")
    with place.hosts() as hosts, hosts.acquire(place.case(raw, files=files)) as host, refused:
        host.prepare()


def test_a_model_cannot_say_that_its_data_lies_in_a_strangers_file(tmp_path: Path) -> None:
    place = Place.at(tmp_path)
    secret = place.files.put([b"\1\2\3\4" * 4])
    raw, number = b"", 0
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    entry = tensor.external_data.add(key="location", value=secret.sha256[2:])
    case = None
    while case is None or case.onnx[:2] != secret.sha256[:2]:  # beside it, as both are stored
        number += 1
        add = helper.make_node("Add", ["x", "w"], ["y"], doc_string=str(number))
        raw = model(add, tensors=(tensor,))
        case = place.case(raw)
    with place.hosts() as hosts, hosts.acquire(case) as host:
        with pytest.raises(ModelError, match="is missing") as refused:
            host.prepare()
        assert entry.value in str(refused.value)
        assert str(tmp_path) not in str(refused.value)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_host_that_dies_is_told_of_and_replaced(number: signal.Signals, tmp_path: Path) -> None:
    place = Place.at(tmp_path)
    case = place.case(relus(2), toml(tmp_path, SLEEPS))
    with place.hosts() as hosts:
        with hosts.acquire(case) as host:
            prepared = host.prepare()

            def die() -> None:
                assert within(60, (tmp_path / "pids").exists)
                os.kill(the_host(), number)

            Thread(target=die, daemon=True).start()
            with pytest.raises(ProcessLostError, match=f"was killed by {number.name}") as lost:
                host.ask(0b11, seconds_left=None)
            assert isinstance(lost.value, ProcessKilledError) == (number is not signal.SIGSEGV)
            with pytest.raises(ProcessLostError):
                host.key(1)
        assert within(30, lambda: all(gone(int(pid)) for pid in (tmp_path / "pids").read_text().split()))
        stored = place.files.put([prepared.to_bytes()]).sha256
        with hosts.acquire(replace(case, prepared=stored)) as host:
            assert host.key(0b11) != host.key(0b1)
    assert list(processes_folder(place.settings).iterdir()) == []


def test_a_kill_ends_who_waits_and_the_compile_with_all_its_processes(tmp_path: Path) -> None:
    place = Place.at(tmp_path)
    lost: list[str] = []

    def ask(host: ModelProcess) -> None:
        with pytest.raises(ProcessLostError) as error:
            host.ask(0b11, seconds_left=None)
        lost.append(str(error.value))

    with place.hosts() as hosts:
        with hosts.acquire(place.case(relus(2), toml(tmp_path, SLEEPS))) as host:
            host.prepare()
            waiting = Thread(target=ask, args=(host,), daemon=True)
            waiting.start()
            assert within(60, (tmp_path / "pids").exists)
            host.kill()
            waiting.join(30)
            assert lost == ["The process that had the model was told to end."]
            assert hosts_of(os.getpid()) == []
            with pytest.raises(ProcessLostError):
                host.key(1)
        assert within(30, lambda: all(gone(int(pid)) for pid in (tmp_path / "pids").read_text().split()))
        assert list(processes_folder(place.settings).iterdir()) == []


def test_nothing_outlives_a_worker_that_is_killed(tmp_path: Path) -> None:
    place = Place.at(tmp_path)
    backend = toml(tmp_path, SLEEPS)
    place.case(relus(2), backend)  # stored
    script = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from support.worker.hosted import Place
place = Place.at(Path(sys.argv[2]))
with place.hosts() as hosts, hosts.acquire(place.case(Path(sys.argv[3]).read_bytes(), sys.argv[4])) as host:
    host.prepare()
    host.ask(0b11, seconds_left=None)
"""
    (tmp_path / "model.onnx").write_bytes(relus(2))
    words = [str(TESTS), str(tmp_path), str(tmp_path / "model.onnx"), backend]
    worker = subprocess.Popen([sys.executable, "-c", script, *words])
    assert within(120, (tmp_path / "pids").exists)
    pids = [*children(worker.pid), *keepers_of(worker.pid), *hosts_of(worker.pid)]
    assert len(pids) == 3
    worker.kill()
    worker.wait()
    pids += (int(pid) for pid in (tmp_path / "pids").read_text().split())
    assert within(30, lambda: all(gone(pid) for pid in pids))
    assert within(30, lambda: list(processes_folder(place.settings).iterdir()) == [])


def test_what_killed_workers_left_is_cleared_away_but_not_what_is_in_use(tmp_path: Path) -> None:
    place = Place.at(tmp_path)
    left, used = (processes_folder(place.settings) / name for name in ("left", "used"))
    os.close(hold(left))
    (left / "model").mkdir()
    lock = hold(used)
    with place.hosts() as hosts, hosts.acquire(place.case(relus(2))):
        assert not left.exists()
        assert used.exists()
    os.close(lock)


def test_a_model_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    place = Place.at(tmp_path, model_seconds=0.2)
    with (
        place.hosts() as hosts,
        hosts.acquire(place.case(MODELS / "real" / "bert_base12_h256_dyn__ts17.onnx")) as host,
        pytest.raises(ProcessLostError, match=r"given up after 0\.2 seconds.*ONNXBISECT_MODEL_SECONDS"),
    ):
        host.prepare()


def test_a_compile_may_take_longer_than_reading_and_has_its_own_memory(tmp_path: Path) -> None:
    place = Place.at(tmp_path, model_seconds=5, model_memory=1 << 30)
    backend = toml(tmp_path, says("sleep 6; echo error: limit is $(ulimit -d)"))
    with place.hosts() as hosts, hosts.acquire(place.case(relus(2), backend)) as host:
        host.prepare()
        answer = host.ask(0b11, seconds_left=None).answer
        assert answer is not None
        assert answer.verdict.message == "error: limit is unlimited"


def test_a_model_that_takes_too_much_memory_is_given_up(tmp_path: Path) -> None:
    weights = numpy_helper.from_array(np.ones(1 << 26, np.float32), "w")
    raw = model(helper.make_node("Add", ["x", "w"], ["y"]), tensors=(weights,))
    place = Place.at(tmp_path, model_memory=300 << 20)
    with place.hosts() as hosts, hosts.acquire(place.case(raw)) as host:
        with pytest.raises(ProcessLostError, match=r"more than the 300 MB.*ONNXBISECT_MODEL_MEMORY"):
            host.prepare()
        assert hosts_of(os.getpid()) == []


def test_the_orders_seconds_bound_a_compile_and_the_budgets_end_is_no_answer(tmp_path: Path) -> None:
    place = Place.at(tmp_path, compile_seconds=0.5)
    with place.hosts() as hosts, hosts.acquire(place.case(relus(2), toml(tmp_path, SLEEPS))) as host:
        host.prepare()
        late = host.ask(0b11, seconds_left=None)
        assert late.answer is not None
        assert late.answer.verdict.kind == "timeout"
        assert host.ask(0b11, seconds_left=0.2).answer is None


def test_libraries_may_print_what_they_like(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first request and while one is answered, more than a pipe holds."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys, threading, time\n"
        "def speak():\n"
        "    while True:\n"
        "        print('{\"result\": 0}' * 1000)\n"
        "        os.write(1, b'{\"result\": 0}\\n' * 1000)\n"
        "        time.sleep(0.001)\n" + in_model_processes("threading.Thread(target=speak, daemon=True).start()")
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    place = Place.at(tmp_path / "data")
    with place.hosts() as hosts, hosts.acquire(place.case(relus(3))) as host:
        assert host.prepare().universe.op == ("Relu",) * 3
        assert len({host.key(units) for units in (0b1, 0b10, 0b11, 0b111)}) == 3


def test_the_last_words_of_a_host_are_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys, threading\n"
        "def die():\n"
        "    print('libfoo.so: \\x1b[31mcannot be opened', file=sys.stderr, flush=True)\n"
        "    os._exit(3)\n" + in_model_processes("threading.Timer(1, die).start()")
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    place = Place.at(tmp_path / "data")
    case = place.case(relus(3), toml(tmp_path, SLEEPS))
    with place.hosts() as hosts, hosts.acquire(case) as host, pytest.raises(ProcessLostError) as lost:
        _ = host.prepare() and host.ask(0b111, seconds_left=None)
    assert str(lost.value) == (
        "The process that had the model ended with exit code 3; its last words were: libfoo.so:  [31mcannot be opened."
    )


def test_the_last_words_of_what_starts_hosts_are_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "onnxruntime.py").write_text("raise ImportError('libfoo.so: \x1b[31mcannot be opened')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    place = Place.at(tmp_path / "data")
    with place.hosts() as hosts, hosts.acquire(place.case(relus(3))) as host, pytest.raises(ProcessLostError) as lost:
        host.prepare()
    assert str(lost.value) == (
        "No process could be started that reads the model: the process that starts them ended with exit code 1; its "
        "last words were: ImportError: libfoo.so:  [31mcannot be opened."
    )


def test_what_starts_hosts_may_be_shot_before_it_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nothing is known of the model, and the next one may well be read."""
    (tmp_path / "onnxruntime.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    place = Place.at(tmp_path / "data")
    with place.hosts() as hosts, hosts.acquire(place.case(relus(3))) as host:
        with pytest.raises(ProcessKilledError, match=r"the process that starts them was killed by SIGKILL"):
            host.prepare()
        assert list(processes_folder(place.settings).iterdir()) == []


def test_a_host_has_what_compilers_need_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ONNXBISECT_DATABASE_URL", "PGPASSWORD", "BAR_HOME"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("ONNXBISECT_REDIS_URL", "redis://:secret@queue.example/0")
    monkeypatch.setenv("FOO_HOME", "foo")
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(tmp_path / "toolchains"))
    inherits = 'inherit_env = ["FOO_HOME", "ONNXBISECT_DATABASE_URL"]'
    backend = toml(tmp_path, says(f"env -0 > {tmp_path}/compilers", inherits))
    place = Place.at(tmp_path / "data")
    with place.hosts() as hosts, hosts.acquire(place.case(relus(2), backend)) as host:
        host.prepare()
        assert "secret" not in Path(f"/proc/{the_host()}/environ").read_text()
        host.ask(0b11, seconds_left=None)
    raw = (tmp_path / "compilers").read_text()
    found = dict(item.split("=", 1) for item in raw.split("\0") if item)
    assert "secret" not in raw
    assert found["FOO_HOME"] == "foo"
    assert found["ORT_DISABLE_TELEMETRY"] == "1"
    assert environment(tmp_path)["ONNXBISECT_CACHE_DIR"] == str(tmp_path / "toolchains")
    assert processes_folder(place.settings) in Path(found["TMPDIR"]).parents


def test_a_host_stays_for_the_next_question(tmp_path: Path) -> None:
    """Also the one that prepared: nobody reads the model twice."""
    place = Place.at(tmp_path)
    case = place.case(relus(2))
    with place.hosts() as hosts:
        with hosts.acquire(case) as host:
            prepared = host.prepare()
        first = the_host()
        stored = place.files.put([prepared.to_bytes()]).sha256
        with hosts.acquire(replace(case, prepared=stored)) as host:
            host.key(1)
            assert the_host() == first
            with hosts.acquire(replace(case, prepared=stored)) as other:  # that one is taken
                assert other.key(1) == host.key(1)


def test_a_request_waits_a_moment_for_the_host_that_has_the_model(tmp_path: Path) -> None:
    """A process of its own would take as long to read it."""
    place = Place.at(tmp_path)
    case = place.case(relus(2))
    with place.hosts() as hosts:
        with hosts.acquire(case) as host:
            host.prepare()
            second = Thread(target=lambda: found.append(use(hosts, case)), daemon=True)
            found: list[ModelProcess] = []
            second.start()
        second.join()
        assert found == [host]


def use(hosts: ModelPool, case: Case) -> ModelProcess:
    with hosts.acquire(case) as host:
        host.key(1)
        return host


def test_the_host_that_has_computed_most_takes_the_next_request(tmp_path: Path) -> None:
    """Not the one that was used last: it may only have read the model, and what a report needs takes long again."""
    place = Place.at(tmp_path)
    case = place.case(relus(2))
    with place.hosts() as hosts:
        with hosts.acquire(case) as last, hosts.acquire(case) as host:
            last.prepare()
            host.prepare()
            host.key(1)
        with hosts.acquire(case) as next_one:
            assert next_one is host


def test_tenants_with_the_same_model_have_hosts_of_their_own(tmp_path: Path) -> None:
    place = Place.at(tmp_path)
    case = place.case(relus(2), tenant="one")
    with place.hosts() as hosts:
        with hosts.acquire(case) as host:
            stored = place.files.put([host.prepare().to_bytes()]).sha256
        for tenant, running in (("one", 1), ("other", 2), ("one", 2)):
            with hosts.acquire(replace(case, tenant=tenant, prepared=stored)) as host:
                assert host.key(1)
            assert len(hosts_of(os.getpid())) == running


@pytest.mark.parametrize("bounds", [{"idle": 1}, {"idle_bytes": 1}], ids=["count", "bytes"])
def test_only_a_few_hosts_stay(bounds: dict[str, int], tmp_path: Path) -> None:
    place = Place.at(tmp_path)
    with place.hosts(**bounds) as hosts:
        for count in (2, 3):
            with hosts.acquire(place.case(relus(count))) as host:
                host.prepare()
            assert the_host()
    assert hosts_of(os.getpid()) == []
    assert list(processes_folder(place.settings).iterdir()) == []


def test_threads_have_hosts_of_their_own(tmp_path: Path) -> None:
    place = Place.at(tmp_path)
    found: list[tuple[str, ...]] = []

    def work(hosts: ModelPool, count: int) -> None:
        for _ in range(3):
            with hosts.acquire(place.case(relus(count))) as host:
                found.append(host.prepare().universe.op)

    with place.hosts() as hosts:
        threads = [Thread(target=work, args=(hosts, 2 + number % 2), daemon=True) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(found) == [("Relu",) * 2] * 6 + [("Relu",) * 3] * 3
    assert hosts_of(os.getpid()) == []


def test_another_compiler_than_the_search_began_with_gives_no_answers(tmp_path: Path) -> None:
    place = Place.at(tmp_path)
    backend = toml(tmp_path, says("true", 'version = "1.0"'))
    case = place.case(relus(2), backend)
    with place.hosts() as hosts, hosts.acquire(case) as host:
        stored = place.files.put([host.prepare().to_bytes()]).sha256
    toml(tmp_path, says("true", 'version = "2.0"'))
    with (
        place.hosts() as hosts,
        hosts.acquire(replace(case, prepared=stored)) as host,
        pytest.raises(OtherVersionError, match=r"has sh 2\.0, and the search began with sh 1\.0"),
    ):
        host.ask(0b11, seconds_left=None)


def test_a_compiler_that_is_not_here_is_named(tmp_path: Path) -> None:
    place = Place.at(tmp_path)
    backend = toml(tmp_path, 'name = "none"\nsummary = "Is not here."\ncommand = ["no-such-compiler", "{model}"]\n')
    with (
        place.hosts() as hosts,
        hosts.acquire(place.case(relus(2), backend)) as host,
        pytest.raises(ToolBrokenError, match="'no-such-compiler' was not found"),
    ):
        host.prepare()


def test_a_host_that_cannot_be_started_is_a_sentence(tmp_path: Path) -> None:
    place = Place.at(tmp_path)
    processes_folder(place.settings).parent.mkdir()
    processes_folder(place.settings).write_text("in the way")
    with place.hosts() as hosts, hosts.acquire(place.case(relus(2))) as host, pytest.raises(ProcessLostError) as lost:
        host.prepare()
    assert str(lost.value) == "No process could be started that reads the model: Not a directory."


def test_a_file_that_is_stored_no_more_is_named(tmp_path: Path) -> None:
    place = Place.at(tmp_path)
    case = place.case(relus(2))
    place.files.discard(case.onnx, older_than=0)
    with (
        place.hosts() as hosts,
        hosts.acquire(case) as host,
        pytest.raises(OnnxBisectError, match=f"{case.onnx} of the job is not stored here any more"),
    ):
        host.prepare()


def test_a_file_that_was_changed_in_its_store_ends_the_work_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tried again it would be as wrong."""
    place = Place.at(tmp_path)
    case = place.case(relus(2))

    def damaged(sha256: str) -> Path:
        raise DamagedFileError(f"The file store has other bytes than it was given for {sha256}.")

    monkeypatch.setattr(place.files, "path", damaged)
    with place.hosts() as hosts, hosts.acquire(case) as host, pytest.raises(DamagedFileError) as ended:
        host.prepare()
    assert machine_fault(ended.value) is None


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)>\n\x1b[31m../../etc/passwd"
    place = Place.at(tmp_path / "data")
    backend = toml(tmp_path, says("echo error: no"))
    raw = model(helper.make_node("Relu", ["x"], ["y"], name=name))
    with place.hosts() as hosts, hosts.acquire(place.case(raw, backend, model_name="../../\x1b.onnx")) as host:
        host.prepare()
        asked = host.ask(0b1, seconds_left=None)
        assert asked.answer is not None
        written = host.report(NOTHING, tmp_path / "written", logs={})
        assert isinstance(written, ReportOutcome)
    assert written.document["units"]["names"] == [name]
    assert written.document["model"]["name"] == "\x1b.onnx"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["compiler.toml", "data"]
