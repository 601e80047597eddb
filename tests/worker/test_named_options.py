"""Options that a compiler names where it crashes are asked about before the model is searched."""

import json
import sys
from contextlib import closing
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import onnx_bisect
from onnx_bisect.events import Note
from onnxbisect.report.reading import next_steps
from onnxbisect_service.search_spec import RepairSpec, SearchSpec
from onnxbisect_worker.running import embedded
from support.worker.installation import Installation

#: Crashes in one fusion rule after the other, and names the option that leaves the rule out. It reads files up to IR
#: version 9, one rule before it looks at that.
PLUGIN = '''
from typing import Annotated

import onnx
from pydantic import BaseModel, BeforeValidator

from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect_backends.contract import Description, Outcome
from onnxbisect_backends.options import WorthTrying, read_options

RULES = {"Tan": "fuse_tan", "": "", "Relu": "fuse_relu", "Neg": "fuse_neg", "Hardmax": "fuse_hardmax"}


def split(given):
    return tuple(given.split(",")) if isinstance(given, str) and given else given


class Options(BaseModel):
    skip: Annotated[tuple[str, ...], BeforeValidator(split), WorthTrying(pattern=r"--option skip=(\\w+)")] = ()


class Fuser:
    """Fuses."""

    name = "fuser"
    Options = Options

    def __init__(self, options):
        self._options = read_options(Options, options, self.name)

    @property
    def options(self):
        return self._options.model_dump(mode="json")

    def check(self):
        return None

    def describe(self):
        return Description(tool="fuser", version="1", boundary_known=True, newest_ir=9)

    def compile(self, probe, workdir, limits):
        model = onnx.load(probe)
        ops = [node.op_type for node in model.graph.node]
        for op, rule in RULES.items():
            if not op and model.ir_version > 9:
                return Outcome(exit_code=1, log="The file is of a newer version.")
            if op in ops and rule not in self._options.skip:
                return Outcome(exit_code=1, log=f"IndexError in {rule}; --option skip={rule} goes without it")
        if "Sinh" in ops and self._options.skip:
            return Outcome(exit_code=2, log="Still compiling after 1 second.")
        refused = [op for op in ("Abs", "HardSwish") if op in ops]
        return Outcome(exit_code=1, log=f"no {refused[0]}") if refused else Outcome(exit_code=0)

    def judge(self, outcome):
        if not outcome.exit_code:
            return Verdict(status=Status.PASS)
        status = Status.UNRESOLVED if outcome.exit_code == 2 else Status.FAIL
        return Verdict(status=status, kind=Kind.ERROR, message=outcome.log)
'''


@pytest.fixture
def fuser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "plugin" / "fuser-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fuser\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[onnx_bisect.backends]\nfuser = fuser_backend:Fuser\n")
    (info.parent / "fuser_backend.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(info.parent)
    monkeypatch.setenv("PYTHONPATH", str(info.parent))
    monkeypatch.delitem(sys.modules, "fuser_backend", raising=False)
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(tmp_path / "cache"))


