"""Choose the units that run on the NPU: those that compiled together, minus those that the host runs more cheaply."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np
import onnx
from numpy.typing import NDArray

from onnxbisect.cut.wiring import Wiring
from onnxbisect.errors import CutError
from onnxbisect.language import some
from onnxbisect.model.binding import is_unbound
from onnxbisect.model.facts import dims_of
from onnxbisect.model.model import Model
from onnxbisect.model.scopes import domain_of
from onnxbisect.split.schedule import PieceKind, PieceUnits, schedule
from onnxbisect.unitset import UnitSet, indices, is_subset, members, of, size, union
from onnxbisect.universe import Universe


def flow(model: Model, wiring: Wiring) -> Universe:
    """The model's universe without the edges of tensors of known value, which a cut stores in the piece."""
    after: list[set[int]] = [set() for _ in model.units]
    for name, unit in wiring.maker.items():
        if name not in model.known:
            after[unit].update(wiring.takers.get(name, ()))
    return replace(model.universe, successors=tuple(map(of, after)))


def needed(model: Model, wiring: Wiring, universe: Universe) -> UnitSet:
    """The units that an output of the model depends on in `universe`, the result of `flow`.

    Raises CutError for an output that is a stored constant: no piece can compute it.
    """
    outputs = [value.name for value in model.proto.graph.output]
    inputs = {value.name for value in model.proto.graph.input}
    stored = [name for name in outputs if name not in wiring.maker and name not in inputs]
    if stored:
        raise CutError(f"Outputs of the model are constants, which no piece computes: {some(stored)}. Remove them.")
    leading = ancestors(universe)
    return union(leading[wiring.maker[name]] for name in outputs if name in wiring.maker)


def ancestors(universe: Universe) -> list[UnitSet]:
    """For each unit the set of itself and all units that it depends on."""
    return _reached(range(len(universe)), universe.predecessors)


def descendants(universe: Universe) -> list[UnitSet]:
    """For each unit the set of itself and all units that depend on it."""
    return _reached(reversed(range(len(universe))), universe.successors)


def _reached(order: Iterable[int], neighbours: Sequence[UnitSet]) -> list[UnitSet]:
    found = [0] * len(neighbours)
    for unit in order:
        found[unit] = 1 << unit | union(found[other] for other in members(neighbours[unit]))
    return found


#: Estimated work, indexed by unit.
Work = NDArray[np.float64]
Shapes = Mapping[str, tuple[int, ...]]

#: Matrix products, and convolutions with the number of the input that is their weight.
_PRODUCTS = frozenset({"MatMul", "MatMulInteger", "QLinearMatMul"})
_CONVOLUTIONS = {"Conv": 1, "ConvInteger": 1, "QLinearConv": 3}


def work_of(model: Model) -> Work:
    """For each unit the multiplications of a matrix product or convolution, else the elements of its outputs.

    At least 1, also where shapes are unknown. Subgraphs and local functions are not analysed.
    """
    shapes = {
        name: dims_of(kind)
        for name, kind in model.types.items()
        if kind.HasField("tensor_type") and not is_unbound(kind)
    }
    shapes |= {tensor.name: tuple(tensor.dims) for tensor in model.proto.graph.initializer}
    return np.array([max(_work(model.proto.graph.node[unit.node], shapes), 1) for unit in model.units], np.float64)


def total(work: Work, units: UnitSet) -> float:
    """The sum of these units' work."""
    return float(work[indices(units)].sum())


def _work(node: onnx.NodeProto, shapes: Shapes) -> int:
    made = sum(prod(shapes.get(name, ())) for name in node.output if name)
    if domain_of(node):
        return made
    if node.op_type in _PRODUCTS:
        return made * prod(_shape(node, 0, shapes)[-1:])
    if node.op_type == "Gemm":
        transposed = any(attribute.name == "transA" and attribute.i for attribute in node.attribute)
        return made * prod(_shape(node, 0, shapes)[:1] if transposed else _shape(node, 0, shapes)[1:])
    if node.op_type in _CONVOLUTIONS:
        return made * prod(_shape(node, _CONVOLUTIONS[node.op_type], shapes)[1:])
    if node.op_type == "ConvTranspose":
        return prod(_shape(node, 0, shapes)) * prod(_shape(node, 1, shapes)[1:])
    return made


def _shape(node: onnx.NodeProto, number: int, shapes: Shapes) -> tuple[int, ...]:
    return shapes.get(node.input[number], ()) if number < len(node.input) else ()


#: Default share of the NPU's work that may move to the host to reduce the number of pieces.
SHARE = 0.1
#: Most passing probes that are tried. The culprits can be avoided in several ways, but mostly there is only one.
_MOST_PROBES = 8
#: A probe is used beside the largest one if it has at least one unit for so many of that one's.
_SMALL = 16


