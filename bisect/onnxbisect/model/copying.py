"""Recognise nodes that only copy their first input."""

from collections.abc import Callable, Collection

import numpy as np
import onnx

from onnxbisect.model.scopes import domain_of

#: From this opset on Dropout has no `is_test` attribute; from opset 12 on an input turns training on.
_DROPOUT_SINCE = 7


def is_copy(node: onnx.NodeProto, opset: int, read: Collection[str], value: Callable[[str], np.ndarray | None]) -> bool:
    """Whether the node is an Identity, or a Dropout outside of training whose mask nothing reads.

    `read` are the tensors that are read by nodes or are graph outputs; `value` returns a tensor's constant value or
    None.
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
