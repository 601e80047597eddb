"""Compilers that take some tensors between nodes but not at a boundary: only what they really refuse is blamed."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import onnx_bisect
from onnx_bisect.callable_backend import CallableBackend
from onnxbisect.cut.required_producers import runtime_dtype
from onnxbisect.probe_format import ProbeFormat
from onnxbisect_backends.contract import Description
from support.engine.scalar_graphs import BAD, scalar_graphs
from support.examples import examples


@dataclass(frozen=True)
class Limits:
    """What a compiler of the tests takes at a boundary; the names are those of `ProbeFormat`."""

    input_dtypes: frozenset[str] | None = None
    output_dtypes: frozenset[str] | None = None
    min_input_rank: int = 0
    min_output_rank: int = 0
    longest_name: int | None = None

    def compiles(self, path: Path) -> bool:
        """Whether the boundary is one that it takes, and no node is refused."""
        graph = onnx.load(path).graph
        for values, dtypes, rank in (
            (graph.input, self.input_dtypes, self.min_input_rank),
            (graph.output, self.output_dtypes, self.min_output_rank),
        ):
            for value in values:
                if dtypes is not None and runtime_dtype(value.type) not in dtypes:
                    return False
                if len(value.type.tensor_type.shape.dim) < rank:
                    return False
                if self.longest_name is not None and len(value.name.encode()) > self.longest_name:
                    return False
        return not any(node.op_type == BAD for node in graph.node)


class Declaring(CallableBackend):
    """A compiler that declares its limits."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits.compiles)
        self._limits = limits

    def describe(self) -> Description:
        probe_format = ProbeFormat(**vars(self._limits))
        return Description(tool="strict", version="", dynamic_shapes=True, probe_format=probe_format)


_FLOAT, _NUMBERS = frozenset({"float"}), frozenset({"float", "int32", "int64"})
LIMITS = {
    "inputs of rank 0": Limits(min_input_rank=1),
    "inputs and outputs of rank 0": Limits(min_input_rank=1, min_output_rank=1),
    "long names": Limits(longest_name=16),
    "bool inputs": Limits(input_dtypes=_NUMBERS),
    "bool outputs": Limits(output_dtypes=_NUMBERS),
    "all but float": Limits(input_dtypes=_FLOAT, output_dtypes=_FLOAT),
    "everything": Limits(
        input_dtypes=_FLOAT, output_dtypes=_FLOAT, min_input_rank=1, min_output_rank=1, longest_name=16
    ),
}


def found(model: onnx.ModelProto, backend: Callable[[Path], bool] | Declaring, folder: Path) -> onnx_bisect.Result:
    path = folder / "model.onnx"
    onnx.save(model, path)
    return onnx_bisect.diagnose(path, backend=backend, cache=False, as_is=True)


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@given(data=st.data())
@settings(max_examples=examples(30), suppress_health_check=list(HealthCheck), deadline=None)
def test_only_the_refused_op_is_blamed(
    limits: Limits, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    model = data.draw(scalar_graphs(name_length=30 if limits.longest_name else 1))

    result = found(model, Declaring(limits), tmp_path_factory.mktemp("model"))

    assert [culprit.ops for culprit in result.culprits] == [(BAD,)]
    assert result.certificate.proven
