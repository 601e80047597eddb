"""Nodes that do nothing but copy their first input."""

from collections.abc import Callable, Collection

import numpy as np
import onnx

from onnxbisect.model.scopes import domain_of

#: The first operator set in which Dropout says nothing of training, until the one in which an input says it.
_DROPOUT_SINCE = 7


def is_copy(node: onnx.NodeProto, opset: int, read: Collection[str], value: Callable[[str], np.ndarray | None]) -> bool:
    """Whether the node is Identity, or Dropout outside of training whose mask nothing reads.

    `read` are the tensors that something reads, graph outputs included; `value` gives those that no input changes.
    """
    if domain_of(node) or not node.input or not node.input[0] or not node.output[0]:
        return False
    if node.op_type == "Identity":
        return True
    if node.op_type != "Dropout" or opset < _DROPOUT_SINCE or any(name in read for name in node.output[1:] if name):
        return False
    if len(node.input) < 3 or not node.input[2]:
        return True
    training = value(node.input[2])
    return training is not None and not training.any()