def choose(
    universe: Universe, needed: UnitSet, passed: Sequence[UnitSet], work: Work, share: float = SHARE
) -> tuple[PieceUnits, ...]:
    """The units of `needed` as parts in an order in which they can run.

    `passed` are the sets of units that compiled as one probe. A unit is in one part with its `required_producers`,
    unless exactly that part compiled without them. The NPU's units are all from one probe, in parts of alternating
    kind. Only orders that leave the NPU all but `share` of its largest possible work count. Of those found, the result
    has the fewest NPU parts, then the fewest parts, then the most NPU parts that compiled exactly as they are, then the
    most work on the NPU. Where no probe has all but `share` of the work that several have together, as for a target
    that takes so much at a time, each NPU part is from a probe of its own. Raises CutError where no needed unit
    compiled.
    """
    # The needed units of each probe, largest first, without subsets of a set that is already in the result.
    sets = sorted({units & needed for units in passed} - {0}, key=lambda it: (-size(it), it))
    probes: list[UnitSet] = []
    for units in sets:
        if _SMALL * size(units) >= size(sets[0]) and not any(is_subset(units, other) for other in probes):
            probes.append(units)
    seen = frozenset(units & needed for units in passed)
    most = max((_weight(_settled(universe, needed, probe, seen), work) for probe in probes[:_MOST_PROBES]), default=0.0)
    if not most:
        raise CutError("None of the nodes that the outputs need was seen to compile: there is nothing for the NPU.")
    tiled = _tiled(universe, needed, probes, seen)
    if most < (1 - share) * _weight(tiled, work):
        return tiled
    least = (1 - share) * most

    def cost(parts: tuple[PieceUnits, ...]) -> tuple[float, ...]:
        npu = _on_npu(parts)
        return len(npu), len(parts), -sum(units in seen for units in npu), -_weight(parts, work)

    orders = (parts for probe in probes[:_MOST_PROBES] for parts in _orders(universe, needed, probe, seen, work, least))
    return min(orders, key=cost)


def _tiled(
    universe: Universe, needed: UnitSet, probes: Sequence[UnitSet], seen: Container[UnitSet]
) -> tuple[PieceUnits, ...]:
    """Parts in the order of the units, each NPU part as long as one of the probes has all of it.

    Units go to the host that are in none of them, or whose part would lack their required producers.
    """
    host: UnitSet = 0
    while True:
        parts: list[PieceUnits] = []
        holding: list[UnitSet] = []
        for unit in members(needed):
            here = [] if host >> unit & 1 else [units for units in probes if units >> unit & 1]
            kind = PieceKind.NPU if here else PieceKind.HOST
            both = [units for units in holding if units >> unit & 1] if here else []
            if parts and parts[-1].kind is kind and (both or not here):
                parts[-1] = PieceUnits(kind=kind, units=parts[-1].units | 1 << unit)
            else:
                parts.append(PieceUnits(kind=kind, units=1 << unit))
            holding = both or here
        lacking = _lacking(universe, parts, seen)
        if not lacking:
            return tuple(parts)
        host |= lacking


def _orders(
    universe: Universe, needed: UnitSet, npu: UnitSet, seen: Container[UnitSet], work: Work, least: float
) -> Iterator[tuple[PieceUnits, ...]]:
    """Orders whose NPU parts contain only units of `npu` and do at least `least` work."""
    for on_host in (0, *_ends(universe, needed, needed & ~npu, work)):
        parts = _settled(universe, needed, npu & ~on_host, seen)
        while (weight := _weight(parts, work)) and weight >= least:
            yield parts
            spare = _smallest(parts, work, weight - least)
            if not spare:
                break
            parts = _settled(universe, needed, union(_on_npu(parts)) & ~spare, seen)


def _settled(universe: Universe, needed: UnitSet, npu: UnitSet, seen: Container[UnitSet]) -> tuple[PieceUnits, ...]:
    """The schedule after moving units to the host whose NPU part would lack their required producers."""
    while True:
        parts = schedule(universe, npu, needed & ~npu)
        lacking = _lacking(universe, parts, seen)
        if not lacking:
            return parts
        npu &= ~lacking


def _lacking(universe: Universe, parts: Sequence[PieceUnits], seen: Container[UnitSet]) -> UnitSet:
    """Units of NPU parts without their required producers, but for parts that compiled exactly as they are."""
    return of(
        unit
        for part in _on_npu(parts)
        if part not in seen
        for unit in members(part)
        if universe.required_producers.get(unit, 0) & ~part
    )


def _on_npu(parts: Sequence[PieceUnits]) -> list[UnitSet]:
    return [part.units for part in parts if part.kind is PieceKind.NPU]


def _weight(parts: Sequence[PieceUnits], work: Work) -> float:
    return total(work, union(_on_npu(parts)))


def _ends(universe: Universe, needed: UnitSet, host: UnitSet, work: Work) -> tuple[UnitSet, ...]:
    """Sets around `host` that, moved to the host too, leave one NPU part: all before, all after, or each nearer end."""
    before, behind = ancestors(universe), descendants(universe)
    nearer = union(
        min(before[unit] & needed, behind[unit] & needed, key=lambda end: total(work, end & ~host))
        for unit in members(host)
    )
    return (
        union(before[unit] for unit in members(host)) & needed,
        union(behind[unit] for unit in members(host)) & needed,
        nearer,
    )


def _smallest(parts: Sequence[PieceUnits], work: Work, most: float) -> UnitSet:
    """The smallest NPU parts that together have at most `most` work, never including the largest part."""
    weighed = sorted((total(work, units), units) for units in _on_npu(parts))
    found = 0
    for weight, units in weighed[:-1]:
        most -= weight
        if most < 0:
            break
        found |= units
    return found
