"""A process that uses SQLite in threads may be forked, as celery does: its children use the same file."""

import os
import subprocess
import sys
import time
from pathlib import Path
from threading import Event, Thread, Timer

import pytest

from onnxbisect_db import leases
from onnxbisect_db.database import Database

#: Threads that write as fast as they can, and forks that write once each; a child that stands still is killed.
_FORKS = """
import os, sys, threading, time
from onnxbisect_db import leases
from onnxbisect_db.database import Database

def write(database):
    database.run(lambda session: leases.take(session, "x", "me", seconds=10))

url = sys.argv[1]
database = Database(url)
database.upgrade()

def go_on():
    while True:
        write(database)
        with database.session() as session:
            pass

for _ in range(3):
    threading.Thread(target=go_on, daemon=True).start()
stuck = 0
for _ in range(60):
    child = os.fork()
    if child == 0:
        write(Database(url))
        os._exit(0)
    give_up = time.monotonic() + 10
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > give_up:
            os.kill(child, 9)
            os.waitpid(child, 0)
            stuck += 1
            break
        time.sleep(0.002)
    if stuck:
        break
os._exit(stuck)
"""


@pytest.mark.long
def test_no_child_stands_still(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"
    subprocess.run([sys.executable, "-W", "error", "-c", _FORKS, url], check=True, timeout=120)


@pytest.fixture
def database(tmp_path: Path) -> Database:
    made = Database(f"sqlite:///{tmp_path / 'x.db'}")
    made.upgrade()
    return made


def test_a_fork_waits_for_who_is_inside(database: Database) -> None:
    inside, leave, left = Event(), Event(), Event()

    def stay() -> None:
        with database.transaction():
            inside.set()
            leave.wait(60)
            left.set()

    Thread(target=stay, daemon=True).start()
    assert inside.wait(60)
    Timer(0.3, leave.set).start()
    child = os.fork()
    if child == 0:
        os._exit(0 if left.is_set() else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_who_forks_inside_a_transaction_waits_for_nobody(database: Database) -> None:
    with database.session():
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        assert time.monotonic() - began < 5
        with database.session() as session:  # and may go on
            assert session.is_active
    assert database.run(lambda session: leases.take(session, "x", "me", seconds=10))


_GATES_IN_THREADS = """
import os, sys, threading
from onnxbisect_db.fork_gate import ForkGate

sys.setswitchinterval(1e-6)
ours = ForkGate(lambda: None)

def make():
    while True:
        kept = [ForkGate(lambda: None) for _ in range(100)]

for _ in range(3):
    threading.Thread(target=make, daemon=True).start()
for _ in range(80):
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    passed = threading.Event()
    def go():
        with ours.passed():
            passed.set()
    threading.Thread(target=go, daemon=True).start()
    if not passed.wait(5):
        print("the gate stays shut", flush=True)
        os._exit(1)
os._exit(0)
"""


def test_a_fork_while_gates_are_made_shuts_none_for_good() -> None:
    done = subprocess.run([sys.executable, "-c", _GATES_IN_THREADS], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
