"""The remainder as pieces that an NPU can run one after another, with the culprits in between on the host."""

from onnxbisect.job import Job
from onnxbisect.report.contents import PieceEntry
from onnxbisect.report.culprits import Entries
from onnxbisect.report.ranges import spell
from onnxbisect.report.records import Records
from onnxbisect.split.schedule import Kind, schedule
from onnxbisect.unitset import UnitSet, is_subset, members, size
from onnxbisect.universe import Universe
from onnxbisect.verdict import Status


def partition_entries(job: Job, records: Records, entries: Entries) -> list[PieceEntry]:
    """Pieces of the remainder, as far as it is known to pass."""
    remainder = job.diagnosis.remainder
    fits = [(name, units) for name, units in records.passing if is_subset(remainder, units)]
    fits = fits or sorted(records.passing, key=lambda item: -size(item[1] & remainder))
    if not fits:
        return []
    proof, proven = fits[0]
    return [
        {
            "size": size(piece),
            "nodes": entries.names(piece),
            "units": spell(piece),
            "proof": records.named(piece, Status.PASS) or proof,
            "compiled": records.named(piece, Status.PASS) is not None,
            "needs_context": entries.names(_torn(job, piece)),
        }
        for piece in pieces(job.model.universe, remainder & proven)
    ]


def _torn(job: Job, piece: UnitSet) -> UnitSet:
    """Units that pass only in context and lack part of it (the group that passed, or else their neighbours)."""
    universe = job.model.universe
    torn = 0
    for group in job.diagnosis.needs_context:
        for occurrence in group.occurrences:
            if not occurrence & piece:
                continue
            around = group.passes_with if occurrence == group.units else None
            if around is None:
                around = occurrence
                for unit in members(occurrence):
                    around |= universe.predecessors[unit] | universe.successors[unit]
            if not is_subset(around, piece):
                torn |= occurrence & piece
    return torn


def pieces(universe: Universe, inside: UnitSet) -> tuple[UnitSet, ...]:
    """Divide `inside` into few convex pieces, in an order in which they can run (`split.schedule`)."""
    parts = schedule(universe, inside, universe.everything & ~inside)
    return tuple(part.units for part in parts if part.kind is Kind.NPU)
