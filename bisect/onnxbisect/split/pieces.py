"""Cut the parts of a split out of the model."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx

from onnxbisect.cut.cutter import Cutter
from onnxbisect.cut.frame import Wishes
from onnxbisect.cut.required_producers import producers_required_by_dtype
from onnxbisect.cut.wiring import read_wiring
from onnxbisect.cut.write import Piece
from onnxbisect.model.model import Model
from onnxbisect.model.opaque import opaque_nodes
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.split.choose import choose, flow, needed, total, work_of
from onnxbisect.split.schedule import Crossing, PieceKind, PieceUnits, crossings, with_custom_apart
from onnxbisect.unitset import UnitSet, members, of, sort_key, union
from onnxbisect.universe import Universe

_PLAIN = ProbeFormat()


@dataclass(frozen=True, kw_only=True)
class CutPart:
    """A part as a stand-alone model. `seen`: exactly these units compiled. `share`: its part of the model's work."""

    kind: PieceKind
    piece: Piece
    seen: bool
    share: float


def cut_parts(
    model: Model, passed: Sequence[UnitSet], share: float, probe_format: ProbeFormat
) -> tuple[tuple[CutPart, ...], Mapping[str, Crossing]]:
    """The parts chosen by `choose`, in an order in which they can run, and the tensors that cross between them.

    Pieces for the NPU follow `probe_format`, except for what changes outputs. As inputs from other pieces they have
    tensors of dtypes that `probe_format` allows, and of other dtypes only where the piece compiled with them.
    """
    wiring = read_wiring(model)
    universe = replace(flow(model, wiring), required_producers=producers_required_by_dtype(model, probe_format))
    wanted = needed(model, wiring, universe)
    work = work_of(model)
    opaque = opaque_nodes(model.proto)
    custom = of(number for number, unit in enumerate(model.units) if unit.node in opaque)
    chosen = with_custom_apart(universe, choose(universe, wanted, passed, work, share), custom)
    parts = tuple(_as_seen(universe, wanted, passed, tuple(chosen)))
    crossing = crossings(model, wiring, parts)
    cutter = Cutter(model)
    on_npu = replace(probe_format, covered=(), folds=True)

    def cut(part: PieceUnits) -> CutPart:
        seen = part.kind is PieceKind.NPU and part.units in passed
        made = (name for unit in members(part.units) for name in wiring.made[model.units[unit].node])
        # A piece that compiled keeps its outputs; others drop outputs without a reader, to save the transfer.
        wishes = None if seen else Wishes(inputs=(), outputs=tuple(name for name in made if name in crossing))
        piece = cutter.cut(part.units, on_npu if part.kind is PieceKind.NPU else _PLAIN, wishes)
        if part.kind is not PieceKind.NPU:
            _loosen(piece.proto.graph, model.data_dependent)
        return CutPart(kind=part.kind, piece=piece, seen=seen, share=total(work, part.units) / float(work.sum()))

    return tuple(map(cut, parts)), crossing


def _as_seen(
    universe: Universe, needed: UnitSet, passed: Sequence[UnitSet], parts: Sequence[PieceUnits]
) -> Iterator[PieceUnits]:
    """Extend NPU parts by the producers of known values that were in the probe that compiled.

    No unit needs these producers, but with them the piece is exactly the one that compiled. A part stays as it is where
    no such probe passed, or where the producers read tensors that are not computed yet.
    """
    there = 0
    for part in parts:
        units = part.units
        if part.kind is PieceKind.NPU:
            fitting = (
                seen
                for seen in passed
                if seen & needed == units and not seen & there and not _takes(universe, seen) & ~(seen | there)
            )
            units = min(fitting, key=sort_key, default=units)
        there |= units
        yield replace(part, units=units)


def _takes(universe: Universe, units: UnitSet) -> UnitSet:
    return union(universe.predecessors[unit] for unit in members(units))


def _loosen(graph: onnx.GraphProto, tensors: Collection[str]) -> None:
    """Clear dimensions that depend on values, as after NonZero: the known numbers are from one run."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.name in tensors:
            for dim in value.type.tensor_type.shape.dim:
                dim.Clear()
