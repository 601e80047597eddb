"""The canonical structure of a probe: what a verdict is kept under, in any model and for any compiler.

Two probes have one key when they are the same graph: operators, attributes, shapes, dtypes, small constants and
wiring agree, which tensors come from outside and which leave, and who shares them. Names and order do not count,
and weight values do not unless the target quantises with them. The IR version counts: compilers refuse files for it.

The key is a digest of an exact description of the graph, so that different graphs never share one. Only the order
in which the description lists the units is found by hashing, up the dataflow and then down (one round of
Weisfeiler-Leman colouring). Where colours tie, the list follows the wiring; should even that leave a choice, one
graph may get two keys, which costs a call and never tells a lie.
"""

from array import array
from collections.abc import Collection, Iterable, Sequence
from hashlib import sha256
from itertools import chain

from onnxbisect.content import digest
from onnxbisect.cut.frame import Framer
from onnxbisect.cut.wiring import read_wiring
from onnxbisect.identities import Identities
from onnxbisect.model.model import Model
from onnxbisect.unitset import UnitSet, members


def probe_key(model: Model, units: UnitSet, *, weights: bool = False) -> str:
    """The key of one probe; `Keyer` for more than one of a model."""
    return Keyer(model, weights=weights).key(units)


class Keyer:
    """Gives keys for probes of one model; what nodes and tensors are is established once, when it is made.

    With `weights`, the values of all constants count too. `apart` are units that are cut in another way than their
    like elsewhere (`onnxbisect.cut.bare_ends`).
    """

    def __init__(self, model: Model, *, weights: bool = False, apart: Collection[int] = ()) -> None:
        self._model = model
        wiring = read_wiring(model)
        self._framer = Framer(model, wiring)
        self._identities = Identities(model, wiring, weights=weights, apart=apart)

    def key(self, units: UnitSet) -> str:
        """64 hexadecimal digits."""
        identities = self._identities
        chosen = list(members(units))
        frame = self._framer.frame(units, chosen, None)
        leaving = {identities.number[name] for name in frame.outputs if name in identities.number}
        head = digest(self._model.proto.ir_version, len(frame.inputs), len(frame.outputs))
        return sha256(head + _describe(identities, chosen, leaving)).hexdigest()


def _describe(identities: Identities, chosen: Sequence[int], leaving: set[int]) -> bytes:
    colour = _colours(identities, chosen, leaving)
    if len(set(colour.values())) == len(chosen):
        return _list(identities, sorted(chosen, key=colour.__getitem__), leaving)
    parts = sorted(_walk(identities, chosen, colour), key=lambda part: [colour[unit] for unit in part])
    return _list(identities, list(chain.from_iterable(parts)), leaving)


def _colours(identities: Identities, chosen: Sequence[int], leaving: set[int]) -> dict[int, int]:
    """Numbers that are equal for units which stand alike in the probe; they decide on an order, nothing else.

    Python's hash of integers and tuples is the same in every process.
    """
    labels, reads, made = identities.label_hashes, identities.reads, identities.made
    tokens = identities.token_hashes.copy()
    up = {}
    for unit in chosen:
        up[unit] = colour = hash((labels[unit], *[tokens[tensor] for tensor in reads[unit]]))
        for slot, tensor in enumerate(made[unit]):
            tokens[tensor] = hash((colour, slot))
    shared: dict[int, int] = {}
    down = {}
    for unit in reversed(chosen):
        uses = [hash((shared.get(tensor, 0), tensor in leaving)) for tensor in made[unit]]
        down[unit] = colour = hash((up[unit], *uses))
        for slot, tensor in enumerate(reads[unit]):
            shared[tensor] = (shared.get(tensor, 0) + hash((colour, slot))) & 0xFFFFFFFFFFFFFFF
    return {unit: hash((down[unit], *[shared[tensor] for tensor in reads[unit]])) for unit in chosen}


def _walk(identities: Identities, chosen: Sequence[int], colour: dict[int, int]) -> Iterable[list[int]]:
    """The connected parts of a probe, the units of each listed along the wiring."""
    reads, made = identities.reads, identities.made
    beside: dict[int, list[tuple[int, int, int]]] = {}
    for unit in chosen:
        shade = colour[unit]
        for slot, tensor in enumerate(reads[unit]):
            beside.setdefault(tensor, []).append((shade, slot, unit))
        for slot, tensor in enumerate(made[unit]):
            beside.setdefault(tensor, []).append((shade, -1 - slot, unit))
    near = {tensor: [unit for _, _, unit in sorted(units)] for tensor, units in beside.items() if len(units) > 1}
    seen: set[int] = set()
    for start in sorted(chosen, key=colour.__getitem__):
        part = []
        stack = [start]
        while stack:
            unit = stack.pop()
            if unit not in seen:
                seen.add(unit)
                part.append(unit)
                for tensor in (*made[unit], *reads[unit]):
                    stack += near.pop(tensor, ())
        if part:
            yield part


def _list(identities: Identities, order: Sequence[int], leaving: set[int]) -> bytes:
    """The graph of these units, exactly: what each is and the numbers of the tensors in its slots."""
    labels, reads, made = identities.labels, identities.reads, identities.made
    kinds: dict[bytes, int] = {}
    numbers: dict[int, int] = {}
    rows = array("Q")
    for unit in order:
        rows.append(kinds.setdefault(labels[unit], len(kinds)))
        rows.extend([numbers.setdefault(tensor, len(numbers)) for tensor in reads[unit]])
        rows.extend([numbers.setdefault(tensor, len(numbers)) for tensor in made[unit]])
    inside = {tensor for unit in order for tensor in made[unit]}
    outside = [identities.tokens[tensor] for tensor in numbers if tensor not in inside]
    out = array("Q", sorted(numbers[tensor] for tensor in leaving if tensor in numbers))
    counts = array("Q", [len(order), len(rows), len(kinds), len(outside), len(out)])
    return b"".join([counts.tobytes(), rows.tobytes(), *kinds, *outside, out.tobytes()])
