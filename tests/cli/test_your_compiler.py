"""docs/your-compiler.md does what it says, and a folder of TOML files is read by every process of a service."""

import re
import shutil
import socket
import subprocess
from pathlib import Path

import onnx
import pytest
from onnx import parser

from onnxbisect.errors import OptionError
from onnxbisect_backends import registry
from support.cli.command_line import PROGRAM, Shell

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SMALL = """<ir_version: 8, opset_import: ["": 17]>
g (float[2] x) => (float[2] y) { a = Relu(x)  b = Sin(a)  y = Add(b, x) }"""


def folder_with(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.toml").write_text(text)
    return folder


@pytest.mark.long
def test_every_step_of_the_page_works(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "your-compiler.md").read_text().partition("### Several machines")[0]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    steps = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    assert len(steps) == 3
    script = "".join(steps).replace("8321", port)
    for command in ("run", "submit"):  # the decoder does not compile: exit status 1
        script = re.sub(rf"^(onnx-bisect {command} .*)$", r"\1 || test $? -eq 1", script, flags=re.MULTILINE)
    script = script.replace("onnx-bisect ", f"{PROGRAM} ").replace(
        "python examples", f"{Path(PROGRAM).parent}/python examples"
    )
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    onnx.save(parser.parse_model(SMALL), tmp_path / "examples" / "sam_decoder.onnx")  # the decoder takes minutes
    bash = ["bash", "-euc", f"set -m\ntrap 'kill -INT %1; wait' EXIT\n{script}"]
    environment = {"PATH": "/usr/bin:/bin", "ONNXBISECT_CACHE_DIR": str(tmp_path / "cache"), "HOME": str(tmp_path)}

    done = subprocess.run(bash, cwd=tmp_path, env=environment, text=True, capture_output=True, check=False, timeout=280)

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("sam_decoder.onnx does not compile for ") == 3
    assert "sam_decoder.onnx does not compile for mychip (chip=mc1)" in done.stdout
    assert list((tmp_path / "from-service").rglob("report.html"))


def test_a_folder_of_files_is_found_by_name(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_with(shell.folder / "compilers", "mychip", (EXAMPLES / "mychip.toml").read_text())
    shutil.copy(EXAMPLES / "mychip.py", folder)
    monkeypatch.setenv(registry.FOLDER, "compilers")
    monkeypatch.chdir(shell.folder)

    registry.check_own_folder()

    found = registry.available()["mychip"]
    assert (found.origin, registry.find("mychip").name) == (str(folder / "mychip.toml"), "mychip")
    assert "mychip" in shell.call("backends").out


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "mine",
            'name = "other"\ncommand = ["true", "{model}"]',
            "describes the backend 'other': call the file other.toml.",
        ),
        ("qnn", 'name = "qnn"\ncommand = ["true", "{model}"]', "there is a backend 'qnn' already"),
        ("mine", 'name = "mine"\ncomand = ["true"]', "comand"),
    ],
)
def test_a_wrong_file_is_refused_at_the_start(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, name: str, text: str, words: str
) -> None:
    folder = folder_with(shell.folder / "compilers", name, text)
    monkeypatch.setenv(registry.FOLDER, "")  # `serve` sets it for its children, this process is one

    done = shell.call("serve", "--port", "0", "--data", str(shell.folder / "data"), "--backends", str(folder))

    assert done.code == 2
    assert words in done.sentence()
    monkeypatch.setenv(registry.FOLDER, str(folder))
    with pytest.raises(OptionError):
        registry.check_own_folder()


def test_what_is_no_folder_is_refused(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(registry.FOLDER, "")
    done = shell.call("serve", "--port", "0", "--data", "data", "--backends", str(shell.folder / "none"))

    assert done.code == 2
    assert "which is no folder" in done.sentence()
