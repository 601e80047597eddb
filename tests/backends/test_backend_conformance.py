"""Every backend keeps the promises of the contract."""

import sys
from pathlib import Path

import onnx
import pytest

from onnxbisect_backends.commands.any_command import CommandBackend
from onnxbisect_backends.contract import Backend
from onnxbisect_backends.registry import make
from onnxbisect_backends.testing import BackendConformance, with_op
from support import TESTS

EXAMPLES = Path(__file__).parents[2] / "examples"


class TestOnnxRuntime(BackendConformance):
    def backend(self) -> Backend:
        return make("onnxruntime", {})

    def refused(self) -> onnx.ModelProto:
        return with_op("FancyAct", domain="vendor.npu")


@pytest.mark.long
class TestToml(BackendConformance):
    def backend(self) -> Backend:
        return make(str(EXAMPLES / "mychip.toml"), {"chip": "mc1"})

    def refused(self) -> onnx.ModelProto:
        return with_op("Sin")


class TestCommand(BackendConformance):
    def backend(self) -> Backend:
        argv = [sys.executable, "check.py", "{model}", "--rule", "c2_chain100_3bad.json"]
        return CommandBackend(argv, cwd=TESTS / "cases")

    def refused(self) -> onnx.ModelProto:
        return with_op("Asinh")


class TestWhitelist(BackendConformance):
    def backend(self) -> Backend:
        return make("whitelist", {"deny": "Sin", "report": "all"})

    def refused(self) -> onnx.ModelProto:
        return with_op("Sin")
