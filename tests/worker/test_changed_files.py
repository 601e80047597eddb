"""Changed copies of the whole file are asked about before its parts: as `run` does it, with workers that may die."""

import json
import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import onnx_bisect
from onnxbisect.diagnosis import CompilesAfter
from onnxbisect.errors import ModelError
from onnxbisect.exactness import Exactness
from onnxbisect.unitset import UnitSet
from onnxbisect_db.database import Database
from onnxbisect_db.states import JobState
from onnxbisect_service.search_spec import RepairSpec, SearchSpec
from onnxbisect_worker.running import embedded
from support.db.scenes import Clock
from support.engine.worlds import chain, monotone
from support.worker.crank import Crank
from support.worker.hidden_rule import Compiler
from support.worker.installation import Installation

EVERYTHING: UnitSet = 0b11111111
LOWERED = CompilesAfter(
    sentence="ir_version 12 → 9", remedies=("lower-ir-version",), exactness=Exactness.EXACT, domain="", calls=1
)
NewCrank = Callable[..., Crank]


@pytest.fixture
def crank(database: Database, clock: Clock, tmp_path: Path) -> NewCrank:
    def made(after: CompilesAfter | None) -> Crank:
        compiler = Compiler(
            universe=chain(range(8)), rule=monotone([0b100]), changed_files=[b"one", b"other"], compiles_after=after
        )
        return Crank(database=database, clock=clock, folder=tmp_path, compiler=compiler)

    return made


@pytest.mark.parametrize("seed", range(3))
def test_where_one_compiles_no_part_is_asked_about(crank: NewCrank, seed: int) -> None:
    it = crank(LOWERED)
    job = it.job()
    it.run(job, places=[it.place("one"), it.place("two")], chance=random.Random(seed), dies=0.15)
    report = it.report(job)
    assert (report["verdict"], report["compiles_after"]) == ("fail", "ir_version 12 → 9")
    assert dict(it.compiler.asked) == {EVERYTHING: 1}


@pytest.mark.parametrize("seed", range(3))
def test_where_none_does_the_search_goes_on(crank: NewCrank, seed: int) -> None:
    it = crank(None)
    as_is, job = it.job(spec=SearchSpec(as_is=True)), it.job()
    it.run(as_is)
    it.run(job, places=[it.place("one"), it.place("two")], chance=random.Random(seed), dies=0.15)
    assert it.report(job)["compiles_after"] is None
    assert it.report(job)["diagnosis"] == it.report(as_is)["diagnosis"] != []


def test_nothing_is_changed_where_the_file_is_to_be_searched_as_it_is(crank: NewCrank) -> None:
    it = crank(LOWERED)
    job = it.job(spec=SearchSpec(as_is=True))
    it.run(job)
    assert it.report(job)["compiles_after"] is None
    assert it.report(job)["diagnosis"]


@pytest.mark.parametrize("problem", [None, "onnx does not write such a file."])
def test_changed_files_come_once_the_form_of_the_file_is_to_blame(crank: NewCrank, problem: str | None) -> None:
    it = crank(LOWERED)
    it.compiler.changed_files, it.compiler.form_is_to_blame = (), True
    it.compiler.rule = lambda units: units == EVERYTHING
    it.compiler.no_repair = None if problem is None else ModelError(problem)
    job = it.job()
    it.run(job)
    assert it.report(job)["compiles_after"] == (LOWERED.sentence if problem is None else None)
    assert it.compiler.asked[EVERYTHING] == 2, "the file, and the model written as its parts are"


def test_a_failure_costs_the_changed_files_only(crank: NewCrank) -> None:
    it = crank(LOWERED)
    it.compiler.no_repair = ModelError("It cannot be changed.")
    job = it.job()
    it.run(job)
    assert it.read(job).state == JobState.DONE
    assert it.report(job)["diagnosis"]


