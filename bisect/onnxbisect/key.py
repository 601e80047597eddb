"""The canonical structure of a probe, under which verdicts are kept for any model and compiler.

Two probes have the same key if they are the same graph: operators, attributes, shapes, dtypes, small constants, wiring,
and the tensors that enter and leave. Names and order do not count; values of weights count only if the target quantises
with them. The IR version counts, because compilers refuse files for it.

The key is a digest of an exact description of the graph, so different graphs never share one. Units are listed in an
order derived from the graph (`onnxbisect.canon`). Where ties remain, one graph may get two keys: that costs a compiler
call but never gives a wrong verdict.
"""

from collections.abc import Collection
from hashlib import sha256

import numpy as np

from onnxbisect.canon import Canon
from onnxbisect.content import digest
from onnxbisect.cut.frame import Framer, Numbers, Rows, renumbered
from onnxbisect.cut.wiring import read_wiring
from onnxbisect.identities import Identities
from onnxbisect.model.model import Model
from onnxbisect.unitset import UnitSet, indices


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
