"""A tenant whose models are slow in a way that nobody foresaw keeps no other one waiting."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import onnx
import pytest

from onnxbisect_db import tokens
from onnxbisect_db.states import JobState, Scope
from onnxbisect_worker.running import embedded
from support.worker import redis_server
from support.worker.installation import Installation

#: Finding out its shapes takes as long as that may take, 20 s of a processor: the loop has no end.
ENDLESS = """
<ir_version: 8, opset_import: ["" : 17]>
endless_{number} (float[4] x) => (float[4] z)
  <int64 n = {{9223372036854775807}}, bool t = {{1}}>
{{
   y = Loop (n, t, x) <body: graph = b (int64 i, bool c, float[4] a) => (bool co, float[4] ao) {{
     co = Identity (c)
     ao = Cos (a)
   }}>
   z = Relu (y)
}}
"""
FOUR_NODES = """
<ir_version: 8, opset_import: ["" : 17]>
small (float[4] x) => (float[4] z) { a = Relu (x) b = Atan (a) c = Abs (b) z = Neg (c) }
"""
#: The slots of `serve`, of which one of two tenants has half.
_SLOTS = 8


@pytest.fixture(params=["serve", "serve on PostgreSQL", "workers", "workers on PostgreSQL"])
def it(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installation]:
    """An installation that works, in one process or as a worker that compiles and one that coordinates."""
    # without vendors' compilers, of which each would be tried when it starts
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(tmp_path / "cache"))
    kind, _, database = request.param.partition(" on ")
    more = {"database_url": request.getfixturevalue("new_postgres_url")} if database else {}
    with ExitStack() as stack:
        if kind == "workers":
            more["redis_url"] = stack.enter_context(redis_server.running()).url
        made = stack.enter_context(closing(Installation.at(tmp_path, slots="2", **more)))
        for tenant in ("many", "few"):
            with made.service.database.transaction() as session:
                tokens.issue(session, tenant=tenant, name="t", scopes=[Scope.SUBMIT])
        if kind == "workers":
            stack.enter_context(made.worker(control=False))
            stack.enter_context(made.worker([], control=True))
        else:
            running = embedded(made.service)
            running.start()
            stack.callback(running.stop)
        yield made


def model(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return path


@pytest.mark.long
def test_a_dozen_slow_models_of_one_tenant_keep_no_other_one_waiting(it: Installation, tmp_path: Path) -> None:
    """Before, the small job began when all but the last few of the others had been read."""
    deny = {"deny": "Atan"}
    slow = [
        it.submit(model(tmp_path, f"slow{number}", ENDLESS.format(number=number)), deny, tenant="many")
        for number in range(12)
    ]
    small = it.submit(model(tmp_path, "small", FOUR_NODES), deny, tenant="few")
    ended = it.ended(small)
    assert (ended.state, ended.verdict) == (JobState.DONE, "fail")
    over = [job for job in slow if JobState(it.read(job).state).ended]
    assert len(over) <= _SLOTS // 2