@pytest.mark.long
def test_a_job_says_what_run_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(tmp_path / "cache"))
    ops = ["Relu", "Identity", "Neg"]
    nodes = [helper.make_node(op, [f"t{at}"], [f"t{at + 1}"], name=f"n{at}") for at, op in enumerate(ops)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("t0", "t3")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), path)
    options = {"deny": "Identity", "report": "none"}
    local = onnx_bisect.diagnose(path, backend="whitelist", options=options)

    with closing(Installation.at(tmp_path)) as it:
        running = embedded(it.service)
        running.start()
        try:
            job = it.submit(path, options, spec=SearchSpec(repair=RepairSpec()))
            ended = it.ended(job)
        finally:
            running.stop()
        report = it.report(job)
        repaired = it.service.files.path(ended.searches[0].files["repair/repair.json"]).read_bytes()
    assert local.compiles_after is not None
    assert [report[key] for key in ("headline", "compiles_after", "culprits", "certificate")] == [
        local.report[key] for key in ("headline", "compiles_after", "culprits", "certificate")
    ]
    assert report["stats"]["compiler_calls"] == local.stats.compiler_calls == ended.searches[0].calls == 2
    assert (json.loads(repaired)["verdict"], json.loads(repaired)["repair_calls"]) == ("pass", 0)


@pytest.mark.long
def test_a_job_goes_on_in_a_changed_file_as_run_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is the file has too many nodes, whatever they are; a repair begins with the model's own file."""
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(tmp_path / "cache"))
    ops = ["Relu", "Identity", "Sin", "Neg"]
    nodes = [helper.make_node(op, [f"t{at}"], [f"t{at + 1}"], name=f"n{at}") for at, op in enumerate(ops)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("t0", "t4")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), path)
    options = {"max_nodes": "3", "fail_patterns": "Relu>Sin", "report": "first"}
    local = onnx_bisect.diagnose(path, backend="whitelist", options=options)

    with closing(Installation.at(tmp_path)) as it:
        running = embedded(it.service)
        running.start()
        try:
            ended = it.ended(job := it.submit(path, options))
            repaired = it.ended(other := it.submit(path, options, spec=SearchSpec(repair=RepairSpec())))
        finally:
            running.stop()
        report, as_it_is = it.report(job), it.report(other)
        files = ended.searches[0].files
    assert local.report["file_after"] == "1 Identity node removed"
    assert [[*it.nodes] for it in local.culprits] == [["n0", "n2"]]
    assert [report[key] for key in ("headline", "file_after", "culprits", "certificate", "model")] == [
        local.report[key] for key in ("headline", "file_after", "culprits", "certificate", "model")
    ]
    assert any(name.endswith("model.onnx") for name in files)
    assert report["stats"]["compiler_calls"] == ended.searches[0].calls
    assert repaired.searches[0].repair is not None
    assert "file_after" not in as_it_is
    assert as_it_is["verdict"] == "fail"


@pytest.mark.long
def test_a_job_ends_at_an_invalid_node_as_run_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(tmp_path / "cache"))
    graph = """g (float[2,3] x) => (float[2,3] y) <int64[2] pads = {1,1}> {
        a = Relu (x)  b = Tanh (a)  c = Pad (b, pads)  d = Neg (c)  y = Sigmoid (d)
    }"""
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {graph}'), path)
    options = {"deny": "Pad", "report": "first"}
    local = onnx_bisect.diagnose(path, backend="whitelist", options=options)

    with closing(Installation.at(tmp_path)) as it:
        running = embedded(it.service)
        running.start()
        try:
            it.ended(job := it.submit(path, options))
            it.ended(other := it.submit(path, options, spec=SearchSpec(as_is=True)))
        finally:
            running.stop()
        report, as_it_is = it.report(job), it.report(other)
    said = report["certificate"]["unknown"]
    assert (report["headline"], report["culprits"]) == (local.report["headline"], [])
    assert "an invalid node" in said[0]
    assert said == local.report["certificate"]["unknown"]
    assert as_it_is["certificate"]["unknown"] != said
