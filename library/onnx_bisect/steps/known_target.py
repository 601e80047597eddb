"""What is known about a target before a compile: the versions that it reads, and its support of each op."""

from collections.abc import Sequence
from dataclasses import dataclass

from onnxbisect.language import english
from onnxbisect.model.model import Model
from onnxbisect.preflight import Inspection, OpIssue, OpRecord, ToolLimits, inspect
from onnxbisect.verdict import Kind
from onnxbisect_backends import contract
from onnxbisect_backends.simulator.backend import WhitelistBackend
from onnxbisect_backends.simulator.profiles import OpSupport, Profile, load, shipped
from onnxbisect_backends.simulator.refusals import Rules, SimulatedRefusal, refusals

#: Most listed places of one op.
_PLACES = 20


@dataclass(frozen=True, kw_only=True)
class KnownTarget:
    """The versions that a target reads, and its limits on ops.

    `rules` are those of a profile, or of the tool itself; None if there are none. `notes` are for the user.
    """

    limits: ToolLimits
    rules: Rules | None
    notes: tuple[str, ...]


def inspect_for(model: Model, target: KnownTarget) -> Inspection:
    """Inspect the model for what this target refuses or converts to narrower types, without calling a compiler."""
    if target.rules is None:
        note = english("Nothing here records which ops {tool} takes; onnx-bisect run asks it.", tool=target.limits.tool)
        return inspect(model, target.limits, notes=(*target.notes, note))
    known = target.rules.profile
    note = english(
        "What {tool} takes of each op is from the profile {profile}: {source}.",
        tool=target.limits.tool,
        profile=known.profile,
        source=known.source,
    )
    return inspect(model, target.limits, op_record(model, target.rules), notes=(*target.notes, note))


def known_target(backend: contract.Backend) -> KnownTarget:
    """The tool's own description if it is usable here, else its profile.

    The tool may be started for its version. Without a usable tool and a profile, only general limits are known.
    """
    name = contract.profile(backend)
    profile = load(name)[0] if name in shipped() else None
    complaint = backend.check()
    if complaint is not None:
        if profile is None:
            return KnownTarget(limits=ToolLimits(tool=backend.name), rules=None, notes=(complaint,))
        limits = ToolLimits(
            tool=profile.tool,
            newest_ir=profile.folds_max_ir_version,
            newest_opset=profile.opset_max or profile.folds_max_opset,
            disputed=profile.disputed,
        )
        return KnownTarget(limits=limits, rules=Rules(profile=profile), notes=(complaint,))
    described = backend.describe()
    limits = ToolLimits(
        tool=described.tool,
        newest_ir=described.newest_ir,
        newest_opset=described.newest_opset,
        oldest_opset=described.oldest_opset,
        probe_format=described.probe_format,
        disputed=described.disputed if profile is None else profile.disputed,
    )
    rules: Rules | None = None
    if isinstance(backend, WhitelistBackend):
        rules = backend.rules
    elif profile is not None:
        rules = Rules(profile=profile)
    elif described.ops is not None:
        own = Profile(
            profile=backend.name,
            tool=described.tool,
            version=described.version,
            source=english("the ops that the tool lists"),
            folds=described.probe_format.folds,
            folds_max_opset=described.newest_opset if described.newer_unfolded else None,
            folds_max_ir_version=described.newest_ir if described.newer_unfolded else None,
            ops={op: OpSupport() for op in (*described.ops, "Constant")},
        )
        rules = Rules(profile=own)
    return KnownTarget(limits=limits, rules=rules, notes=())


def op_record(model: Model, rules: Rules) -> OpRecord:
    """The issues that the rules have with the model's ops, including unknown ones."""
    found = refusals(model.proto, rules)
    as_read = rules.with_every_file_folded()
    unfolded = found if as_read is None else refusals(model.proto, as_read)
    left = {_key(refusal) for refusal in unfolded}
    groups: dict[tuple[str, bool, str, bool], list[SimulatedRefusal]] = {}
    for refusal in found:
        if refusal.kind in (Kind.UNSUPPORTED, Kind.UNKNOWN) and refusal.ops:
            refused = refusal.kind is Kind.UNSUPPORTED
            groups.setdefault((refusal.ops[0], refused, refusal.reason, _key(refusal) not in left), []).append(refusal)
    issues = tuple(
        OpIssue(
            op=op,
            refused=refused,
            nodes=tuple(dict.fromkeys(node for refusal in group for node in refusal.nodes)),
            # the paths of nodes in subgraphs: `/loop > body > /gather`
            places=tuple(dict.fromkeys(" > ".join((*it.nodes, *it.inside)) for it in group if it.inside))[:_PLACES],
            reason=reason,
            folds=folds,
        )
        for (op, refused, reason, folds), group in groups.items()
    )
    return OpRecord(
        source=english("the profile {profile}", profile=rules.profile.profile),
        issues=issues,
        alone=rules.profile.is_of_single_ops,
    )


def _key(refusal: SimulatedRefusal) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
    return refusal.ops, refusal.nodes, refusal.inside
