"""The canonical structure of a probe, under which verdicts are kept for any model and compiler.

Two probes have the same key if they are the same graph: operators, attributes, shapes, dtypes, small constants, wiring,
and the tensors that enter and leave. Names and order do not count; values of weights count only if the target quantises
with them. The IR version counts, because compilers refuse files for it.

The key is a digest of an exact description of the graph, so different graphs never share one. Units are listed in an
order derived from the graph (`Canon`). Where ties remain, one graph may get two keys: that costs a compiler call but
never gives a wrong verdict.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import count
from operator import itemgetter

import numpy as np
import onnx

from onnxbisect.content import DIGEST_SIZE, SMALL, Contents, array_digest, digest, is_telling, type_bytes
from onnxbisect.cut.frame import Framer, Numbers, Rows, renumbered
from onnxbisect.cut.wiring import Wiring, read_wiring
from onnxbisect.model.model import Model
from onnxbisect.model.scopes import captures, domain_of
from onnxbisect.model.shapeops import SEMANTIC_SLOTS, SHAPE_SLOTS
from onnxbisect.model.variants import ZERO_POINT_SLOTS, ZERO_POINTS
from onnxbisect.unitset import UnitSet, indices

#: A slot that reads a tensor: domain, op, number.
_Use = tuple[str, str, int]


def probe_key(model: Model, units: UnitSet, *, weights: bool = False) -> str:
    """The key of one probe; use `Keyer` for several probes of one model."""
    return Keyer(model, weights=weights).key(units)


class Keyer:
    """Makes keys for probes of one model; digests of nodes and tensors are computed once, in the constructor.

    With `weights`, the values of all constants count too, with `values` those of all tensors: no two pieces of a model
    are equal then, nor are pieces of two models. `special_units` are units that are cut differently from equal units
    elsewhere (`onnxbisect.cut.unguarded_outputs`).
    """

    def __init__(
        self, model: Model, *, weights: bool = False, special_units: Collection[int] = (), values: bool = False
    ) -> None:
        self._ir_version = model.proto.ir_version
        wiring = read_wiring(model)
        identities = Identities(model, wiring, weights=weights, special_units=special_units, values=values)
        self._framer = Framer(model, wiring)
        self._canon = Canon(identities)
        self._kinds, self._tokens = identities.kinds, identities.tokens
        self._kind = np.array(identities.kind, np.intp)
        self._made = Rows(identities.made)
        self._slots = Rows((*reads, *made) for reads, made in zip(identities.reads, identities.made, strict=True))

    def key(self, units: UnitSet) -> str:
        """The key of these units: 64 hexadecimal digits."""
        chosen = indices(units)
        frame = self._framer.frame(units, chosen)
        head = digest(self._ir_version, len(frame.inputs), len(frame.outputs))
        order = self._canon.order(chosen, frame.outputs)
        # An exact encoding of the graph of these units: each unit's kind and the numbers of the tensors in its slots. A
        # unit's kind implies its number of slots. Then follow the digests of entering tensors, the numbers of leaving
        # ones, and the digests of graph inputs and outputs that no unit reads or makes.
        count = len(self._tokens)
        kinds, which = renumbered(self._kind[order], len(self._kinds))
        slots, tensors = renumbered(self._slots.of(order), count)
        inside = np.zeros(count, np.bool_)
        inside[self._made.of(order)] = True
        outside = tensors[~inside[tensors]]
        leaves = np.zeros(count, np.bool_)
        leaves[frame.outputs] = True
        out = np.flatnonzero(leaves[tensors])
        met = np.zeros(count, np.bool_)
        met[tensors] = True
        idle = np.concatenate((frame.inputs[~met[frame.inputs]], frame.outputs[~met[frame.outputs]]))
        lengths = np.array([len(order), len(slots), len(which), len(outside), len(out)])
        parts = [_bytes(lengths), _bytes(kinds), _bytes(slots), *[self._kinds[kind] for kind in which.tolist()]]
        apart = sorted(digest(self._tokens[tensor].tobytes(), bool(leaves[tensor])) for tensor in idle.tolist())
        return sha256(b"".join([head, *parts, self._tokens[outside].tobytes(), _bytes(out), *apart])).hexdigest()


def _bytes(numbers: Numbers) -> bytes:
    return numbers.astype("<u8").tobytes()


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


class Canon:
    """Orders the units of any probe of one model, independently of names and of the order in the file.

    The order comes from hashing up the dataflow and then down (one round of Weisfeiler-Leman colouring). Equal colours
    are ordered along the wiring. If that leaves ties too, one graph can get two orders.

    The two sweeps are plain loops over prepared values, which colour a hundred thousand units a second; everything else
    works on whole arrays.
    """

    def __init__(self, identities: Identities) -> None:
        self._reads, self._made = identities.reads, identities.made
        places = count(len(identities.tokens))
        # Each unit without inputs or without outputs gets a place of its own after those of the tensors.
        reads = [those or (next(places),) for those in self._reads]
        made = [those or (next(places),) for those in self._made]
        self._limit = next(places)
        self._slots = Rows((*taken, *given) for taken, given in zip(reads, made, strict=True))
        kinds = [_short(kind) for kind in identities.kinds]
        self._rows = [
            (
                kinds[kind],
                itemgetter(*taken),
                given[0],
                tuple(enumerate(given))[1:],
                taken[0],
                tuple(enumerate(taken))[1:],
            )
            for kind, taken, given in zip(identities.kind, reads, made, strict=True)
        ]
        self._outside = [_short(token.tobytes()) for token in identities.tokens]
        self._outside += [0] * (self._limit - len(self._outside))

    def order(self, chosen: Numbers, leaving: Numbers) -> Numbers:
        """Order the units `chosen` (ascending), of which the tensors `leaving` are graph outputs."""
        colours = np.array(self._colours(chosen.tolist(), leaving.tolist()), np.int64)
        order = np.argsort(colours)
        ordered = colours[order]
        if (ordered[1:] != ordered[:-1]).all():
            return chosen[order]
        # Connected components one after the other; within each by colour, or along the wiring where colours tie.
        part = self._parts(chosen)
        order = np.lexsort((colours, part))
        listed, part, colours = chosen[order], part[order], colours[order]
        fresh = part[1:] != part[:-1]
        tied = ~fresh & (colours[1:] == colours[:-1])
        starts = np.concatenate(([0], np.flatnonzero(fresh) + 1))
        ends = np.append(starts[1:], len(order))
        for index in np.flatnonzero(np.logical_or.reduceat(np.append(tied, False), starts)).tolist():
            inside = slice(starts[index], ends[index])
            listed[inside] = self._walk(listed[inside].tolist(), colours[inside].tolist())
        signature = np.add.reduceat(colours, starts)
        return listed[np.argsort(np.repeat(signature, ends - starts), kind="stable")]

    def _colours(self, chosen: Sequence[int], leaving: Sequence[int]) -> list[int]:
        """Numbers that are equal for units with equal positions in the probe; used only for ordering.

        Python's hash of integers and tuples is the same in every process.
        """
        rows = [self._rows[unit] for unit in chosen]
        up = self._outside.copy()
        for kind, pick, made, others, _, _ in rows:
            up[made] = colour = hash((kind, pick(up)))
            for slot, tensor in others:
                up[tensor] = hash((colour, slot))
        shared = [0] * len(up)
        for tensor in leaving:
            shared[tensor] = 1
        down = []
        for _, _, made, others, read, more in reversed(rows):
            colour = hash((up[made], shared[made], *[shared[tensor] for _, tensor in others]))
            down.append(colour)
            shared[read] += colour
            for slot, tensor in more:
                shared[tensor] += hash((colour, slot))
        down.reverse()
        return [hash((colour, row[1](shared))) for colour, row in zip(down, rows, strict=True)]

    def _parts(self, chosen: Numbers) -> Numbers:
        """A component number for each unit: equal for units that are connected by tensors."""
        slots, tensors = renumbered(self._slots.of(chosen), self._limit)
        lengths = self._slots.lengths(chosen)
        own = slots[np.cumsum(lengths) - lengths]
        firsts = np.repeat(own, lengths)
        # Each tensor points at a lower-numbered tensor of its component, until all point at the lowest.
        lowest = np.arange(len(tensors))
        while (lowest[firsts] != lowest[slots]).any():
            one, other = lowest[firsts], lowest[slots]
            np.minimum.at(lowest, one, other)
            np.minimum.at(lowest, other, one)
            while (lowest[lowest] != lowest).any():
                lowest = lowest[lowest]
        found: Numbers = lowest[own]
        return found

    def _walk(self, units: Sequence[int], colours: Sequence[int]) -> list[int]:
        """The units of a connected component, given by ascending colour, in an order along the wiring."""
        reads, made = self._reads, self._made
        beside: dict[int, list[tuple[int, int, int]]] = {}
        for unit, colour in zip(units, colours, strict=True):
            for slot, tensor in enumerate(reads[unit]):
                beside.setdefault(tensor, []).append((colour, slot, unit))
            for slot, tensor in enumerate(made[unit]):
                beside.setdefault(tensor, []).append((colour, -1 - slot, unit))
        near = {tensor: [unit for _, _, unit in sorted(those)] for tensor, those in beside.items() if len(those) > 1}
        walked: dict[int, None] = {}
        stack = [units[0]]
        while stack:
            unit = stack.pop()
            if unit not in walked:
                walked[unit] = None
                # Follow rarely shared tensors first: a widely shared weight connects units that are hard to tell apart.
                tensors = sorted((*made[unit], *reads[unit]), key=lambda tensor: -len(near.get(tensor, ())))
                for tensor in tensors:
                    stack += near.pop(tensor, ())
        return list(walked)


def _short(value: bytes) -> int:
    return int.from_bytes(value[:8], "little")
