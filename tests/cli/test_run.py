"""`onnx-bisect run` as a user meets it: real processes, real files, opaque compilers with known truth."""

import json
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Callable
from pathlib import Path

import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper

from support.cli.command_line import CASES, Shell, check, culprits, truth

C2 = str(CASES / "c2_chain100_3bad.onnx")


@pytest.mark.parametrize(
    "case", ["c1_chain100_1bad", "c5_chain100_farpair", "c9_transformer_fused", "c12_custom_domain"]
)
def test_all_culprits_and_no_others_proven(shell: Shell, case: str) -> None:
    report = shell.report(str(CASES / f"{case}.onnx"), *check(case))
    assert culprits(report) == truth(case)
    assert report["certificate"]["status"] == "proven"


def test_the_files_of_each_culprit_reproduce_it(shell: Shell) -> None:
    out = shell.folder / "out"
    done = shell.call("run", C2, "--out", str(out), *check("c2_chain100_3bad", "--log", "calls.jsonl"))
    assert done.code == 1
    assert "proven" in done.out
    report = json.loads((out / "report.json").read_text())
    assert culprits(report) == truth("c2_chain100_3bad")
    calls = (shell.folder / "calls.jsonl").read_text().splitlines()
    assert len(calls) == report["stats"]["compiler_calls"] <= 11
    names = ("report.md", "report.html", "junit.xml", "report.sarif", "gitlab-codequality.json")
    for name in (*names, "model-explorer/graph.json", "model-explorer/verdicts.json"):
        assert (out / name).stat().st_size > 100
    for culprit in report["culprits"]:
        repro = out / culprit["repro"]
        assert [node.name for node in onnx.load(repro).graph.node] == culprit["nodes"]
        assert (repro.parent / "compiler.log").exists()
        assert (repro.parent / "README.md").exists()
        rule = str(CASES / "c2_chain100_3bad.json")
        again = subprocess.run([sys.executable, str(CASES / "check.py"), str(repro), "--rule", rule])
        assert again.returncode == 1


def test_no_culprit_of_the_demo_is_without_its_file(shell: Shell) -> None:
    """Many of them were judged by another place of equal structure."""
    options = ("--backend", "whitelist", "--option", "profile=edgesam", "--out", "out")
    done = shell.call("run", str(CASES.parents[1] / "examples" / "sam_decoder.onnx"), *options)
    assert "has no model.onnx" not in done.err
    found = list((shell.folder / "out" / "culprits").iterdir())
    assert len(found) == 7
    assert [folder.name for folder in found if not (folder / "model.onnx").exists()] == []


def test_a_second_run_asks_nothing_and_says_the_same(shell: Shell) -> None:
    command = [C2, *check("c2_chain100_3bad", "--log", "calls.jsonl")]
    first = shell.report("--jobs", "3", *command)
    calls = (shell.folder / "calls.jsonl").read_text()
    for options in ([], ["--jobs", "3"], ["--out", "out"]):
        second = shell.report(*options, *command)
        assert (shell.folder / "calls.jsonl").read_text() == calls
        assert second["stats"]["compiler_calls"] == 0
        assert second["stats"]["cached"] == len(second["probes"])
        for part in ("verdict", "culprits", "certificate", "op_table", "partition"):
            assert second[part] == first[part], part
    assert len(list((shell.folder / "out" / "culprits").glob("*/model.onnx"))) == 3


def test_a_repaired_model_asks_only_for_what_changed(shell: Shell) -> None:
    shell.report(C2, *check("c2_chain100_3bad"))
    model = onnx.load(C2)
    (node,) = [node for node in model.graph.node if node.name == "n17_Asinh"]
    node.op_type = "Relu"
    onnx.save(model, shell.folder / "repaired.onnx")
    report = shell.report("repaired.onnx", *check("c2_chain100_3bad"))
    assert len(report["culprits"]) == 2
    assert report["stats"]["compiler_calls"] <= 5
    assert report["certificate"]["status"] == "proven"


def test_an_edited_compiler_is_another_compiler(shell: Shell) -> None:
    script = shell.folder / "compiler.py"
    script.write_text("raise SystemExit(1)")
    small = _small(shell.folder)
    command = [small, "--", sys.executable, "compiler.py", "{model}"]
    assert shell.report(*command)["verdict"] == "fail"
    script.write_text("raise SystemExit(0)")
    assert shell.report(*command)["verdict"] == "pass"


def test_no_cache_neither_reads_nor_writes(shell: Shell) -> None:
    command = ["--no-cache", C2, "--backend", "whitelist", "--option", "deny=Asinh"]
    first = shell.report(*command)
    assert not (shell.folder / "cache").exists()
    assert shell.report(*command)["stats"]["compiler_calls"] == first["stats"]["compiler_calls"] > 0