def saved(folder: Path, *ops: str, ir_version: int = 8) -> Path:
    nodes = [helper.make_node(op, [f"t{at}"], [f"t{at + 1}"], name=f"n{at}") for at, op in enumerate(ops)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("t0", f"t{len(ops)}")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    model = helper.make_model(graph, ir_version=ir_version, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


@pytest.mark.usefixtures("fuser")
def test_one_call_for_each_option_that_is_named(tmp_path: Path) -> None:
    """The second crash names the next rule: both are left out."""
    result = onnx_bisect.diagnose(saved(tmp_path, "Relu", "Sin", "Neg"), backend="fuser")

    assert result.compiles_after is not None
    assert result.compiles_after.options == {"skip": "fuse_relu,fuse_neg"}
    after = "option skip=fuse_relu,fuse_neg"
    assert result.headline == f"model.onnx compiles for fuser (skip=) after: {after} (verified, 2 calls)"
    assert result.stats.compiler_calls == 3
    assert not result.culprits


@pytest.mark.usefixtures("fuser")
def test_where_it_does_not_help_the_search_is_about_the_options_given(tmp_path: Path) -> None:
    result = onnx_bisect.diagnose(saved(tmp_path, "Relu", "Abs"), backend="fuser")

    assert result.compiles_after is None
    assert sorted(culprit.ops for culprit in result.culprits) == [("Abs",), ("Relu",)]


@pytest.mark.usefixtures("fuser")
def test_an_option_that_leads_to_no_answer_is_said(tmp_path: Path) -> None:
    notes: list[str] = []

    def told(event: onnx_bisect.Event) -> None:
        if isinstance(event, Note):
            notes.append(event.sentence)

    result = onnx_bisect.diagnose(saved(tmp_path, "Relu", "Sinh"), backend="fuser", progress=told)

    asked = notes.index("asking the compiler with the option that it names: skip=fuse_relu")
    assert notes[asked + 1] == "no answer about that: Still compiling after 1 second."
    assert result.compiles_after is None


@pytest.mark.usefixtures("fuser")
def test_nothing_is_tried_of_a_model_to_search_as_it_is(tmp_path: Path) -> None:
    result = onnx_bisect.diagnose(saved(tmp_path, "Relu", "Sin"), backend="fuser", as_is=True)

    assert [culprit.ops for culprit in result.culprits] == [("Relu",)]


@pytest.mark.usefixtures("fuser")
@pytest.mark.parametrize(
    ("ops", "skip"),
    [(["Relu", "Sin"], "fuse_relu"), (["Relu", "Neg"], "fuse_relu,fuse_neg"), (["Tan", "Sin"], "fuse_tan")],
)
def test_options_are_asked_about_a_changed_file_as_about_the_first(tmp_path: Path, ops: list[str], skip: str) -> None:
    """Also the one that the file as it is was refused with, since it may be refused for another reason as well."""
    path = saved(tmp_path, *ops, ir_version=12)
    result = onnx_bisect.diagnose(path, backend="fuser")

    assert result.compiles_after is not None
    assert result.compiles_after.remedies == ("lower-ir-version",)
    assert result.compiles_after.options == {"skip": skip}
    assert f"after: ir_version 12 → 9; option skip={skip} (" in result.headline
    assert result.certificate.sentence.startswith("bounded: a changed file compiles")
    assert [bool(it.command) for it in next_steps(result.report)] == [True, False]
    fixed = onnx_bisect.fix(path, backend="fuser")
    assert fixed.headline.endswith(f" after ir_version 12 → 9, and option skip={skip}.")
    assert fixed.document.options == {"skip": skip}
    fixed.save(tmp_path / "repaired.onnx")
    told = onnx_bisect.diagnose(tmp_path / "repaired.onnx", backend="fuser", options={"skip": skip})
    assert told.verdict is onnx_bisect.Status.PASS


@pytest.mark.usefixtures("fuser")
def test_where_no_option_helps_the_search_goes_on_in_the_changed_file(tmp_path: Path) -> None:
    result = onnx_bisect.diagnose(saved(tmp_path, "Relu", "Abs", ir_version=12), backend="fuser")

    assert result.report["file_after"] == "ir_version 12 → 9"
    assert sorted(culprit.ops for culprit in result.culprits) == [("Abs",), ("Relu",)]


@pytest.mark.usefixtures("fuser")
@pytest.mark.parametrize(
    ("ops", "ir_version", "changed"),
    [
        (["Relu"], 8, ""),
        (["HardSwish", "Hardmax"], 8, "1 replaced node, and "),
        (["HardSwish", "Hardmax"], 12, "ir_version 12 → 9, and 1 replaced node, and "),
    ],
)
def test_a_repair_ends_with_the_option_that_is_named(
    tmp_path: Path, ops: list[str], ir_version: int, changed: str
) -> None:
    path = saved(tmp_path, *ops, ir_version=ir_version)
    fixed = onnx_bisect.fix(path, backend="fuser")

    skip = f"fuse_{ops[-1].lower()}"
    assert fixed.headline.endswith(f" after {changed}option skip={skip}.")
    assert fixed.repaired == bool(changed)
    with closing(Installation.at(tmp_path)) as it:
        running = embedded(it.service)
        running.start()
        try:
            job = it.submit(path, {}, backend="fuser", spec=SearchSpec(repair=RepairSpec()))
            it.ended(job)
        finally:
            running.stop()
        [search] = it.read(job).searches
        document = json.loads(it.service.files.path(search.files["repair/repair.json"]).read_text())
    assert document["options"] == fixed.document.options
    assert document["verdict"] == "pass"
    assert document["file_change"] == fixed.document.to_json()["file_change"]


@pytest.mark.usefixtures("fuser")
@pytest.mark.parametrize("ir_version", [8, 12])
@pytest.mark.parametrize("ops", [("Relu", "Sin"), ("Relu", "Abs"), ("Tan", "Neg")])
def test_a_job_says_what_run_says(tmp_path: Path, ops: tuple[str, ...], ir_version: int) -> None:
    path = saved(tmp_path, *ops, ir_version=ir_version)
    local = onnx_bisect.diagnose(path, backend="fuser")

    with closing(Installation.at(tmp_path)) as it:
        running = embedded(it.service)
        running.start()
        try:
            job = it.submit(path, {}, backend="fuser", spec=SearchSpec())
            it.ended(job)
        finally:
            running.stop()
        report = it.report(job)
    kept = ("headline", "compiles_after", "certificate")
    assert [report.get(key) for key in kept] == [local.report.get(key) for key in kept]
    assert [it["nodes"] for it in report["culprits"]] == [it["nodes"] for it in local.report["culprits"]]
