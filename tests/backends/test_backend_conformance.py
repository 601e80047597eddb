"""Every backend keeps the promises of the contract."""

import sys
from pathlib import Path

import onnx
import pytest

from onnxbisect_backends.commands.any_command import CommandBackend
from onnxbisect_backends.contract import Backend
from onnxbisect_backends.registry import make
from onnxbisect_backends.testing import BackendConformance, with_op

EXAMPLES = Path(__file__).parents[2] / "examples"


class TestOnnxRuntime(BackendConformance):
    def backend(self) -> Backend:
        return make("onnxruntime", {})

    def refused(self) -> onnx.ModelProto:
        return with_op("FancyAct", domain="vendor.npu")


class TestToml(BackendConformance):
    def backend(self) -> Backend:
        return make(str(EXAMPLES / "mychip.toml"), {"chip": "mc1"})

    def refused(self) -> onnx.ModelProto:
        return with_op("Sin")


@pytest.mark.long
class TestCommand(BackendConformance):
    def backend(self) -> Backend:
        script = str(EXAMPLES / "mychip.py")
        return CommandBackend([sys.executable, script, "{model}", "{out}"], cwd=EXAMPLES)

    def refused(self) -> onnx.ModelProto:
        return with_op("Sin")


class TestWhitelist(BackendConformance):
    def backend(self) -> Backend:
        return make("whitelist", {"deny": "Sin", "report": "all"})

    def refused(self) -> onnx.ModelProto:
        return with_op("Sin")