def test_a_damaged_verdict_base_costs_a_sentence(shell: Shell) -> None:
    (shell.folder / "cache").mkdir()
    (shell.folder / "cache" / "verdicts.sqlite").write_bytes(b"no database" * 1000)
    done = shell.call("run", _small(shell.folder), "--", "true", "{model}")
    assert done.code == 0
    assert "could not be read; it was moved to" in done.err


def test_a_budget_of_calls_ends_bounded_and_the_next_run_goes_on(shell: Shell) -> None:
    command = [C2, *check("c2_chain100_3bad", "--log", "calls.jsonl")]
    bounded = shell.report("--budget-calls", "3", *command)
    assert bounded["stats"]["compiler_calls"] == 3
    assert bounded["certificate"]["status"] == "bounded"
    assert bounded["certificate"]["unknown"]
    complete = shell.report(*command)
    assert culprits(complete) == truth("c2_chain100_3bad")
    calls = [json.loads(line) for line in (shell.folder / "calls.jsonl").read_text().splitlines()]
    assert len({json.dumps(call) for call in calls}) == len(calls) == complete["stats"]["compiler_calls"] + 3


def test_a_budget_of_seconds_ends_in_time(shell: Shell) -> None:
    report = shell.report("--budget-seconds", "1", C2, *check("c2_chain100_3bad", "--sleep", "30"))
    assert report["stats"]["wall_seconds"] < 5
    assert report["certificate"]["status"] == "bounded"
    assert report["probes"] == []


#: The compiler of c2, but that it hangs on Cosh alone until a file is there.
HANGS = """
import os, re, sys, time
ops = set(re.findall(r"n\\d+_(\\w+)\\x22", open(sys.argv[1], encoding="latin1").read()))
if ops == {"Cosh"} and not os.path.exists(sys.argv[2]):
    time.sleep(300)
sys.exit(bool(ops & {"Asinh", "Cosh", "Atan"}))
"""


