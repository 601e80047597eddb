"""`onnx-bisect profile`: what runs on a compiler have shown, as a profile."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

import onnx_bisect
from onnxbisect_backends.simulator.profiles import Unlisted, load
from support.cli.command_line import Shell, culprits

#: A compiler, as a script: it refuses Sin, and Relu of tensors of rank 3.
CHIP = """
import sys, onnx
graph = onnx.shape_inference.infer_shapes(onnx.load(sys.argv[1])).graph
ranks = {v.name: len(v.type.tensor_type.shape.dim) for v in [*graph.input, *graph.value_info, *graph.output]}
bad = [n for n in graph.node if n.op_type == "Sin" or (n.op_type == "Relu" and ranks.get(n.input[0]) == 3)]
for node in bad[:1]:
    print(f"no {node.op_type}")
sys.exit(bool(bad))
"""
NET = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2,3] x, float[1,2,3] z) => (float[2,3] y, float[1,2,3] w) {
    a = Relu(x)  b = Sin(a)  y = LeakyRelu <alpha = 0.5> (b)  c = Abs(z)  w = Relu(c)
}"""


def save(shell: Shell, text: str, name: str = "net.onnx") -> str:
    onnx.save(onnx.parser.parse_model(text), shell.folder / name)
    return name


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the compiler and, below `out`, the report of a run."""
    folder = tmp_path_factory.mktemp("record")
    (folder / "chip.py").write_text(CHIP)
    text = 'name = "chip"\ntool = "chipc"\nversion = "3"\ncommand = ["{python}", "{here}/chip.py", "{model}"]\n'
    text += "[[patterns]]\nregex = 'no (?P<op>\\w+)'\nkind = 'unsupported'\nfails = true\n"
    (folder / "chip.toml").write_text(text.replace("{here}", str(folder)).replace("{python}", sys.executable))
    onnx.save(onnx.parser.parse_model(NET), folder / "net.onnx")
    onnx_bisect.diagnose(folder / "net.onnx", backend=folder / "chip.toml", cache=False).write(folder / "out")
    return folder


@pytest.fixture
def recorded(shell: Shell, record: Path) -> dict[str, Any]:
    """The report of a run, below `out`."""
    shutil.copytree(record, shell.folder, dirs_exist_ok=True)
    document: dict[str, Any] = json.loads((shell.folder / "out" / "report.json").read_text())
    return document


def asked(shell: Shell, text: str) -> dict[str, Any]:
    return shell.report(save(shell, text, "next.onnx"), "--backend", "whitelist", "--option", "profile=./seen.toml")


def one(op: str, shape: str = "2,3") -> str:
    return f'<ir_version: 8, opset_import: ["" : 17]> g (float[{shape}] x) => (float[{shape}] y) {{ y = {op}(x) }}'


def test_the_profile_answers_as_the_compiler_did(shell: Shell, recorded: dict[str, Any]) -> None:
    done = shell.call("profile", "--from", "out", "-o", "seen.toml")
    assert done.code == 0, done.err
    profile, _ = load(str(shell.folder / "seen.toml"))
    assert (profile.tool, profile.version, profile.unlisted) == ("chipc", "3", Unlisted.UNKNOWN)
    assert profile.refused.keys() == {"Sin"}
    assert {"Relu", "LeakyRelu", "Abs"} <= profile.ops.keys()
    again = asked(shell, NET)
    assert culprits(again) == culprits(recorded)
    assert again["certificate"]["status"] == "proven"


def test_beyond_what_was_seen_nothing_is_known(shell: Shell, recorded: dict[str, Any]) -> None:
    shell.call("profile", "--from", "out", "-o", "seen.toml")
    expected = {
        one("Relu"): "pass",
        one("Relu", "1,2,3"): "fail",
        one("Relu", "1,1,2,3"): "unresolved",
        one("Abs", "4,5,6"): "pass",
        one("Abs"): "unresolved",
        one("LeakyRelu <alpha = 0.5>"): "pass",
        one("LeakyRelu"): "unresolved",
        one("Cosh"): "unresolved",
        one("Sin", "4"): "fail",
    }
    assert {net: asked(shell, net)["verdict"] for net in expected} == expected


def test_several_reports_add_up(shell: Shell, recorded: dict[str, Any]) -> None:
    shell.report(save(shell, one("Abs"), "more.onnx"), "--backend", "chip.toml", "--out", "more")
    assert shell.call("profile", "--from", "out", "more/report.json", "-o", "seen.toml").code == 0
    assert asked(shell, one("Abs"))["verdict"] == "pass"


def test_what_is_no_record_is_refused_in_a_sentence(shell: Shell, recorded: dict[str, Any]) -> None:
    report = shell.folder / "out" / "report.json"
    document = json.loads(report.read_text())

    def told(name: str, **changes: Any) -> str:
        Path(shell.folder / name).write_text(json.dumps({**document, **changes}))
        done = shell.call("profile", "--from", "out", "--from", name, "-o", "seen.toml")
        assert done.code == 2
        return done.err

    assert "one compiler" in told("other.json", target={**document["target"], "version": "4"})
    assert "simulated" in told("simulated.json", target={**document["target"], "backend": "whitelist"})
    assert "'uses[0].op' is missing or wrong" in told("damaged.json", uses=[{"op": 3}])
    document.pop("uses")
    assert "older onnx-bisect" in told("older.json")
    assert "ends in .toml" in shell.call("profile", "--from", "out", "-o", "seen.json").err
