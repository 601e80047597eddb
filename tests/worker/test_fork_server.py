"""A worker imports once: its fork servers are forks of one process, the trunk, and can do without it."""

import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from onnxbisect_db.states import JobState
from onnxbisect_worker import forking, trunk
from onnxbisect_worker.child_host import hosts_folder
from onnxbisect_worker.host_environment import host_environment
from onnxbisect_worker.hosting import Case, HostKilledError
from onnxbisect_worker.model_client import ModelHosts
from onnxbisect_worker.trunk import Trunk
from support.worker import redis_server
from support.worker.hosted import Place
from support.worker.installation import Installation
from support.worker.process_tree import children, gone, hosts_of, is_privileged, servers_of, within

MODEL = Path(__file__).parent.parent / "models" / "unsorted_nodes.onnx"
CHAIN = Path(__file__).parent.parent / "cases" / "c2_chain100_3bad.onnx"
OPS = 2


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place.at(tmp_path)


@pytest.fixture
def case(place: Place) -> Case:
    return place.case(MODEL)


@contextmanager
def grown(place: Place) -> Iterator[tuple[Trunk, int]]:
    """A trunk and its process; in the end nothing is left of either, nor of what came of them."""
    before = servers_of(os.getpid())
    with closing(Trunk(host_environment(hosts_folder(place.settings)))) as made:
        # what it is called is to be read a moment after it was started
        assert within(30, lambda: len(servers_of(os.getpid())) > len(before))
        [pid] = set(servers_of(os.getpid())) - {*before}
        yield made, pid
    marker = os.fsencode(f"TMPDIR={hosts_folder(place.settings)}")
    assert within(30, lambda: not running(marker))
    assert list(hosts_folder(place.settings).iterdir()) == []


def running(marker: bytes) -> list[str]:
    """The processes in whose environment it is."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if marker in entry.read_bytes():
                found.append(entry.parent.name)
    return found


def hosts(place: Place, trunk: Trunk) -> closing[ModelHosts]:
    return closing(ModelHosts(place.settings, place.files, trunk=trunk))


def nodes(hosts: ModelHosts, case: Case) -> int:
    with hosts.lent(case) as host:
        return len(host.prepare().universe.op)


def test_servers_of_a_trunk_do_not_depend_on_each_other(place: Place, case: Case) -> None:
    with grown(place) as (trunk, pid), hosts(place, trunk) as one, hosts(place, trunk) as other:
        with one.lent(case) as lost, other.lent(case) as host:
            lost.prepare()
            [server] = children(pid)
            host.prepare()
            [others] = {*children(pid)} - {server}
            ended, going = children(server), children(others)
            assert (len(ended), len(going)) == (1, 1)
            os.kill(server, signal.SIGKILL)
            assert within(30, lambda: gone(ended[0]))
            with pytest.raises(HostKilledError):
                lost.key(1)
            assert host.key(1)
            assert children(others) == going
        assert nodes(one, case) == OPS
        assert len(children(pid)) == 2
        one.close()
        assert children(pid) == [others]
    assert gone(others)


def test_what_is_forked_has_no_threads(place: Place, case: Case) -> None:
    """Their locks would be held for ever in the child."""
    with grown(place) as (trunk, pid), hosts(place, trunk) as one:
        assert nodes(one, case) == OPS
        for process in (pid, *children(pid)):
            assert len(list(Path(f"/proc/{process}/task").iterdir())) == 1


@pytest.mark.skipif(not is_privileged(), reason="from who has no privilege the kernel takes few changes a second")
def test_hosts_make_way_for_others(place: Place, case: Case) -> None:
    """With their sessions: Linux shares processors between sessions first."""
    with grown(place) as (trunk, pid), hosts(place, trunk) as one:
        assert nodes(one, case) == OPS
        [host] = hosts_of(pid)
        group = Path(f"/proc/{host}/autogroup")
        if not group.exists():
            pytest.skip("the kernel does not group processes by session")
        nice = os.getpriority(os.PRIO_PROCESS, host)
        assert nice > os.getpriority(os.PRIO_PROCESS, 0)
        assert group.read_text().split()[1:] == ["nice", str(nice)]


def test_where_a_trunk_is_shot_its_servers_end_and_others_import(place: Place, case: Case) -> None:
    """Nobody is left without a parent, and nobody has to do without hosts."""
    with grown(place) as (trunk, pid), hosts(place, trunk) as one, hosts(place, trunk) as other:
        with one.lent(case) as host:
            host.prepare()
            [server] = children(pid)
            [reading] = children(server)
            os.kill(pid, signal.SIGKILL)
            assert within(30, lambda: gone(pid) and gone(server) and gone(reading))
            with pytest.raises(HostKilledError):
                host.key(1)
        assert (nodes(one, case), nodes(other, case)) == (OPS, OPS)
        assert len(hosts_of(os.getpid())) == 2


def test_nobody_waits_for_a_trunk_that_is_stopped(place: Place, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forking, "_PATIENCE", 0.2)
    with grown(place) as (made, pid), hosts(place, made) as one, hosts(place, made) as other:
        assert nodes(one, case) == OPS
        [server] = children(pid)
        os.kill(pid, signal.SIGSTOP)
        try:
            monkeypatch.setattr(trunk, "_STARTING", 0.2)
            assert nodes(other, case) == OPS
            one.close()
            assert gone(server)
        finally:
            os.kill(pid, signal.SIGCONT)


def test_a_worker_imports_once(tmp_path: Path) -> None:
    with redis_server.running() as redis, closing(Installation.at(tmp_path, redis_url=redis.url, slots="2")) as it:
        with it.worker() as worker:
            assert it.ended(it.submit(CHAIN, {"deny": "Cosh"})).state == JobState.DONE
            [trunk] = servers_of(worker.pid)
            assert servers_of(trunk)
            assert not [
                server for process in children(worker.pid) if process != trunk for server in servers_of(process)
            ]
        assert it.gone(0)
