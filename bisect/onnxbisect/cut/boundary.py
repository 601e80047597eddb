"""Types of tensors as a piece declares them."""

import onnx

from onnxbisect.cut.wiring import Wiring
from onnxbisect.model.model import Model


class Declarations:
    """The value_info of every tensor: intake's concrete type, else what the file says, else a guess.

    Types that are not intake's serve at the boundary only, where ONNX demands one; inside a piece a wrong type
    would be worse than none.
    """

    def __init__(self, model: Model, wiring: Wiring) -> None:
        graph = model.proto.graph
        self._model = model
        self._wiring = wiring
        self._declared = {value.name: value for value in (*graph.value_info, *graph.output, *graph.input)}
        #: By node: the tensors it makes whose type intake knows.
        self.inner: tuple[tuple[tuple[str, onnx.ValueInfoProto], ...], ...] = tuple(
            tuple(
                (name, onnx.ValueInfoProto(name=name, type=model.types[name])) for name in names if name in model.types
            )
            for names in wiring.made
        )

    def at_boundary(self, name: str) -> onnx.ValueInfoProto:
        """The declaration of a graph input or output; never fails."""
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
        # Most ops, custom ones too, give the dtype that they take first.
        unit = self._wiring.maker.get(name)
        for taken in () if unit is None else self._wiring.boundary[unit]:
            known = self._model.types.get(taken)
            if known is not None and known.tensor_type.elem_type:
                return int(known.tensor_type.elem_type)
        return int(onnx.TensorProto.FLOAT)