def test_a_probe_that_hangs_costs_a_few_times_what_others_cost(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    # as if half a minute were worth saving here
    monkeypatch.setattr("onnxbisect_backends.probing.prober._SHORTEST", 3.0)
    mended = shell.folder / "mended"
    command = ["--timeout", "200", C2, "--", sys.executable, "-c", HANGS, "{model}", str(mended)]

    report = shell.report(*command)

    (hung,) = [probe for probe in report["probes"] if probe["verdict"] == "unresolved"]
    assert hung["kind"] == "timeout"
    assert "was expected to take" in hung["message"]
    assert hung["seconds"] < 40
    assert culprits(report) == [["n17_Asinh"], ["n88_Atan"]]  # nothing is said of what gave no answer
    assert report["unresolved"] == hung["units"]
    assert report["certificate"]["status"] == "bounded"

    mended.touch()
    report = shell.report(*command)  # what gave no answer was not kept
    assert culprits(report) == truth("c2_chain100_3bad")
    assert report["certificate"]["status"] == "proven"


def test_a_model_that_compiles_is_zero_and_one_call(shell: Shell) -> None:
    done = shell.call("run", C2, "--", "true", "{model}")
    assert done.code == 0
    assert "compiles" in done.out
    assert "1 compiler call" in done.out


def test_what_just_compiled_is_not_compiled_again_for_its_files(shell: Shell) -> None:
    """A command that writes none had every model that compiles compiled twice."""
    asks = ("--", sys.executable, "-c", "print(open('calls', 'a').write('x'))", "{model}")
    for times in (1, 2):  # what is known from an earlier run has no files, and is asked for them
        done = shell.call("run", C2, "--out", "out", *asks)
        assert done.code == 0
        assert "\n1 compiler call " in done.out
        assert (shell.folder / "calls").read_text() == "x" * times


@pytest.mark.timeout(30)
def test_a_compiler_that_never_answers_is_three(shell: Shell) -> None:
    done = shell.call("run", _small(shell.folder), "--", sys.executable, "-c", "exit(125)", "{model}")
    assert done.code == 3


def test_a_backend_by_name_with_options(shell: Shell) -> None:
    done = shell.call("run", C2, "--backend", "whitelist", "--option", "deny=Asinh,Cosh,Atan")
    assert done.code == 1
    for node in ("n17_Asinh", "n52_Cosh", "n88_Atan"):
        assert node in done.out
    assert "--out DIR" in done.err
    assert "\x1b" not in done.out + done.err


def test_plain_progress_has_a_line_for_each_verdict(shell: Shell) -> None:
    done = shell.call("run", C2, "--backend", "whitelist", "--option", "deny=Asinh")
    lines = [line for line in done.err.splitlines() if line.startswith("[")]
    assert lines[0].startswith("[1/1] fail (unsupported): the whole model (100 units")
    assert [line.partition("/")[0] for line in lines] == [f"[{number}" for number in range(1, len(lines) + 1)]


def test_hostile_names_and_logs_stay_on_their_lines(shell: Shell) -> None:
    evil = "a\x1b[2J\u202eb\nonnx-bisect: forged\x07"
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    nodes = [helper.make_node("Relu", ["x"], [evil]), helper.make_node("Sinh", [evil], ["y"], name=evil)]
    graph = helper.make_graph(nodes, "g", value[:1], value[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (shell.folder / "evil.onnx").write_bytes(model.SerializeToString())
    code = (
        "import sys, onnx; ops = [n.op_type for n in onnx.load(sys.argv[1]).graph.node];"
        "print('error: \\x1b[31mSinh\\u202e refused'); sys.exit('Sinh' in ops)"
    )
    out = shell.folder / "out"
    done = shell.call("run", "evil.onnx", "--out", str(out), "--", sys.executable, "-c", code, "{model}")
    assert done.code == 1
    for char in (done.out + done.err).replace("\n", ""):
        assert unicodedata.category(char) not in {"Cc", "Cf"}, repr(char)
    assert not any(line.startswith("onnx-bisect: forged") for line in (done.out + done.err).splitlines())
    assert json.loads((out / "report.json").read_text())["culprits"][0]["nodes"] == [evil]


def test_a_stale_file_of_an_earlier_run_does_not_pass_for_verified(shell: Shell) -> None:
    command = [C2, "--out", "out", *check("c2_chain100_3bad")]
    shell.call("run", *command)
    files = sorted((shell.folder / "out" / "culprits").glob("*/model.onnx"))
    assert len(files) == 3
    files[0].write_bytes(b"stale")
    shell.call("run", *command)
    assert files[0].read_bytes() != b"stale"


def _small(folder: Path) -> str:
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    nodes = [helper.make_node("Relu", ["x"], ["a"], name="a"), helper.make_node("Sinh", ["a"], ["y"], name="b")]
    graph = helper.make_graph(nodes, "g", value[:1], value[1:])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "small.onnx"
    )
    return "small.onnx"


def test_a_file_newer_than_the_compiler_is_said_to_read_is_announced_and_no_error_once_it_passed(shell: Shell) -> None:
    backend = shell.folder / "old.toml"
    backend.write_text('name = "old"\ntool = "Oldie"\ncommand = ["true", "{model}"]\nnewest_ir = 3\n')
    done = shell.call("run", C2, "--backend", str(backend))
    ir = onnx.load(C2).ir_version
    assert "ir-newer-than-tool" not in done.out
    assert done.err.index(f"IR version {ir}, Oldie reads up to 3") < done.err.index("[1/")
    found = {finding["id"]: finding["severity"] for finding in shell.report(C2, "--backend", str(backend))["preflight"]}
    assert found["ir-newer-than-tool"] == "warning"


_FILLS = """
import subprocess, sys
from pathlib import Path

other, calls = {paths}
model, *check = sys.argv[1:]
done = subprocess.run([sys.executable, check[0], model, *check[1:]])
with Path(calls).open("a") as file:
    file.write("x")
if Path(calls).stat().st_size == 3:
    try:
        with Path(other).open("wb", buffering=0) as file:
            while file.write(bytes(512)):
                pass
    except OSError:
        pass
sys.exit(done.returncode)
"""


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_full_disk_ends_the_run_and_verdicts_so_far_are_kept(
    shell: Shell, small_disk: Callable[[int], Path], jobs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = small_disk(4096)
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    script, calls, other = shell.folder / "fills.py", shell.folder / "calls", disk / "something else"
    # what the command names is part of what verdicts are kept under
    script.write_text(_FILLS.format(paths=(str(other), str(calls))))
    rule = CASES / "c2_chain100_3bad.json"
    compiler = [sys.executable, str(script), "{model}", str(CASES / "check.py")]
    command = ["--jobs", jobs, C2, "--", *compiler, "--rule", str(rule)]
    ended = shell.call("run", *command)
    assert (ended.code, ended.out) == (3, "")
    assert ended.err.splitlines()[-1].startswith("onnx-bisect: The disk")
    assert "Verdicts so far are kept" in ended.err
    before = calls.stat().st_size
    other.unlink()
    report = shell.report(*command)
    assert culprits(report) == truth("c2_chain100_3bad")
    assert report["stats"]["cached"] >= 2
    assert calls.stat().st_size - before == report["stats"]["compiler_calls"]


def test_a_changed_file_that_compiles_is_named_with_the_command_that_writes_it(shell: Shell) -> None:
    tool = shell.folder / "tool.py"
    tool.write_text("import sys, onnx\nsys.exit(onnx.load(sys.argv[1]).ir_version > 9)\n")
    model = shell.folder / "new.onnx"
    proto = onnx.load(C2)
    proto.ir_version = 11
    onnx.save(proto, model)
    done = shell.call("run", str(model), "--", sys.executable, str(tool), "{model}")
    assert done.code == 1
    assert "after: ir_version 11 → 9 (verified, 1 call)" in done.out
    assert "onnx-bisect fix" in done.out
    as_is = shell.call("run", str(model), "--as-is", "--budget-calls", "2", "--", sys.executable, str(tool), "{model}")
    assert "does not compile" in as_is.out


def test_other_options_are_tried_and_told(shell: Shell) -> None:
    given = ("--backend", "whitelist", "--option", "deny=Asinh,Atan", "--try", "deny=Atan;Cosh", "--out", "out")
    done = shell.call("run", C2, *given)
    assert done.code == 1
    assert "deny=Atan;Cosh  takes 1 of 2 culprits: 1" in done.out
    report = json.loads((shell.folder / "out" / "report.json").read_text())
    assert [it["options"] for it in report["alternatives"]] == [{"deny": "Atan;Cosh"}]
    assert "## Other options" in (shell.folder / "out" / "report.md").read_text()


@pytest.mark.parametrize("target", [["--", "true", "{model}"], ["-b", "whitelist", "-b", "onnxruntime"]])
def test_other_options_are_for_one_backend(shell: Shell, target: list[str]) -> None:
    done = shell.call("run", "--try", "all", C2, *target)
    assert done.code == 2
    assert "--try is for one --backend" in done.err


#: An op that a compiler may refuse in a body, once in a branch, once in a loop, and once in a branch within a loop.
BODIES = {
    "If (then_branch)": """[holder] b = If (go) <then_branch = t () => (float[1,8] p) { [sin] p = Sin (r) },
        else_branch = e () => (float[1,8] q) { [cos] q = Cos (r) }>""",
    "Loop (body)": """[holder] b = Loop (n, go, r) <body = body (int64 i, bool c, float[1,8] s) =>
        (bool d, float[1,8] o) { [keep] d = Identity (c) [sin] o = Sin (s) }>""",
    "Loop (body > then_branch)": """[holder] b = Loop (n, go, r) <body = body (int64 i, bool c, float[1,8] s) =>
        (bool d, float[1,8] o) { [keep] d = Identity (c) [choose] o = If (c) <
            then_branch = t () => (float[1,8] p) { [sin] p = Sin (s) },
            else_branch = e () => (float[1,8] q) { [cos] q = Cos (s) }> }>""",
}


@pytest.mark.parametrize("place", BODIES)
@pytest.mark.parametrize("tool", ["all", "first", "command"])
def test_what_a_body_holds_is_named_where_the_log_names_it(shell: Shell, place: str, tool: str) -> None:
    body = f"""<ir_version: 8, opset_import: ["": 17]> g (float[1,8] x, int64 n, bool go) => (float[1,8] y) {{
        [relu] r = Relu (x) {BODIES[place]} [end] y = Sigmoid (b) }}"""
    onnx.save(onnx.parser.parse_model(body), shell.folder / "net.onnx")
    options = ["--option", "deny=Sin", "--option", f"report={tool}"]
    target = ["--backend", "whitelist", *options]
    if tool == "command":
        (shell.folder / "compile.py").write_text(
            "import sys\n"
            "refused = b'Sin' in open(sys.argv[1], 'rb').read()\n"
            "sys.exit('ERROR: unsupported op Sin at node sin' if refused else 0)\n"
        )
        target = ["--", sys.executable, "compile.py", "{model}"]
    done = shell.call("run", "net.onnx", "--as-is", "--no-cache", "-o", "out", *target)
    holder, within = place.split(" ", 1)
    (culprit,) = json.loads((shell.folder / "out" / "report.json").read_text())["culprits"]
    assert culprit["ops"] == [holder]
    assert culprit["refused_within"] == [{"op": "Sin", "node": "sin", "body": within.strip("()")}]
    written = [(shell.folder / "out" / name).read_text() for name in ("report.md", "report.html")]
    for shown in (done.out, *written):
        assert f"efused inside of it: Sin {within}" in shown.replace("&gt;", ">").replace("\\", "")
