"""Culprits and their causes as entries of the document."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, cast

import onnx

from onnxbisect.causes.condition import nothing_passed
from onnxbisect.causes.explain import causes
from onnxbisect.diagnosis import Certainty, CompletedDiagnosis, ContextUnits, CulpritKind, DiagnosedCulprit
from onnxbisect.json_form import to_json
from onnxbisect.model.modules import Origin, origin
from onnxbisect.model.scopes import label, named_bodies, qualified
from onnxbisect.model.unit_properties import UnitProperties
from onnxbisect.report.contents import LISTED, culprit_dir_name
from onnxbisect.report.culprit_contents import (
    CauseEntry,
    CulpritEntry,
    Difference,
    DrawnEdge,
    DrawnNode,
    InnerNode,
    NeedsContextEntry,
    OriginEntry,
    PassingVariant,
    Role,
    Surroundings,
    VariantFact,
)
from onnxbisect.report.established import Records
from onnxbisect.report.text import slug
from onnxbisect.unitset import UnitSet, lowest, members, of, size, spell, union
from onnxbisect.verdict import Status

_ORIGINS = 20
_VARIANTS = 6
_EXAMPLES = 3
#: Most units of a culprit that is drawn, and most neighbours on either side.
_DRAWN = 12
_NEIGHBOURS = 4


def _inner(holder: onnx.NodeProto, path: tuple[str, ...]) -> Iterator[InnerNode]:
    for attribute, body in named_bodies(holder):
        for node in body.node:
            yield {"op": qualified(node), "node": label(node), "body": " > ".join((*path, attribute))}
            yield from _inner(node, (*path, attribute))


class Entries:
    """Makes the entries of one job."""

    def __init__(self, job: CompletedDiagnosis, records: Records) -> None:
        self._model = job.model
        self._universe = job.model.universe
        self._records = records
        self._facts = UnitProperties(job.model)
        self._culprits = job.diagnosis.culprits
        culprits = union(place for culprit in job.diagnosis.culprits for place in culprit.occurrences)
        self._blamed = culprits | union(place for it in job.diagnosis.needs_context for place in it.occurrences)

    def names(self, units: UnitSet) -> list[str]:
        """Node names in topological order."""
        return [self.node(unit).name for unit in members(units)]

    def ops(self, units: UnitSet) -> list[str]:
        """Op types in topological order, `domain::Op` outside the default domain."""
        return [qualified(self.node(unit)) for unit in members(units)]

    def node(self, unit: int) -> Any:
        """The protobuf of the unit's node."""
        return self._model.proto.graph.node[self._model.units[unit].node]

    def culprit(self, number: int, culprit: DiagnosedCulprit, identity: str, cause: int) -> CulpritEntry:
        """The entry of the culprit with this number, counted from 1."""
        ops = self.ops(culprit.units)
        largest = culprit.largest_passing
        evidence = culprit.evidence
        entry: CulpritEntry = {
            "id": identity,
            "kind": culprit.kind,
            "certainty": culprit.certainty,
            "confidence": culprit.confidence,
            "ops": ops,
            "nodes": self.names(culprit.units),
            "units": spell(culprit.units),
            "occurrences": [self.names(place) for place in culprit.places],
            "occurrence_units": [spell(place) for place in culprit.places],
            "inferred_units": spell(culprit.inferred),
            "at_most": {"allowed": size(culprit.units) - 1, "among": size(culprit.among)}
            if culprit.kind is CulpritKind.COUNT
            else None,
            "failure": culprit.failure,
            "fingerprint": culprit.fingerprint,
            "message": culprit.message,
            "repro": f"culprits/{culprit_dir_name(number, ops)}/model.onnx",
            "evidence": {
                "fails": self._records.named(evidence.fails, Status.FAIL),
                "subsets": [self._records.named(units, Status.PASS) for units in evidence.subsets],
                "context": self._records.named(evidence.context, Status.PASS),
                "blame": self._records.named(evidence.blame, Status.FAIL),
            },
            "largest_passing": None if largest is None else {"size": size(largest), "units": spell(largest)},
            "origin": self._origins(culprit.places),
            "passes_instead": self._passes_instead(culprit),
            "surroundings": self._surroundings(culprit.units),
            "cause": cause,
        }
        if number - 1 in self._variants:
            entry["variant"] = self._variants[number - 1]
        if within := self._refused_within(culprit):
            entry["refused_within"] = within
        return entry

    def _refused_within(self, culprit: DiagnosedCulprit) -> list[InnerNode]:
        """What the log of the culprit's own probe names in its bodies: by node names, or else by ops."""
        if culprit.kind is not CulpritKind.SINGLE:
            return []
        holder = self.node(lowest(culprit.units))
        inner = list(_inner(holder, ()))
        hints = self._records.hints(culprit.units)
        found = [it for it in inner if it["node"] in hints.nodes]
        return found or [it for it in inner if it["op"] in hints.ops and it["op"] != qualified(holder)]

    @cached_property
    def _variants(self) -> dict[int, list[VariantFact]]:
        """By a culprit's index, what tells it from others of its op; shapes only where all else is equal."""
        units: dict[str, dict[int, int]] = {}
        for index, culprit in enumerate(self._culprits):
            if culprit.kind is CulpritKind.SINGLE:
                (op,) = self.ops(culprit.units)
                units.setdefault(op, {})[index] = next(members(culprit.units))
        found: dict[int, list[VariantFact]] = {}
        for group in units.values():
            for shapes in (False, True):
                facts = {index: self._facts.of(unit, shapes=shapes) for index, unit in group.items()}
                labels = dict.fromkeys(label for each in facts.values() for label in each)
                telling = [it for it in labels if len({each.get(it) for each in facts.values()}) > 1]
                if telling:
                    for index, each in facts.items():
                        found[index] = [{"what": label, "value": each.get(label)} for label in telling]
                    break
        return found

    def needs_context(self, group: ContextUnits) -> NeedsContextEntry:
        """The entry of units that fail only when they are cut out."""
        around = group.passes_with
        return {
            "ops": self.ops(group.units),
            "nodes": self.names(group.units),
            "units": spell(group.units),
            "occurrences": [self.names(occurrence) for occurrence in group.occurrences],
            "occurrence_units": [spell(occurrence) for occurrence in group.occurrences],
            "fails": self._records.named(group.units, Status.FAIL),
            "passes_with": None
            if around is None
            else {
                "size": size(around),
                "units": spell(around),
                "nodes": self.names(around) if size(around) <= LISTED else None,
                "probe": self._records.named(around, Status.PASS),
            },
            "origin": self._origins(group.occurrences or (group.units,)),
        }

    def identities(self) -> list[str]:
        """An id for each culprit, the same in every run, made from kind, ops, the ops' operands, and fingerprint."""
        seen: dict[str, int] = {}
        found: list[str] = []
        for culprit in self._culprits:
            ops = self.ops(culprit.units)
            facts = (
                []
                if culprit.kind is CulpritKind.CAPACITY
                else [sorted(self._facts.of(unit, shapes=False).items()) for unit in members(culprit.units)]
            )
            text = json.dumps([culprit.kind.value, ops, facts, culprit.fingerprint])
            digest = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:8]
            name = f"{slug('-'.join(ops))}-{digest}"
            seen[name] = seen.get(name, 0) + 1
            found.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
        return found

    def _origins(self, occurrences: tuple[UnitSet, ...]) -> list[OriginEntry]:
        """The distinct source places of the nodes of all occurrences, in model order, and every line once at least."""
        found: dict[Origin, OriginEntry] = {}
        of_line: dict[tuple[str | None, int | None], OriginEntry] = {}
        for occurrence in occurrences:
            for unit in members(occurrence):
                place = origin(self.node(unit))
                line = (place.file, place.line)
                if known := found.get(place) or (of_line.get(line) if len(found) >= _ORIGINS else None):
                    known["nodes"] += 1
                elif place and len(of_line) < _ORIGINS:
                    found[place] = cast(OriginEntry, {"node": self.node(unit).name, **to_json(place), "nodes": 1})
                    of_line.setdefault(line, found[place])
        return list(found.values())

    def _passes_instead(self, culprit: DiagnosedCulprit) -> list[PassingVariant]:
        """Variants of the same op that passed in this model, with their differences from the culprit."""
        if culprit.kind is not CulpritKind.SINGLE or culprit.certainty is not Certainty.CONFIRMED:
            return []
        unit = next(members(culprit.units))
        (op,) = self.ops(culprit.units)
        fine = self._records.passed & ~self._blamed
        variants: dict[int, list[int]] = {}
        for other in members(fine):
            if self._universe.op[other] == self._universe.op[unit]:
                variants.setdefault(self._universe.variant[other], []).append(other)
        found: list[PassingVariant] = []
        for others in variants.values():
            differs = self._differences(unit, others[0])
            if differs and len(found) < _VARIANTS:
                found.append(
                    {
                        "op": op,
                        "count": len(others),
                        "nodes": [self.node(other).name for other in others[:_EXAMPLES]],
                        "differs": differs,
                        "probe": next(iter(self._records.covering(1 << others[0])), None),
                    }
                )
        return found

    def _differences(self, culprit: int, other: int) -> list[Difference]:
        """The differences in attributes and inputs of two units; shapes only where all else is equal."""
        for shapes in (False, True):
            mine, theirs = (self._facts.of(unit, shapes=shapes) for unit in (culprit, other))
            labels = [label for label in dict.fromkeys((*mine, *theirs)) if mine.get(label) != theirs.get(label)]
            if labels:
                return [{"what": label, "culprit": mine.get(label), "passes": theirs.get(label)} for label in labels]
        return []

    def _surroundings(self, units: UnitSet) -> Surroundings | None:
        """`nodes` (name, op, role) and `edges` between them (indices into `nodes`, tensor, type); None if too large.

        Roles: `culprit`; `before` and `after` for neighbours; `input` and `output` for the graph's own, without an op.
        """
        if not 0 < size(units) <= _DRAWN:
            return None
        universe, graph = self._universe, self._model.proto.graph
        inside = list(members(units))
        before, after = (
            list(members(union(beside[unit] for unit in inside) & ~units))
            for beside in (universe.predecessors, universe.successors)
        )
        roles: dict[int, Role] = dict.fromkeys(before[-_NEIGHBOURS:], "before")
        roles |= dict.fromkeys(after[:_NEIGHBOURS], "after")
        roles |= dict.fromkeys(inside, "culprit")
        nodes: list[DrawnNode] = []
        place: dict[int, int] = {}
        producer: dict[str, int] = {}
        for unit in sorted(roles):
            node = self.node(unit)
            place[unit] = len(nodes)
            producer |= {tensor: unit for tensor in node.output if tensor}
            nodes.append({"name": node.name, "op": universe.op[unit], "role": roles[unit]})
        edges: list[DrawnEdge] = []
        for unit in sorted(roles):
            for tensor in dict.fromkeys(self.node(unit).input):
                source = producer.get(tensor)
                if source is not None and "culprit" in (roles[unit], roles[source]):
                    edges.append(self._edge(place[source], place[unit], tensor))
        weights = {tensor.name for tensor in graph.initializer}
        used = {name for unit in inside for name in self.node(unit).input} - weights
        made = {name: unit for unit in inside for name in self.node(unit).output}
        for value in [value for value in graph.input if value.name in used][:_NEIGHBOURS]:
            nodes.append({"name": value.name, "op": "", "role": "input"})
            for unit in inside:
                if value.name in self.node(unit).input:
                    edges.append(self._edge(len(nodes) - 1, place[unit], value.name))
        for value in [value for value in graph.output if value.name in made][:_NEIGHBOURS]:
            nodes.append({"name": value.name, "op": "", "role": "output"})
            edges.append(self._edge(place[made[value.name]], len(nodes) - 1, value.name))
        return {
            "nodes": nodes,
            "edges": edges,
            "hidden_before": max(0, len(before) - _NEIGHBOURS),
            "hidden_after": max(0, len(after) - _NEIGHBOURS),
        }

    def _edge(self, source: int, target: int, tensor: str) -> DrawnEdge:
        return {"from": source, "to": target, "tensor": tensor, "type": self._facts.type(tensor)}


