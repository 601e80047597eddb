"""Make the report's JSON document, `onnx-bisect/report@1`; every other form of the report is made from it."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from onnxbisect.diagnosis import (
    Alternative,
    Certainty,
    CertificateStatus,
    CompletedDiagnosis,
    CulpritKind,
)
from onnxbisect.errors import CutError
from onnxbisect.json_form import to_json
from onnxbisect.model.input_values import plain
from onnxbisect.model.model import Model
from onnxbisect.model.modules import parts, path_of_node, spelled
from onnxbisect.model.scopes import qualified
from onnxbisect.report import contents, words
from onnxbisect.report.culprit_contents import AlternativeEntry
from onnxbisect.report.culprits import Entries, cause_entries
from onnxbisect.report.established import Records, States, op_table, states, use_entries
from onnxbisect.split.choose import choose, work_of
from onnxbisect.split.schedule import PieceKind, schedule
from onnxbisect.unitset import UnitSet, is_subset, lowest, members, size, spell, union
from onnxbisect.universe import Universe
from onnxbisect.verdict import Status

if TYPE_CHECKING:
    from onnxbisect.remedies.advisor import Advised


def document(job: CompletedDiagnosis, replaced: "Sequence[Advised | None]" = ()) -> contents.Report:
    """The report of a job as JSON data, with names and messages unescaped.

    `replaced` says for each culprit what would replace it; empty where nothing was looked for.

    `culprits[].repro` names the file, below the report's folder, that reproduces the culprit. The code that writes the
    report must put it there or set the name to None.
    """
    records = Records(job.probes)
    entries = Entries(job, records)
    known = states(job.model.universe, job.diagnosis, records)
    identities = entries.identities()
    nodes = [entries.node(unit) for unit in range(len(job.model.units))]
    causes = cause_entries(job, records, entries, identities)
    cause_of = {identity: place for place, cause in enumerate(causes) for identity in cause["culprits"]}
    result: contents.Report = {
        "format": contents.FORMAT,
        "headline": "",
        "model": _model(job),
        "target": {
            "backend": job.target.backend,
            "tool": job.target.tool,
            "version": job.target.version,
            "options": dict(job.target.options),
        },
        "verdict": job.diagnosis.verdict,
        "compiles_after": to_json(job.compiles_after),
        "causes": causes,
        "culprits": [
            entries.culprit(number, culprit, identity, cause_of[identity])
            for number, (culprit, identity) in enumerate(zip(job.diagnosis.culprits, identities, strict=True), 1)
        ],
        "alternatives": [_alternative(one, identities) for one in job.alternatives],
        "needs_context": [entries.needs_context(group) for group in job.diagnosis.needs_context],
        "certificate": _certificate(job, records, known),
        "modules": module_entries(job.model, known),
        "op_table": op_table(job, known, records, identities),
        "uses": use_entries(job, known),
        "partition": partition_entries(job, records, entries),
        "tables": _tables(job, records),
        "preflight": to_json(job.preflight),
        "units": {
            "names": [node.name for node in nodes],
            "ops": list(map(qualified, nodes)),
            "states": {
                "culprit": spell(known.culprit),
                "suspected": spell(known.suspected),
                "needs_context": spell(known.context),
                "pass": spell(known.passing),
                "unknown": spell(known.unknown),
            },
        },
        "probes": [
            {
                "id": name,
                "key": probe.key,
                "size": size(probe.units),
                "units": spell(probe.units),
                "nodes": entries.names(probe.units) if size(probe.units) <= contents.LISTED else None,
                "why": probe.why,
                "verdict": probe.verdict.status,
                "kind": probe.verdict.kind,
                "message": probe.verdict.message,
                "fingerprint": probe.verdict.fingerprint,
                "seconds": round(probe.verdict.seconds, 3),
                "cached": probe.cached,
                "round": probe.round,
                "attempt": probe.attempt,
            }
            for name, probe in records.named_probes
        ],
        "unresolved": spell(job.diagnosis.unresolved),
        "flaky": [
            {
                "size": size(units),
                "units": spell(units),
                "probes": [name for name, probe in records.named_probes if probe.units == units],
            }
            for units in job.diagnosis.flaky
        ],
        "stats": cast(contents.StatsEntry, {name: round(value, 3) for name, value in to_json(job.stats).items()}),
    }
    whole = [it.verdict for it in job.probes if it.units == job.model.universe.everything]
    unanswered = [verdict.message for verdict in whole if verdict.status is Status.UNRESOLVED]
    # whether the model compiles and only its numbers are wrong: by its culprits, or if there are none, as a whole
    kinds = [it.failure for it in job.diagnosis.culprits] or [it.kind for it in whole if it.failed and it.kind]
    certain = sum(culprit.certainty is Certainty.CONFIRMED for culprit in job.diagnosis.culprits)
    result["headline"] = words.headline(
        result["verdict"],
        job.model.path.name,
        words.target(result["target"]),
        certain,
        unanswered[-1] if unanswered else "",
        others=words.computes_others(kinds),
        alike=_said_of_everything(job),
    )
    for entry, candidate in zip(result["culprits"], replaced, strict=False):
        entry["replace_by"] = None
        if candidate is not None:
            rules, gives = list(candidate.rules), list(candidate.gives)
            entry["replace_by"] = {"rules": rules, "gives": gives, "exactness": candidate.exactness}
    if job.file_after:
        result["file_after"] = job.file_after
        result["headline"] = words.in_file_after(result["headline"], job.file_after)
    if (after := result["compiles_after"]) is not None:
        result["headline"] = words.compiles_after(result, after)
        if not after["options"]:
            del after["options"]
    return result


def _model(job: CompletedDiagnosis) -> contents.ModelEntry:
    model = job.model
    entry: contents.ModelEntry = {
        "sha256": model.sha256,
        "name": model.path.name,
        "nodes": len(model.proto.graph.node),
        "units": len(model.units),
        "variants": len(set(model.universe.variant)),
        "opsets": {entry.domain: entry.version for entry in model.proto.opset_import},
        "producer": f"{model.proto.producer_name} {model.proto.producer_version}".strip(),
        "notes": list(model.notes),
    }
    if (path := contents.path_below(model.path)) is not None:
        entry["path"] = path
    if model.input_shapes:
        entry["input_shapes"] = {name: list(dims) for name, dims in model.input_shapes.items()}
    if model.input_values:
        entry["input_values"] = {name: plain(array) for name, array in model.input_values.items()}
    return entry


def _said_of_everything(job: CompletedDiagnosis) -> str:
    """The message if nothing passed and everything was refused in the same words; else empty.

    Words that name ops or nodes are about these. One op that is refused everywhere is an ordinary culprit.
    """
    answered = [it for it in job.probes if it.verdict.status is not Status.UNRESOLVED]
    said = {(it.verdict.kind, it.verdict.fingerprint) for it in answered}
    if len(said) != 1 or any(not it.verdict.failed or it.verdict.hints for it in answered):
        return ""
    ops = {job.model.universe.op[lowest(it.units)] for it in answered if size(it.units) == 1}
    return answered[0].verdict.message.strip().partition("\n")[0].strip() if len(ops) > 1 else ""


def _certificate(job: CompletedDiagnosis, records: Records, known: States) -> contents.CertificateEntry:
    diagnosis = job.diagnosis
    certificate = diagnosis.certificate
    if job.compiles_after is not None:
        return {
            "status": CertificateStatus.BOUNDED,
            "sentence": words.WITH_OPTIONS if job.compiles_after.with_options_alone else words.NOT_SEARCHED,
            "probes": [],
            "assumes": [],
            "unknown": [],
        }
    if certificate.status is CertificateStatus.BOUNDED:
        sentence = words.bounded(
            len(diagnosis.culprits),
            compiled=size(known.passing | known.context),
            unknown=size(known.unknown),
            units=len(job.model.units),
        )
    else:
        blamed = union(occurrence for culprit in diagnosis.culprits for occurrence in culprit.occurrences)
        sentence = words.proven(
            diagnosis.verdict.value,
            len(diagnosis.culprits),
            removed=len(job.model.units) - size(diagnosis.remainder),
            remainder=size(diagnosis.remainder),
            blamed=size(blamed),
            ways=len(certificate.probes),
            inferred=sum(size(culprit.inferred) for culprit in diagnosis.culprits),
        )
    named = [records.named(units, Status.PASS) for units in certificate.probes]
    return {
        "status": certificate.status,
        "sentence": sentence,
        "probes": [name for name in named if name is not None],
        "assumes": list(certificate.assumes),
        "unknown": list(certificate.unknown),
    }


def partition_entries(job: CompletedDiagnosis, records: Records, entries: Entries) -> list[contents.PieceEntry]:
    """Pieces of the remainder, as far as it is known to pass; of a target that takes only so much, those of `split`."""
    universe, remainder = job.model.universe, job.diagnosis.remainder
    fits = [(name, units) for name, units in records.passing if is_subset(remainder, units)]
    fits = fits or sorted(records.passing, key=lambda item: -size(item[1] & remainder))
    if not fits:
        return []
    if any(culprit.kind in (CulpritKind.CAPACITY, CulpritKind.COUNT) for culprit in job.diagnosis.culprits):
        fits = list(records.passing)
        try:
            parts = choose(universe, universe.everything, [units for _, units in fits], work_of(job.model))
        except CutError:  # what compiled does not without nodes that are refused
            return []
        found = [part.units for part in parts if part.kind is PieceKind.NPU]
    else:
        found = list(pieces(universe, remainder & fits[0][1]))
    return [
        {
            "size": size(piece),
            "nodes": entries.names(piece),
            "units": spell(piece),
            "proof": records.named(piece, Status.PASS) or next(name for name, units in fits if is_subset(piece, units)),
            "compiled": records.named(piece, Status.PASS) is not None,
            "needs_context": entries.names(_torn(job, piece)),
        }
        for piece in found
    ]


def _torn(job: CompletedDiagnosis, piece: UnitSet) -> UnitSet:
    """Units that pass only in context and lack part of it (the group that passed, or else their neighbours)."""
    universe = job.model.universe
    torn = 0
    for group in job.diagnosis.needs_context:
        for occurrence in group.occurrences:
            around = group.passes_with if occurrence == group.units else None
            if not is_subset(occurrence | universe.neighbours(occurrence) if around is None else around, piece):
                torn |= occurrence & piece
    return torn


def pieces(universe: Universe, inside: UnitSet) -> tuple[UnitSet, ...]:
    """Divide `inside` into few convex pieces, in an order in which they can run (`split.schedule`)."""
    parts = schedule(universe, inside, universe.everything & ~inside)
    return tuple(part.units for part in parts if part.kind is PieceKind.NPU)


def module_entries(model: Model, known: States) -> list[contents.ModuleEntry]:
    """The largest modules of the network; empty if node names show no more than one."""
    graph = model.proto.graph
    paths = {number: path_of_node(graph.node[unit.node]) for number, unit in enumerate(model.units)}
    return [
        {
            "name": spelled(path) if path else "",
            "size": size(units),
            "units": spell(units),
            "verdict": "fail"
            if units & known.culprit
            else "unknown"
            if units & (known.suspected | known.unknown)
            else "pass",
            "refused": _ops(model, units & known.culprit),
            "suspected": _ops(model, units & known.suspected),
            "unknown": size(units & known.unknown),
        }
        for path, units in parts(paths).items()
    ]


def _ops(model: Model, units: UnitSet) -> list[contents.OpCount]:
    counted = Counter(qualified(model.proto.graph.node[model.units[unit].node]) for unit in members(units))
    return [{"op": op, "nodes": count} for op, count in counted.items()]


def _alternative(one: Alternative, identities: Sequence[str]) -> AlternativeEntry:
    pairs = list(zip(identities, one.culprits, strict=True)) if one.culprits else []
    return {
        "options": dict(one.options),
        "tool": one.tool,
        "version": one.version,
        "takes": [identity for identity, verdict in pairs if verdict is not None and verdict.passed],
        "refuses": [
            {"culprit": identity, "message": verdict.message}
            for identity, verdict in pairs
            if verdict is not None and verdict.failed
        ],
        "unknown": [identity for identity, verdict in pairs if verdict is None or verdict.status is Status.UNRESOLVED],
        "whole": None if one.whole is None else one.whole.status,
        "message": "" if one.whole is None or one.whole.passed else one.whole.message,
        "problem": one.problem,
        "compiler_calls": one.calls,
        "cached": one.cached,
    }


def _tables(job: CompletedDiagnosis, records: Records) -> list[contents.TableEntry]:
    """The tables of the whole model, if it got that far; else those of the probes that prove the remainder.

    A probe whose units are all in earlier ones is left out.
    """
    whole = job.model.universe.everything
    asked = [(name, probe) for name, probe in records.named_probes if probe.verdict.tables]
    chosen = [(name, probe) for name, probe in asked if probe.units == whole][-1:]
    if not chosen:
        proof = set(job.diagnosis.certificate.probes)
        shown = 0
        for name, probe in asked:
            if probe.units in proof and probe.verdict.passed and not is_subset(probe.units, shown):
                shown |= probe.units
                chosen.append((name, probe))
    return [
        {
            "title": table.title,
            "probe": name,
            "columns": list(table.columns),
            "rows": [list(row) for row in table.rows],
            "counted": table.counted or None,
        }
        for name, probe in chosen
        for table in probe.verdict.tables
    ]
