"""The canonical structure of a probe: what a verdict is kept under, in any model and for any compiler.

Two probes have one key when they are the same graph: operators, attributes, shapes, dtypes, small constants and
wiring agree, which tensors come from outside and which leave, and which units share them. Names and order do not count,
and weight values do not unless the target quantises with them. The IR version counts: compilers refuse files for it.

The key is a digest of an exact description of the graph, so that different graphs never share one. It lists the units
in an order that the graph itself gives (`onnxbisect.canon`); where that leaves a choice, one graph may get two keys,
which costs a call and never tells a lie.
"""

from collections.abc import Collection
from hashlib import sha256

import numpy as np

from onnxbisect.canon import Canon
from onnxbisect.content import digest
from onnxbisect.cut.frame import Framer
from onnxbisect.cut.rows import Numbers, Rows, renumbered
from onnxbisect.cut.wiring import read_wiring
from onnxbisect.identities import Identities
from onnxbisect.model.model import Model
from onnxbisect.unitset import UnitSet, indices


def probe_key(model: Model, units: UnitSet, *, weights: bool = False) -> str:
    """The key of one probe; `Keyer` for more than one of a model."""
    return Keyer(model, weights=weights).key(units)


class Keyer:
    """Gives keys for probes of one model; what nodes and tensors are is established once, when it is made.

    With `weights`, the values of all constants count too. `apart` are units that are cut in another way than their
    like elsewhere (`onnxbisect.cut.unguarded_outputs`).
    """

    def __init__(self, model: Model, *, weights: bool = False, apart: Collection[int] = ()) -> None:
        self._ir_version = model.proto.ir_version
        wiring = read_wiring(model)
        identities = Identities(model, wiring, weights=weights, apart=apart)
        self._framer = Framer(model, wiring)
        self._canon = Canon(identities)
        self._kinds, self._tokens = identities.kinds, identities.tokens
        self._kind = np.array(identities.kind, np.intp)
        self._made = Rows(identities.made)
        self._slots = Rows((*reads, *made) for reads, made in zip(identities.reads, identities.made, strict=True))

    def key(self, units: UnitSet) -> str:
        """64 hexadecimal digits."""
        chosen = indices(units)
        frame = self._framer.frame(units, chosen)
        head = digest(self._ir_version, len(frame.inputs), len(frame.outputs))
        order = self._canon.order(chosen, frame.outputs)
        return sha256(head + self._describe(order, frame.outputs)).hexdigest()

    def _describe(self, order: Numbers, leaving: Numbers) -> bytes:
        """The graph of these units, exactly: what each is and the numbers of the tensors in its slots.

        A unit's kind says how many slots it has. Then what those tensors are that come from outside, and the numbers
        of those that leave.
        """
        count = len(self._tokens)
        kinds, which = renumbered(self._kind[order], len(self._kinds))
        slots, tensors = renumbered(self._slots.of(order), count)
        inside = np.zeros(count, np.bool_)
        inside[self._made.of(order)] = True
        outside = tensors[~inside[tensors]]
        leaves = np.zeros(count, np.bool_)
        leaves[leaving] = True
        out = np.flatnonzero(leaves[tensors])
        lengths = np.array([len(order), len(slots), len(which), len(outside), len(out)])
        parts = [_bytes(lengths), _bytes(kinds), _bytes(slots), *[self._kinds[kind] for kind in which.tolist()]]
        return b"".join([*parts, self._tokens[outside].tobytes(), _bytes(out)])


def _bytes(numbers: Numbers) -> bytes:
    return numbers.astype("<u8").tobytes()
