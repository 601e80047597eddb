"""Line 9 of the security checklist: what compilers are started with is the operator's word, never a stranger's.

What would be started is looked at, so that this holds for compilers that are not installed here, too.
"""

import json
import re
from pathlib import Path
from typing import Any

import onnx
import pytest

from onnxbisect.errors import OnnxBisectError, OptionError
from onnxbisect_backends import registry, remote
from onnxbisect_backends.contract import Limits
from onnxbisect_backends.measurement.sample_models import write_whole
from onnxbisect_backends.registry import LoadedBackend
from onnxbisect_backends.sandbox import process
from onnxbisect_backends.testing import conv_net

BACKENDS = {name: it for name, it in registry.available().items() if isinstance(it, LoadedBackend)}
#: Those that want to know more.
OPTIONS = {"whitelist": {"deny": "Sin"}, "pulsar2": {"image": "pulsar2:5.0"}}
HOSTILE = "--config=@/etc/passwd"


def hostile_net() -> onnx.ModelProto:
    """The same net with names that are options, files of options, and substitutions."""
    model = conv_net()
    for number, node in enumerate(model.graph.node):
        node.name = f"{HOSTILE}$(id)`id`;{number}"
        node.output[:] = [f"-o{name}" if name != "y" else name for name in node.output]
        node.input[:] = [
            f"-o{name}" if any(f"-o{name}" in other.output for other in model.graph.node) else name
            for name in node.input
        ]
    model.graph.name = model.producer_name = model.domain = HOSTILE
    model.metadata_props.add(key=HOSTILE, value=HOSTILE)
    return model


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The orders of what would be started, each of which ends with exit status 1."""
    orders: list[dict[str, Any]] = []

    def supervisor(order: bytes, _deadline: float) -> bytes:
        orders.append(json.loads(order))
        nothing = ("complaint", "cancelled", "timed_out", "over_memory", "signal", "survivors", "truncated")
        ended = {**dict.fromkeys(nothing), "exit_code": 1, "seconds": 0.0, "peak_memory": 0}
        return json.dumps(ended).encode() + b"\n"

    monkeypatch.setattr(process, "_ask_supervisor", supervisor)
    monkeypatch.setattr(process, "find_executable", lambda command, **_: f"/usr/bin/{Path(command).name}")
    return orders


def commands(name: str, model: onnx.ModelProto, folder: Path, orders: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the backend would start for a model; paths are given as whoever calls it might have them: relative."""
    probe, workdir = Path("-probe/model.onnx"), Path("-work")
    for path in (probe.parent, workdir):
        folder.joinpath(path).mkdir(parents=True)
    onnx.save(model, folder / "source.onnx")
    backend = registry.make(name, OPTIONS.get(name, {}))
    try:
        write_whole(folder / "source.onnx", backend.describe(), probe)
    except OnnxBisectError:  # it cannot tell its version, being only looked at
        onnx.save(model, probe)
    orders.clear()
    backend.compile(probe, workdir, Limits(seconds=5))
    return list(orders)


@pytest.mark.parametrize("name", BACKENDS)
def test_9_a_model_has_no_say_in_what_is_started(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[dict[str, Any]]
) -> None:
    told: list[str] = []
    for model in (conv_net(), hostile_net()):
        folder = tmp_path / str(len(told))
        folder.mkdir()
        monkeypatch.chdir(folder)
        found = commands(name, model, folder, started)
        assert found or name == "whitelist", "which starts nothing"
        told.append(re.sub("onnx-bisect-[0-9a-f]{16}", "container", json.dumps(found).replace(str(folder), "")))
        for order in found:
            assert not [word for word in order["argv"] if word.startswith(("-probe", "-work"))], "a path as an option"
    plain, hostile = told
    assert HOSTILE not in hostile
    assert hostile == plain


@pytest.mark.parametrize("value", ["--evil", "-o/etc/cron.d/evil", "-"])
@pytest.mark.parametrize("name", BACKENDS)
def test_9_an_option_is_none_of_the_compiler(name: str, value: str) -> None:
    for option in BACKENDS[name].options:
        with pytest.raises(OptionError):
            remote.make(name, {**OPTIONS.get(name, {}), option.name: value})


def test_9_an_option_that_the_backend_does_not_have_is_refused() -> None:
    for name in BACKENDS:
        with pytest.raises(OptionError):
            remote.make(name, {"--evil": "1"})
