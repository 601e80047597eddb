"""`onnx-bisect backends` and what stands after it."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from onnxbisect.probe_format import ProbeFormat
from onnxbisect_backends.sandbox import isolation
from onnxbisect_backends.toolchains import toolchain
from onnxbisect_backends.toolchains.toolchain import Toolchain, toolchain_named
from onnxbisect_cli import backend_list
from support.backends.tiny_index import TINY as INDEX
from support.cli.command_line import Shell

TINY = Toolchain(
    name="tiny",
    version="1.5",
    pythons=("3.99",),
    requirements=("tiny==1.5",),
    elsewhere={},
    set_aside=(),
    gigabytes=0.1,
    digest="d",
)


def paragraph(text: str, name: str) -> str:
    """What the list says of a backend, as one line."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.split()[:1] == [name])
    end = start + 1
    while lines[end].startswith(" "):
        end += 1
    return " ".join(" ".join(lines[start:end]).split())


def toml(shell: Shell, script: str, more: str = "") -> str:
    (shell.folder / "c.toml").write_text(
        f"name = 'c'\ncommand = ['sh', '-c', '''{script}''', 'sh', '{{model}}']\n{more}"
    )
    return "./c.toml"


def test_the_list_says_of_each_whether_it_can_be_used(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    info = shell.folder / "plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[onnx_bisect.backends]\nhostile = hostile_plugin:X\nraising = raising_plugin:Raising\n"
    )
    (shell.folder / "hostile_plugin.py").write_text("raise RuntimeError('\\x1b]0;evil\\x07')")
    (shell.folder / "raising_plugin.py").write_text(
        "class Raising:\n  def __init__(self, options): pass\n  def check(self): raise KeyError('licence')\n"
    )
    monkeypatch.syspath_prepend(shell.folder)
    for name in ("hostile_plugin", "raising_plugin"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    done = shell.call("backends")

    assert done.code == 0
    assert paragraph(done.out, "onnxruntime").startswith("onnxruntime usable onnxruntime 1.")
    assert "the whitelist backend needs to know" in paragraph(done.out, "whitelist")
    # the shell's cache is empty
    assert "openvino 2026.4.1 is not installed; run: onnx-bisect backends install openvino==2026.4.1" in (
        paragraph(done.out, "openvino")
    )
    assert "\x1b" not in done.out
    assert r"broken RuntimeError: \x1b]0;evil\x07" in paragraph(done.out, "hostile")
    assert "broken KeyError: 'licence'" in paragraph(done.out, "raising")
    level = isolation.available()
    assert f"Isolation of compiles, and of what reads models, in a service on this machine: {level}" in done.out


def test_check_compiles_a_net(shell: Shell) -> None:
    done = shell.call("backends", "check", "onnxruntime", "--option", "optimization=disable_all")

    assert done.code == 0
    assert "compiles a small net of convolutions" in done.out


def test_check_shows_a_failure_with_its_log(shell: Shell) -> None:
    name = toml(shell, r'printf "\033[31mfirst\033[0m \033]0;evil\007\nerror: no licence\n"; exit 1')

    done = shell.call("backends", "check", name)

    assert done.code == 1
    assert "fails on a small net" in done.out
    assert "error: error: no licence" in done.out
    assert r"  first \x1b]0;evil\x07" in done.out.splitlines()
    assert "\x1b" not in done.out


@pytest.mark.parametrize(
    ("script", "more", "words"),
    [
        ("exit 9", "[unresolved]\nexit_codes = [9]", "gives no answer"),
        ("exit 0", "toolchain = 'openvino'", "backends install openvino==2026.4.1"),
    ],
)
def test_check_of_what_gives_no_answer(shell: Shell, script: str, more: str, words: str) -> None:
    done = shell.call("backends", "check", toml(shell, script, more))

    assert done.code == 3
    assert words in done.out + done.err


@pytest.mark.parametrize(
    "measured",
    [
        ProbeFormat(empty_inputs=False),
        ProbeFormat(safe_names=True),
        ProbeFormat(longest_name=100),
        ProbeFormat(min_input_rank=1),
        ProbeFormat(max_output_rank=4),
        ProbeFormat(input_dtypes=frozenset({"float"})),
    ],
    ids=str,
)
def test_a_limit_is_missing_until_it_is_declared(measured: ProbeFormat) -> None:
    [(name, _)] = backend_list._lines(measured)
    assert not backend_list._covers(ProbeFormat(), measured, name)
    assert backend_list._covers(measured, measured, name)


def test_options_are_explained(shell: Shell) -> None:
    name = toml(shell, "", "[options.chip]\ndefault = 'mc1'\nchoices = ['mc1', 'mc2']\nhelp = 'the chip'")
    (shell.folder / "c.toml").write_text((shell.folder / "c.toml").read_text().replace("'sh',", "'sh', '{chip}',", 1))

    assert shell.call("backends", "options", name).out == "chip=mc1|mc2  (default: mc1)\n    the chip\n"
    assert "profile=acuity-6.57.1|edgesam|" in shell.call("backends", "options", "whitelist").out


@pytest.mark.parametrize("words", [["tiny", "there"], ["--all"], ["there", "--all"]], ids=" ".join)
def test_one_that_cannot_be_installed_does_not_stop_the_others(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    there = replace(TINY, name="there")
    for module in (toolchain, backend_list):
        monkeypatch.setattr(module, "toolchains", lambda: {"tiny": (TINY,), "there": (there,)})
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", shell.environment["ONNXBISECT_CACHE_DIR"])
    (there.folder / "bin").mkdir(parents=True)
    there.python.symlink_to(sys.executable)
    (there.folder / "onnx-bisect-complete").touch()

    done = shell.call("backends", "install", *words)

    assert done.code == 3
    assert done.out == f"there 1.5: installed in {there.folder}\n"
    assert done.err.startswith("onnx-bisect: tiny 1.5 runs on CPython 3.99, which was not found")
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("", "Name what to install, or say --all; there are "),
        ("opnvino", "'opnvino' is no compiler that can be installed; did you mean 'openvino'?"),
        ("trtexec", "'trtexec' cannot be installed by this program. The command 'trtexec' was not found"),
        ("onnxruntime", "'onnxruntime' needs nothing installed"),
        ("whitelist", "'whitelist' needs nothing installed"),
    ],
)
def test_what_cannot_be_installed_is_said_before_anything_is(shell: Shell, name: str, sentence: str) -> None:
    done = shell.call("backends", "install", *(["openvino", name] if name else []))

    assert done.code == 2
    assert sentence in done.sentence()
    assert not Path(shell.environment["ONNXBISECT_CACHE_DIR"], "toolchains").exists()


@pytest.mark.long
def test_a_version_of_the_package_index_is_resolved_and_installed(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    INDEX.put_up(shell.folder, monkeypatch)
    done = shell.call("backends", "install", "tiny==1.0", "tiny==3")
    assert done.code == 2
    assert "'3' is no version of tiny on the package index; valid: 1.0, 1.10, 1.2." in done.err
    assert not toolchain_named("tiny==1.0").installed

    done = shell.call("backends", "install", "tiny==1.2")

    assert done.code == 0, done.err
    assert "tiny 1.2: finding out what it needs" in done.out
    assert "tiny 1.2: installed in" in done.out
    assert toolchain_named("tiny==1.2").installed
    assert shell.call("backends", "install", "tiny==1.2").out.startswith("tiny 1.2: installed in")
