"""A worker imports once: what reads models is forked from one process, and can do without any one of them."""

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from onnxbisect_db.states import JobState
from onnxbisect_worker.model_processes.pool import ModelPool, processes_folder
from onnxbisect_worker.model_requests.protocol import Case, ProcessKilledError
from support.worker import redis_server
from support.worker.hosted import Place
from support.worker.installation import Installation
from support.worker.process_tree import children, gone, keepers_of, servers_of, within

MODEL = Path(__file__).parent.parent / "models" / "unsorted_nodes.onnx"
CHAIN = Path(__file__).parent.parent / "cases" / "c2_chain100_3bad.onnx"
OPS = 2


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place.at(tmp_path)


@pytest.fixture
def case(place: Place) -> Case:
    return place.case(MODEL)


@pytest.fixture
def before() -> set[int]:
    """The fork servers of other tests' pools."""
    return {*servers_of(os.getpid())}


@pytest.fixture
def hosts(place: Place, before: set[int]) -> Iterator[ModelPool]:
    with closing(ModelPool(place.settings, place.files)) as made:
        yield made
    assert list(processes_folder(place.settings).iterdir()) == []


def nodes(hosts: ModelPool, case: Case) -> int:
    with hosts.acquire(case) as host:
        return len(host.prepare().universe.op)


def test_what_is_forked_has_no_threads(hosts: ModelPool, case: Case, before: set[int]) -> None:
    """Their locks would be held for ever in the child."""
    assert nodes(hosts, case) == OPS
    for server in {*servers_of(os.getpid())} - before:
        assert len(list(Path(f"/proc/{server}/task").iterdir())) == 1


def test_where_a_server_is_shot_its_processes_go_on_and_the_next_one_has_another(
    hosts: ModelPool, case: Case, before: set[int]
) -> None:
    with hosts.acquire(case) as host:
        host.prepare()
        [server] = {*servers_of(os.getpid())} - before
        os.kill(server, signal.SIGKILL)
        assert within(30, lambda: gone(server))
        assert host.key(1)
        with hosts.acquire(case) as other:
            assert len(other.prepare().universe.op) == OPS
    assert len({*servers_of(os.getpid())} - before) == 1


def test_what_sees_to_a_model_process_may_be_shot(hosts: ModelPool, case: Case) -> None:
    """Nobody is left who could tell how the model process ended, so it ends, and that says nothing about the model."""
    others = {*keepers_of(os.getpid())}
    with hosts.acquire(case) as host:
        host.prepare()
        [keeper] = {*keepers_of(os.getpid())} - others
        [reading] = children(keeper)
        os.kill(keeper, signal.SIGKILL)
        assert within(30, lambda: gone(reading))
        with pytest.raises(ProcessKilledError, match="was killed"):
            host.key(1)
    assert nodes(hosts, case) == OPS


@pytest.mark.long
def test_a_worker_imports_once(tmp_path: Path) -> None:
    with redis_server.running() as redis, closing(Installation.at(tmp_path, redis_url=redis.url, slots="2")) as it:
        with it.worker() as worker:
            assert it.ended(it.submit(CHAIN, {"deny": "Cosh"})).state == JobState.DONE
            assert len(servers_of(worker.pid)) == 1
        assert it.gone(0)
