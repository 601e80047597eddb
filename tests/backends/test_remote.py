"""What may be asked of backends over the network."""

from pathlib import Path

import pytest

from onnxbisect.errors import OptionError
from onnxbisect_backends import registry, remote
from onnxbisect_backends.registry import LoadedBackend


def test_a_backend_by_name_with_options() -> None:
    assert remote.make("whitelist", {"profile": "edgesam"}).options["profile"] == "edgesam"
    assert remote.make("hb_mapper", {"march": "bayes"}).options["march"] == "bayes"


def test_what_names_something_of_the_machine_is_refused_before_it_is_looked_at(tmp_path: Path) -> None:
    for backend, option, value in (
        ("tpu-mlir", "home", str(tmp_path)),
        ("vela", "converter", "/bin/sh"),
        ("pulsar2", "config", "/etc/passwd"),
        ("pulsar2", "image", "evil:latest"),
        ("whitelist", "profile", "/etc/passwd.toml"),
    ):
        with pytest.raises(OptionError, match=f"option '{option}' .* is for the command line"):
            remote.make(backend, {option: value})


def test_a_local_option_takes_its_default() -> None:
    assert remote.make("vela", {"converter": "onnx-to-tflite"}).options["converter"] == "onnx-to-tflite"


def test_a_command_in_a_file_is_for_the_command_line(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('name = "mine"\ncommand = ["touch", "{model}"]\n')
    with pytest.raises(OptionError, match="command line"):
        remote.make(str(mine), {})


def test_a_value_is_no_flag() -> None:
    with pytest.raises(OptionError, match="begins like a flag"):
        remote.make("hailo", {"hw_arch": "--output=/etc/passwd"})
    with pytest.raises(OptionError, match="greater than or equal"):
        remote.make("whitelist", {"delay": "-1.5"})  # a number is judged by the backend


def test_a_wrong_name_or_option_has_the_nearest_one_named() -> None:
    with pytest.raises(OptionError, match="did you mean 'whitelist'"):
        remote.make("whitelst", {})
    with pytest.raises(OptionError, match="did you mean 'optimization'"):
        remote.make("onnxruntime", {"optimisation": "enable_all"})


def test_what_a_backend_does_not_tell_of_is_not_asked_of_it() -> None:
    silent = LoadedBackend(name="silent", factory=lambda options: pytest.fail("made"), summary="", origin="plugin")
    with pytest.raises(OptionError, match="it has none"):
        remote.refuse_local(silent, {"script": "/bin/sh"})


def test_a_compiler_s_file_marks_its_options(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(
        'name = "mine"\ncommand = ["{tool}", "{model}"]\n[options.tool]\ndefault = "cc"\nchoices = ["cc", "gcc"]\n'
        "local = true\n"
    )
    backend = registry.find(str(mine))
    remote.refuse_local(backend, {"tool": "gcc"})
    with pytest.raises(OptionError, match=r"command line there; choose among cc, gcc\."):
        remote.refuse_local(backend, {"tool": "./mine"})
