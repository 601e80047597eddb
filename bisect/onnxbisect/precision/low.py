"""Which nodes of a model a low precision concerns."""

from collections.abc import Mapping
from functools import cache

import onnx

from onnxbisect.model.scopes import domain_of
from onnxbisect.precision.tensors import FLOAT16_LARGEST, SampledTensor
from onnxbisect.precision.wanted import Low


@cache
def quantisable() -> frozenset[str]:
    """The op types that onnxruntime's quantiser knows."""
    from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry  # half a second

    return frozenset(QDQRegistry) | frozenset(QLinearOpsRegistry)


def can_be_low(node: onnx.NodeProto, low: Low, seen: Mapping[str, SampledTensor]) -> bool:
    """Whether the precision changes anything at this node."""
    if low is Low.INT8 and (domain_of(node) or node.op_type not in quantisable()):
        return False
    return any(name in seen for name in (*node.input, *node.output))


def suspicion(
    node: onnx.NodeProto, low: Low, seen: Mapping[str, SampledTensor], weights: Mapping[str, SampledTensor]
) -> float:
    """How much of what this node reads and makes is lost; larger is more suspect."""
    tensors = [seen[name] for name in dict.fromkeys((*node.input, *node.output)) if name in seen]
    if low is Low.INT8:
        own = [weights[name].eight_bit_weight for name in node.input if name in weights]
        return -min([it.eight_bit for it in tensors] + own, default=200.0)
    beyond = max((it.largest / FLOAT16_LARGEST for it in tensors), default=0.0)
    return beyond if beyond > 1 else max((it.tiny for it in tensors), default=0.0)
