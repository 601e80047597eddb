"""Whole jobs where isolation is required: line 10 of the checklist."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
import pytest
from onnx import TensorProto, helper

from onnxbisect_backends.sandbox import isolation
from onnxbisect_backends.sandbox.isolation import Isolation
from onnxbisect_db.states import JobState
from onnxbisect_worker.model_requests.protocol import PROCESS_NAME
from support.worker import redis_server
from support.worker.installation import Installation
from support.worker.process_tree import children


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder outside of the temporary ones, which are hidden as a whole."""
    if isolation.available() is Isolation.NONE:
        pytest.skip("the kernel allows no namespaces here")
    with TemporaryDirectory(dir=Path(__file__).parent, prefix="service-") as name:
        yield Path(name)


def with_two_unknown_ops(folder: Path) -> Path:
    names = ["x", "a", "b", "c", "d", "y"]
    ops = ["Relu", "FancyAct", "Abs", "FancyPool", "Relu"]
    nodes = [
        helper.make_node(op, [names[number]], [names[number + 1]], domain="vendor.npu" if "Fancy" in op else "")
        for number, op in enumerate(ops)
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in (names[0], names[-1])]
    known = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in names[1:-1]]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], value_info=known)
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("vendor.npu", 1)]
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=sets, ir_version=8), path)
    return path


def readers(pid: int) -> list[int]:
    """The processes below this one that have models: of each host the last."""
    found = [each for child in children(pid) for each in readers(child)]
    if not found and Path(f"/proc/{pid}/comm").read_text().strip() == PROCESS_NAME:
        return [pid]
    return found


@pytest.mark.long
def test_10_a_real_compiler_s_job_ends_with_its_culprits_and_their_files(root: Path) -> None:
    with (
        redis_server.running() as redis,
        closing(Installation.at(root, redis_url=redis.url, isolation="required", work=str(root / "work"))) as it,
        it.worker(["onnxruntime"]) as worker,
    ):
        job = it.ended(it.submit(with_two_unknown_ops(root), {}, backend="onnxruntime"))
        assert (job.state, job.verdict) == (JobState.DONE, "fail")
        assert sorted(culprit["ops"] for culprit in it.report(job)["culprits"]) == [
            ["vendor.npu::FancyAct"],
            ["vendor.npu::FancyPool"],
        ]
        [search] = job.searches
        assert len(search.files) == 4
        for sha256 in search.files.values():
            with it.service.files.open(sha256) as file:
                assert file.read()
        waiting = readers(worker.pid)
        assert waiting, "the worker keeps what has read the model for the next job"
        for pid in waiting:
            status = Path(f"/proc/{pid}/status").read_text()
            assert "NoNewPrivs:\t1" in status
            assert "CapEff:\t0000000000000000" in status
            assert Path(f"/proc/{pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()
