"""The README and the pages of docs/ show what the program prints today."""

import re
import socket
import subprocess
from pathlib import Path

import pytest
from typer.main import get_command

from onnxbisect_cli.main import app
from support.cli.command_line import PROGRAM, Shell

ROOT = Path(__file__).parents[2]
REPORT = ROOT / "docs" / "first-report.md"


def test_the_report_on_its_page_is_that_of_the_demo(shell: Shell) -> None:
    shown = re.search(r"```console\n\$ onnx-bisect (.*)\n(?P<report>(?:.*\n)+?)```", REPORT.read_text())
    assert shown is not None
    (command, model, *options) = shown[1].split()
    assert shown[1] in (ROOT / "Makefile").read_text()
    printed = shell.call(command, str(ROOT / model), *options).out
    assert untimed(printed.replace(f"{ROOT}/", "")) == untimed(shown["report"])


def test_the_readme_shows_the_beginning_of_that_report_and_stays_short() -> None:
    readme = (ROOT / "README.md").read_text()
    shown = re.search(r"```text\n((?:.*\n)+?)```", readme)
    assert shown is not None
    lines = [line for line in shown[1].splitlines() if line.strip() not in ("", "…")]
    assert lines == [line for line in REPORT.read_text().splitlines() if line in lines]
    assert len(readme.splitlines()) <= 150


def test_the_readme_lists_every_command() -> None:
    table = (ROOT / "README.md").read_text().partition("## Commands")[2].partition("##")[0]
    listed = {
        word for cell in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for word in re.findall(r"`([\w-]+)", cell)
    }
    assert listed == set(get_command(app).commands)  # type: ignore[attr-defined]


def test_the_index_names_every_document() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    assert [
        it.name for it in (ROOT / "docs").glob("*.md") if it.name != "README.md" and f"({it.name})" not in index
    ] == []


def test_the_split_on_its_page_is_that_of_the_demo(shell: Shell) -> None:
    page = (ROOT / "docs" / "split.md").read_text()
    shown = re.search(r"```console\n\$ onnx-bisect (.*)\n\$ onnx-bisect (.*)\n(?P<split>(?:.*\n)+?)```", page)
    assert shown is not None
    (shell.folder / "examples").symlink_to(ROOT / "examples")
    shell.call(*shown[1].split())
    printed = shell.call(*shown[2].split()).out
    assert [line.rstrip() for line in printed.splitlines()] == shown["split"].splitlines()


@pytest.mark.long
def test_the_service_in_the_documents_answers(tmp_path: Path) -> None:
    shown = re.search(r"```sh\n(onnx-bisect serve .*?)```", (ROOT / "docs" / "run.md").read_text(), re.DOTALL)
    assert shown is not None
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    script = shown[1].replace("onnx-bisect serve", f"{PROGRAM} serve --port {port}").replace("8321", str(port))
    script = f"trap 'kill -INT %1; wait' EXIT\n{script}".replace("examples/", f"{ROOT}/examples/")
    bash = ["bash", "-euc", f"set -m\n{script}"]
    done = subprocess.run(bash, cwd=tmp_path, text=True, capture_output=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    assert '"verdict":"fail"' in done.stdout
    assert "20 units are not known to this profile: Clip 5, Gemm 15." in done.stdout


@pytest.mark.long
def test_the_service_in_the_documents_waits_for_no_other_server(tmp_path: Path) -> None:
    """Whoever has the port may answer what it likes."""
    shown = re.search(r"```sh\n(onnx-bisect serve .*\nuntil .*\n)", (ROOT / "docs" / "run.md").read_text())
    assert shown is not None
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        script = shown[1].replace("onnx-bisect serve", f"{PROGRAM} serve --port {port}")
        bash = ["bash", "-c", f"{script}\nwait $!"]
        done = subprocess.run(bash, cwd=tmp_path, text=True, capture_output=True, check=False, timeout=60)
        other.setblocking(False)
        with pytest.raises(BlockingIOError):  # nothing was sent there, least of all a token
            other.accept()
    assert done.returncode == 2
    assert "cannot be listened on" in done.stderr


def untimed(report: str) -> list[str]:
    """The lines of a report without the seconds it took and the digest of the profile."""
    return [re.sub(r"\d+\.\d s|\[\w{8}\]", "…", line) for line in report.splitlines()]
