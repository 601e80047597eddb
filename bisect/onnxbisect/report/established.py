"""What the probes of a search establish: which of them proves a statement, and what is known of each unit and op."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite

from onnx import TensorProto

from onnxbisect.diagnosis import Certainty, CompletedDiagnosis, CulpritKind, Diagnosis, ProbeRecord
from onnxbisect.model.facts import TensorFacts
from onnxbisect.model.scopes import attribute_value, domain_of
from onnxbisect.report.contents import OpEntry, OpVerdict, UseEntry, UseInput, probe_name
from onnxbisect.unitset import UnitSet, is_subset, members, of, size, spell, union
from onnxbisect.universe import Universe
from onnxbisect.verdict import Hints, Status


class Records:
    """The probes of a job, in the order of their answers.

    A probe is named after its units and attempt, not numbered: with several workers the order differs each time, and
    what a report says about its culprits does not.
    """

    def __init__(self, probes: Iterable[ProbeRecord]) -> None:
        self.named_probes = tuple((probe_name(probe.units, probe.attempt), probe) for probe in probes)
        self._first: dict[tuple[UnitSet, Status], str] = {}
        # by attempt, not by time: answers reused from an earlier job all arrive at once
        for name, probe in sorted(self.named_probes, key=lambda it: it[1].attempt):
            self._first.setdefault((probe.units, probe.verdict.status), name)

    def named(self, units: UnitSet | None, status: Status) -> str | None:
        """The name of the first probe of exactly these units with this status."""
        return None if units is None else self._first.get((units, status))

    def hints(self, units: UnitSet) -> Hints:
        """What the log of the first failing probe of exactly these units names."""
        failing = (it.verdict.hints for _, it in self.named_probes if it.units == units and it.verdict.failed)
        return next(failing, Hints())

    @cached_property
    def passing(self) -> tuple[tuple[str, UnitSet], ...]:
        """Every passing probe, smallest first."""
        found = [(name, probe.units) for name, probe in self.named_probes if probe.verdict.passed]
        return tuple(sorted(found, key=lambda item: (size(item[1]), item[1], item[0])))

    @cached_property
    def passed(self) -> UnitSet:
        """The units in a passing probe."""
        return union(units for _, units in self.passing)

    @cached_property
    def passed_alone(self) -> UnitSet:
        """The units that passed with nothing beside them."""
        return union(units for _, units in self.passing if size(units) == 1)

    def covering(self, units: UnitSet) -> list[str]:
        """The smallest passing probe with all of `units`, or a few that contain them together; may be incomplete."""
        for name, probe in self.passing:
            if is_subset(units, probe):
                return [name]
        names: list[str] = []
        left = units & self.passed
        while left:
            name, probe = max(self.passing, key=lambda item: (size(item[1] & left), -size(item[1])))
            names.append(name)
            left &= ~probe
        return names


@dataclass(frozen=True, kw_only=True)
class States:
    """Five disjoint sets that together are the whole model.

    `culprit`: in an occurrence of a confirmed culprit. `suspected`: in one that is not confirmed. `context`: fails only
    when cut out. `passing`: in a passing probe and none of the above. `unknown`: the rest.
    """

    culprit: UnitSet
    suspected: UnitSet
    context: UnitSet
    passing: UnitSet
    unknown: UnitSet


def states(universe: Universe, diagnosis: Diagnosis, records: Records) -> States:
    """The state of every unit of the model."""
    culprit = suspected = context = 0
    for found in diagnosis.culprits:
        if found.kind is CulpritKind.CAPACITY:
            continue  # too much of it; no unit of it is to blame
        for occurrence in found.places:
            if found.certainty is Certainty.CONFIRMED:
                culprit |= occurrence
            else:
                suspected |= occurrence
    for group in diagnosis.needs_context:
        for occurrence in group.occurrences or (group.units,):
            context |= occurrence
    suspected &= ~culprit
    context &= ~(culprit | suspected)
    passing = records.passed & ~(culprit | suspected | context)
    unknown = universe.everything & ~(culprit | suspected | context | passing)
    return States(culprit=culprit, suspected=suspected, context=context, passing=passing, unknown=unknown)


def use_entries(job: CompletedDiagnosis, states: States) -> list[UseEntry]:
    """One entry for each variant, in model order.

    `passing` counts its units in passing probes, `refused` those that are culprits alone, and `message` is the
    compiler's for the latter. An attribute that is a tensor or a graph is null, and so is an omitted input.
    """
    refused: dict[int, str] = {}
    for culprit in job.diagnosis.culprits:
        if culprit.kind is CulpritKind.SINGLE and culprit.certainty is Certainty.CONFIRMED:
            for occurrence in culprit.places:
                refused.update((unit, culprit.message) for unit in members(occurrence))
    facts = TensorFacts.of(job.model)
    entries: list[UseEntry] = []
    for units in sorted(filter(None, job.model.universe.variant_members), key=lambda units: units & -units):
        first = next(iter(members(units)))
        node = job.model.proto.graph.node[job.model.units[first].node]
        messages = [refused[unit] for unit in members(units) if unit in refused]
        inputs: list[UseInput | None] = []
        for name in node.input:
            dtype, shape = facts.dtype(name), facts.shape(name)
            given: UseInput = {
                "dtype": None if dtype is None else TensorProto.DataType.Name(dtype),
                "rank": None if shape is None else len(shape),
                "constant": facts.is_constant(name),
            }
            inputs.append(given if name else None)
        entries.append(
            {
                "op": node.op_type,
                "domain": domain_of(node),
                "opset": facts.opsets.get(domain_of(node)),
                "attributes": {attribute.name: _number(attribute_value(attribute)) for attribute in node.attribute},
                "inputs": inputs,
                "outputs": sum(map(bool, node.output)),
                "units": spell(units),
                "passing": size(units & states.passing),
                "refused": len(messages),
                "message": messages[0] if messages else "",
            }
        )
    return entries


def _number(value: object) -> object:
    """The value, with a number as text if it is infinite or NaN, which JSON lacks."""
    if isinstance(value, list):
        return [_number(it) for it in value]
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def op_table(job: CompletedDiagnosis, states: States, records: Records, identities: Sequence[str]) -> list[OpEntry]:
    """One row for each op of the model: refused ones first, then by name."""
    groups: dict[tuple[str, str], list[int]] = {}
    for index, unit in enumerate(job.model.units):
        node = job.model.proto.graph.node[unit.node]
        groups.setdefault((domain_of(node), node.op_type), []).append(index)
    blamed = [
        (identity, culprit)
        for identity, culprit in zip(identities, job.diagnosis.culprits, strict=True)
        if culprit.kind is not CulpritKind.CAPACITY
    ]
    rows: list[OpEntry] = []
    for (domain, op), indices in groups.items():
        units = of(indices)
        involved = [(identity, it) for identity, it in blamed if any(place & units for place in it.places)]
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
        rows.append(
            {
                "op": op,
                "domain": domain,
                "nodes": size(units),
                "variants": len({job.model.universe.variant[unit] for unit in members(units)}),
                "verdict": verdict,
                "failing": size(alone | together),
                "passing": size(states.passing & units),
                "culprits": [identity for identity, _ in involved],
                "proof": proof,
            }
        )
    order = {"fail": 0, "mixed": 1, "unknown": 2, "needs_context": 3, "pass": 4}
    return sorted(rows, key=lambda row: (order[row["verdict"]], row["domain"], row["op"]))