def cause_entries(
    job: CompletedDiagnosis, records: Records, entries: Entries, identities: Sequence[str]
) -> list[CauseEntry]:
    """One entry for each cause; those that say more than which ops are refused come first."""
    found = causes(job.model, job.diagnosis, records.passed, job.neighbours, alone=records.passed_alone)
    return [
        {
            "text": cause.text,
            "state": cause.state,
            "telling": cause.telling,
            "established": cause.established,
            "culprits": [identities[number] for number in cause.culprits],
            "conditions": [
                {
                    "text": condition.phrase or condition.subject.op,
                    "op": condition.subject.op or None,
                    "aspect": condition.subject.aspect,
                    "name": condition.subject.name,
                    "relation": condition.relation,
                    "value": condition.value,
                }
                for condition in cause.conditions
            ],
            "refused_units": spell(cause.refused),
            "places": {"refused": size(cause.refused), "unknown": size(cause.unknown)},
            "nothing_passed": nothing_passed(cause.conditions) if cause.conditions else "",
            "contrast": [
                {
                    "condition": contrast.condition.phrase or contrast.condition.subject.op,
                    "passes": contrast.passes,
                    "places": size(contrast.units),
                    "nodes": entries.names(of(list(members(contrast.units))[:_EXAMPLES])),
                    "probe": next(iter(records.covering(1 << lowest(contrast.units))), None)
                    if contrast.units
                    else None,
                }
                for contrast in cause.contrast
            ],
            "fits_too": list(cause.fits_too),
        }
        for cause in found
    ]
