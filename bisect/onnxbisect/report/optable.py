"""The ops of the model, whether the target accepts each, and the probes that prove it."""

from collections.abc import Mapping, Sequence

from onnxbisect.diagnosis import Certainty, CulpritKind
from onnxbisect.job import Job
from onnxbisect.report.contents import OpEntry, OpVerdict
from onnxbisect.report.records import Records
from onnxbisect.report.states import States
from onnxbisect.unitset import UnitSet, members, of, size
from onnxbisect.verdict import Status


def op_table(job: Job, states: States, records: Records, identities: Sequence[str]) -> list[OpEntry]:
    """One row for each op of the model: refused ones first, then by name."""
    rows = [_row(job, states, records, identities, op, of(units)) for op, units in _units_by_op(job).items()]
    order = {"fail": 0, "mixed": 1, "unknown": 2, "needs_context": 3, "pass": 4}
    return sorted(rows, key=lambda row: (order[row["verdict"]], row["domain"], row["op"]))


def _units_by_op(job: Job) -> Mapping[tuple[str, str], list[int]]:
    groups: dict[tuple[str, str], list[int]] = {}
    for index, unit in enumerate(job.model.units):
        node = job.model.proto.graph.node[unit.node]
        groups.setdefault(("" if node.domain == "ai.onnx" else node.domain, node.op_type), []).append(index)
    return groups


def _row(
    job: Job, states: States, records: Records, identities: Sequence[str], op: tuple[str, str], units: UnitSet
) -> OpEntry:
    involved = [
        (identity, culprit)
        for identity, culprit in zip(identities, job.diagnosis.culprits, strict=True)
        if culprit.kind is not CulpritKind.CAPACITY and any(place & units for place in culprit.places)
    ]
    alone = together = 0
    for _, culprit in involved:
        if culprit.certainty is Certainty.CONFIRMED:
            for occurrence in culprit.places:
                if culprit.kind is CulpritKind.SINGLE:
                    alone |= occurrence & units
                elif culprit.kind in (CulpritKind.INTERACTION, CulpritKind.COUNT):
                    together |= occurrence & units
    verdict: OpVerdict
    if alone | together:
        verdict = "mixed" if ((states.passing | states.context) & units) | (together & ~alone) else "fail"
        named = [records.named(culprit.evidence.fails, Status.FAIL) for _, culprit in involved]
        proof = [name for name in dict.fromkeys(named) if name is not None]
    elif units & ~(states.passing | states.context):
        verdict, proof = "unknown", []
    else:
        verdict, proof = "needs_context" if states.context & units else "pass", records.covering(units)
    universe = job.model.universe
    return {
        "op": op[1],
        "domain": op[0],
        "nodes": size(units),
        "variants": len({universe.variant[unit] for unit in members(units)}),
        "verdict": verdict,
        "failing": size(alone | together),
        "passing": size(states.passing & units),
        "culprits": [identity for identity, _ in involved],
        "proof": proof,
    }
