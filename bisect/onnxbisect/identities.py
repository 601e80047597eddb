"""Numbers and digests of a model's units and tensors, from which `onnxbisect.key` makes keys of probes."""

from collections.abc import Collection, Iterable, Iterator

import numpy as np
import onnx

from onnxbisect.content import DIGEST_SIZE, SMALL, Contents, array_digest, digest, is_telling, type_bytes
from onnxbisect.cut.wiring import Wiring
from onnxbisect.model.model import Model
from onnxbisect.model.scopes import captures, domain_of
from onnxbisect.model.shapeops import SEMANTIC_SLOTS, SHAPE_SLOTS
from onnxbisect.model.variants import ZERO_POINT_SLOTS, ZERO_POINTS

#: A slot that reads a tensor: domain, op, number.
_Use = tuple[str, str, int]


class Identities:
    """The data for describing probes; units and tensors (`Wiring.names`) are numbered.

    `kinds` are the different digests of units without their wiring; `kind` holds each unit's index in `kinds`. `reads`
    are the tensors in a unit's slots (without omitted ones, captures last), `made` those that it makes. `tokens` are
    digests, 32 bytes a row, of each tensor for probes without its producer: an input, a known value, a weight or a
    Constant's value.
    """

    def __init__(
        self, model: Model, wiring: Wiring, *, weights: bool, special_units: Collection[int] = (), values: bool = False
    ) -> None:
        self._model = model
        self._weights = weights
        self._contents = Contents(model.proto, model.path.parent, weights=weights)
        number = wiring.number
        nodes = [wiring.nodes[unit.node] for unit in model.units]
        self.reads = tuple(
            tuple([number[name] for name in (*node.input, *(captures(node) if branches else ())) if name])
            for node, branches in zip(nodes, (unit.node in wiring.branching for unit in model.units), strict=True)
        )
        self.made = tuple(tuple([number[name] for name in node.output if name]) for node in nodes)
        labels = (
            digest(self._contents.node(node), [type_bytes(model.types, name) for name in node.output]) for node in nodes
        )
        places: dict[bytes, int] = {}
        kind = []
        for unit, label in enumerate(labels):
            if values:
                label = digest("values", model.identity, unit, label)
            elif unit in special_units:
                label = digest("apart", label)
            kind.append(places.setdefault(label, len(places)))
        self.kind, self.kinds = tuple(kind), tuple(places)
        self.tokens = np.frombuffer(b"".join(self._tokens(wiring, nodes)), np.uint8).reshape(-1, DIGEST_SIZE)

    def _tokens(self, wiring: Wiring, nodes: Iterable[onnx.NodeProto]) -> Iterator[bytes]:
        model = self._model
        slots: dict[str, set[_Use]] = {}
        for node in nodes:
            for slot, name in enumerate(node.input):
                slots.setdefault(name, set()).add((domain_of(node), node.op_type, slot))
        stored = {tensor.name: tensor for tensor in model.proto.graph.initializer}
        sparse = {tensor.values.name: tensor for tensor in model.proto.graph.sparse_initializer}
        for name in wiring.names:
            uses = slots.get(name, set())
            if name in stored:
                yield digest("weight", self._stored(stored[name], uses))
            elif name in sparse:
                yield digest("sparse weight", self._contents.sparse(sparse[name]))
            elif name in wiring.constants:
                node = wiring.nodes[wiring.constants[name]]
                plain = len(node.attribute) == 1 and node.attribute[0].name == "value"
                yield digest(
                    "constant", self._stored(node.attribute[0].t, uses) if plain else self._contents.node(node)
                )
            elif name in model.known:
                array = model.known[name]
                whole = self._weights or _value_matters(array, uses)
                content = array_digest(array) if whole else (array.shape, _zero(array, uses))
                yield digest("known", type_bytes(model.types, name), content)
            else:
                yield digest("input", type_bytes(model.types, name))

    def _stored(self, tensor: onnx.TensorProto, uses: set[_Use]) -> object:
        most = ZERO_POINTS if _is_zero_point(uses) else SMALL
        array = None if self._weights else self._contents.array(tensor, most)
        with_value = self._weights or (array is not None and _value_matters(array, uses))
        return self._contents.tensor(tensor, with_value=with_value), _zero(array, uses)


def _value_matters(array: np.ndarray, uses: set[_Use]) -> bool:
    if array.size > SMALL:
        return False
    if any(slot in (*SHAPE_SLOTS.get(op, ()), *SEMANTIC_SLOTS.get(op, ())) for _, op, slot in uses):
        return True
    return is_telling(array) and not _only_quantizes(uses)


def _only_quantizes(uses: set[_Use]) -> bool:
    """Whether the tensor is only used as a scale, zero point, weight or bias of quantised ops."""
    return bool(uses) and all((domain, op) in ZERO_POINT_SLOTS for domain, op, _ in uses)


def _is_zero_point(uses: set[_Use]) -> bool:
    return _only_quantizes(uses) and any(slot in ZERO_POINT_SLOTS[domain, op] for domain, op, slot in uses)


def _zero(array: np.ndarray | None, uses: set[_Use]) -> bool | None:
    """Whether a zero point is zero; None for other tensors."""
    if array is None or array.size > ZERO_POINTS or not _is_zero_point(uses):
        return None
    return not array.any()
