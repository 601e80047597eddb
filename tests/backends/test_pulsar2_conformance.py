"""The pulsar2 backend keeps the contract: over a stand-in, since the tool comes in a vendor's image only."""

import os
from collections.abc import Iterator

import onnx
import pytest

from onnxbisect_backends.contract import Backend
from onnxbisect_backends.registry import make
from onnxbisect_backends.testing import BackendConformance, with_op
from support.backends import pulsar2_tools

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def tools(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = pulsar2_tools.stand_in(tmp_path_factory.mktemp("bin"))
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    with pulsar2_tools.docker(folder):
        yield


class TestOnPath(BackendConformance):
    def backend(self) -> Backend:
        return make("pulsar2", {})

    def refused(self) -> onnx.ModelProto:
        return with_op("Sinh")


class TestInContainer(BackendConformance):
    def backend(self) -> Backend:
        return make("pulsar2", {"image": "pulsar2:5.1", "target_hardware": "AX620E"})

    def refused(self) -> onnx.ModelProto:
        return with_op("Sinh")
