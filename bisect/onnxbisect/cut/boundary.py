"""Type declarations for the graph inputs and outputs of a piece."""

import onnx

from onnxbisect.cut.wiring import Wiring
from onnxbisect.model.model import Model


class Declarations:
    """Builds the value_info of a graph input or output, which ONNX demands to have a type.

    The type is the inferred one, else the one that the file declares, else a guess. Tensors inside a piece get only
    inferred types (`onnxbisect.cut.encoded`), because a wrong type is worse than none.
    """

    def __init__(self, model: Model, wiring: Wiring) -> None:
        graph = model.proto.graph
        self._model = model
        self._wiring = wiring
        self._declared = {value.name: value for value in (*graph.value_info, *graph.output, *graph.input)}

    def at_boundary(self, name: str) -> onnx.ValueInfoProto:
        """The tensor's declaration; guesses a type where none is known, and never raises."""
        value = onnx.ValueInfoProto()
        declared = self._declared.get(name)
        if declared is not None:
            value.CopyFrom(declared)
        value.name = name
        known = self._model.types.get(name)
        if known is not None:
            value.type.CopyFrom(known)
        elif value.type.WhichOneof("value") is None:
            value.type.tensor_type.elem_type = self._guess(name)
        return value

    def _guess(self, name: str) -> int:
        # Most ops, custom ones included, return the dtype of their first input.
        unit = self._wiring.maker.get(name)
        for taken in () if unit is None else self._wiring.boundary[unit]:
            known = self._model.types.get(taken)
            if known is not None and known.tensor_type.elem_type:
                return int(known.tensor_type.elem_type)
        return int(onnx.TensorProto.FLOAT)
