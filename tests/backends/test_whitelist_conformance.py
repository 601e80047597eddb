"""The whitelist backend keeps the contract in each of its report modes, for each tool that it stands in for."""

import onnx

from onnxbisect_backends.contract import Backend
from onnxbisect_backends.simulator.backend import WhitelistBackend
from onnxbisect_backends.testing import BackendConformance, with_op


class TestFirst(BackendConformance):
    def backend(self) -> Backend:
        return WhitelistBackend({"profile": "pulsar2-ax650"})

    def refused(self) -> onnx.ModelProto:
        return with_op("Sinh")


class TestAll(BackendConformance):
    def backend(self) -> Backend:
        return WhitelistBackend({"profile": "tpu-mlir-1.8.1"})

    def refused(self) -> onnx.ModelProto:
        return with_op("Sinh")


class TestEveryNode(BackendConformance):
    def backend(self) -> Backend:
        return WhitelistBackend({"profile": "rknn-2.1.0"})

    def refused(self) -> onnx.ModelProto:
        return with_op("Sinh")


class TestNone(BackendConformance):
    def backend(self) -> Backend:
        return WhitelistBackend({"profile": "pulsar2-ax650", "report": "none"})

    def refused(self) -> onnx.ModelProto:
        return with_op("AcmeNorm", domain="acme")


class TestPattern(BackendConformance):
    def backend(self) -> Backend:
        return WhitelistBackend({"fail_patterns": "Relu>Sinh>Relu"})

    def refused(self) -> onnx.ModelProto:
        return with_op("Sinh")


class TestLimit(BackendConformance):
    def backend(self) -> Backend:
        return WhitelistBackend({"profile": "pulsar2-ax650"})

    def refused(self) -> onnx.ModelProto:
        return with_op("LpNormalization", axis=1)
