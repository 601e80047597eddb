"""Which changed files to try for a model that a tool refuses, smallest change first."""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace

import onnx

from onnxbisect.errors import ModelError
from onnxbisect.file_remedies import declarations, form
from onnxbisect.file_remedies.control_flow import (
    of_several,
    resolve_control_flow,
    sequences_to_tensors,
    weights_into_bodies,
)
from onnxbisect.file_remedies.inlining import inline_functions
from onnxbisect.file_remedies.lowering import axes_to_attributes, lower_opset
from onnxbisect.file_remedies.ranks import USUAL_RANK, few_dimensions, lower_ranks
from onnxbisect.file_remedies.remedy import File, FileRemedy, RemediedFile
from onnxbisect.file_remedies.removal import (
    bound_masks,
    drop_empty_tensors,
    fold_constants,
    low_masks,
    neutral_factors,
    remove_copies,
    remove_nan_guards,
    remove_neutral_factors,
)
from onnxbisect.file_remedies.usual_forms import BY_RULES
from onnxbisect.language import BETWEEN
from onnxbisect.model import Model
from onnxbisect.model.facts import TensorFacts
from onnxbisect.model.gate import complaint
from onnxbisect.model.model import Bounded, directly
from onnxbisect.model.order import another_order
from onnxbisect.model.scopes import constant_names, domain_of, is_constant, opset_versions, walk
from onnxbisect.model.unused import drop_unused, unused
from onnxbisect.preflight import NEWER_THAN_TOOL, Finding, Severity, ToolLimits, settled_by
from onnxbisect.rewrites import Exactness, NotApplicable
from onnxbisect.verdict import Hints

#: Remedies that others rely on come first, those about the operator set and the IR version last.
REMEDIES: tuple[FileRemedy, ...] = (
    declarations.name_nodes,
    declarations.name_nameless_nodes,
    declarations.sort_nodes,
    declarations.weights_no_inputs,
    declarations.bind_dimensions,
    declarations.batch_pools_of_file,
    inline_functions,
    resolve_control_flow,
    weights_into_bodies,
    sequences_to_tensors,
    form.drop_empty_outputs,
    form.drop_unread_outputs,
    remove_nan_guards,
    bound_masks,
    remove_neutral_factors,
    drop_empty_tensors,
    remove_copies,
    fold_constants,
    form.densify,
    form.constants_to_initializers,
    form.copy_shared_weights,
    declarations.correct_declared_types,
    declarations.random_to_inputs,
    declarations.floats_in_float32,
    declarations.unsigned_to_signed,
    form.declare_opset_of_ops,
    lower_opset,
    form.raise_opset,
    *BY_RULES,
    few_dimensions,
    axes_to_attributes,
    form.write_defaults,
    form.omit_reduction,
    form.neutral_boundary,
    form.shorten_names,
    form.lower_ir_version,
    declarations.declare_shapes,
    form.safe_names,
    form.weights_inside,
    form.leave_out_unused,
    declarations.reorder_nodes,
)


#: Most changed files; each costs a compile of the whole model.
MOST_CANDIDATES = 4
#: How often a remedy is repeated that may reveal more of the same, such as nested branches.
_ROUNDS = 4
#: Remedies that add nodes, which the preflight did not see.
_EXPANDING = {"inline-functions", "resolve-control-flow", "sequences-to-tensors"}
_FOLLOWING = {"remove-copies", "fold-constants", "constants-to-initializers"}
#: Remedies applied to every candidate, and never alone: loading applies them to the model that the tool compiled.
_BASE = ("name-nodes", "sort-nodes", "weights-no-inputs", "bind-dimensions", "correct-declared-types")
#: Does to the file what was done to the one that the tool compiled.
_BINDING = "bind-dimensions"
_NO_HINTS = Hints()
#: Write ops in the forms that compilers know best.
_USUAL_FORMS = (few_dimensions.id, *(remedy.id for remedy in BY_RULES))
#: How a file is arranged, whatever its nodes compute: tried last, all at once, where the tool died of the file.
ARRANGEMENT = frozenset({declarations.reorder_nodes.id, form.constants_to_initializers.id, form.copy_shared_weights.id})
#: The remedy that is tried, whatever the tool names, if it says that it folded no constants.
_FOLDING = "fold-constants"


@dataclass(frozen=True, kw_only=True)
class Applied:
    """A remedy that was applied, its sentence, and the values for which it holds if not for all."""

    remedy: str
    sentence: str
    exactness: Exactness
    domain: str = ""


@dataclass(frozen=True, kw_only=True)
class Declined:
    """A remedy that answers a finding and could not be applied, with the reason."""

    remedy: str
    reason: str


@dataclass(frozen=True, kw_only=True, eq=False)
class ChangedCopy:
    """A changed copy of the file. It refers to external data as the file does, so it must be written beside it.

    `needed`: it answers a finding that is an error, for which most tools refuse the file, or it changes nodes that the
    tool named.
    """

    proto: onnx.ModelProto
    applied: tuple[Applied, ...]
    declined: tuple[Declined, ...] = ()
    needed: bool = False

    @property
    def sentence(self) -> str:
        """What was changed."""
        counts: dict[str, int] = {}
        for sentence in (it for applied in self.applied for it in applied.sentence.split(BETWEEN)):
            number, _, done = sentence.partition(" ")
            if number.isdecimal():
                counts[done] = counts.get(done, 0) + int(number)
            else:
                counts.setdefault(sentence, 0)
        sentences = {done: f"{count} {done}" if count else done for done, count in counts.items()}
        return BETWEEN.join(of_several(it) if counts[done] > 1 else it for done, it in sentences.items())

    @property
    def exactness(self) -> Exactness:
        """The exactness of the least exact remedy."""
        return max((applied.exactness for applied in self.applied), key=list(Exactness).index)

    @property
    def remedies(self) -> tuple[str, ...]:
        """The ids of the remedies, each once."""
        return tuple(dict.fromkeys(applied.remedy for applied in self.applied))

    def following(self, first: "ChangedCopy | None") -> "ChangedCopy":
        """This change of a file that has the `first` one already, as one change."""
        return self if first is None else replace(self, applied=(*first.applied, *self.applied))


def promising(model: Model, findings: Iterable[Finding], limits: ToolLimits) -> bool:
    """Whether there may be a file to try: a remedy answers a finding that probes do not settle, or may mend numbers, or
    the file may be arranged otherwise.
    """
    graph = model.proto.graph
    if low_masks(graph) or another_order(graph) or any(map(is_constant, graph.node)) or form.shared_weights(graph):
        return True
    if neutral_factors(graph, TensorFacts.of(model)):
        return True
    settled = settled_by(limits.probe_format)
    return not _ids(_answering(it.id for it in findings if it.id not in settled)) <= set(_BASE)


def candidates(
    model: Model,
    findings: Iterable[Finding],
    limits: ToolLimits,
    bounded: Bounded = directly,
    hints: Hints = _NO_HINTS,
) -> Iterator[ChangedCopy]:
    """Up to four files to try: after the remedy of the first error, of all errors, all exact ones, and all.

    `findings` are those that concern the tool, `hints` what it named when it compiled the model as it is. If it named
    ops, a file that answers no error is tried only if it changes a node with one of these ops. Each file is made when
    the iterator reaches it. If functions or control flow are replaced, the model is run again: `bounded` is as in
    `model.load`.
    """
    file, found = File.of(model), list(findings)
    nodes = _named(file.proto, hints)
    named = _as_they_are(file.proto, nodes)
    settled = settled_by(limits.probe_format)
    errors = [it.id for it in found if it.severity is Severity.ERROR and it.id not in settled]
    asked = _ids(_answering(finding.id for finding in found))
    follow = set(_FOLLOWING if asked & _EXPANDING else ())
    if any(map(is_constant, nodes)):  # no unit is a Constant node
        follow.add(form.constants_to_initializers.id)
    every = [remedy for remedy in REMEDIES if remedy.id in asked | follow]
    exact = [remedy for remedy in every if remedy.exactness is Exactness.EXACT]
    of_errors = [remedy for error in errors for remedy in exact if error in remedy.answers]
    newer = [remedy for remedy in of_errors if not set(NEWER_THAN_TOOL).isdisjoint(remedy.answers)]
    together = [_ids(of_errors), _ids(exact), _ids(every)]
    # a file with a newer IR version and opset is refused for either
    alone = [_ids(newer), *(_ids([remedy]) for remedy in of_errors if remedy not in newer)]
    base = _ids(_answering(it.id for it in found if it.id in settled)).union(_BASE)
    made: set[tuple[str, ...]] = set()
    alone = [wanted for wanted in alone if wanted]
    for wanted in dict.fromkeys([*alone[: MOST_CANDIDATES - len(together)], *together]):
        candidate = repaired(file, base.union(wanted), limits, bounded)
        candidate = replace(candidate, declined=tuple(it for it in candidate.declined if it.remedy in asked))
        done = candidate.remedies
        if done in made or base.issuperset(done):
            continue
        made.add(done)
        touched = bool(named) and not leaves_named(file.proto, hints, candidate.proto)
        touched = touched or _retyped(file, nodes, done)
        folded = bool(hints.unfolded) and _FOLDING in done
        needed = touched or folded or not (_ids(of_errors) - base).isdisjoint(done)
        if needed or not named:
            yield replace(candidate, needed=needed)


def leaves_named(proto: onnx.ModelProto, hints: Hints, changed: onnx.ModelProto) -> bool:
    """Whether a changed file has everything as it is that a tool named of this one; False where it named nothing."""
    named = _as_they_are(proto, _named(proto, hints))
    return bool(named) and named <= _as_they_are(changed, walk(changed.graph))


def plain(model: Model, limits: ToolLimits) -> ChangedCopy | None:
    """The file without nodes that compute nothing: copies, factors of 1, and what no input changes. They may stand
    within a pattern, or read a value of it. None where it has none.
    """
    return after_remedies(model, limits, {remove_neutral_factors.id, remove_copies.id, fold_constants.id})


def for_other_numbers(model: Model, limits: ToolLimits) -> Iterator[ChangedCopy]:
    """Files for a tool that compiled the model and computes other numbers: without factors of 1, after which one leaves
    memory as it was, and with the masks of scores bounded.
    """
    for remedy in (remove_neutral_factors, bound_masks):
        if candidate := after_remedies(model, limits, {remedy.id}):
            yield replace(candidate, needed=True)


def changed_nodes(model: Model, changed: ChangedCopy) -> frozenset[str]:
    """The names of the model's nodes that the changed file has otherwise, or not at all."""
    graph = model.proto.graph
    kept = set(_signatures(changed.proto, changed.proto.graph.node))
    own = zip(graph.node, _signatures(model.proto, graph.node), strict=True)
    names = {node.name for node, signature in own if signature not in kept}
    if few_dimensions.id in changed.remedies:  # a node may stay the same while its tensors have another shape
        high = {name for name, kind in model.types.items() if len(kind.tensor_type.shape.dim) > USUAL_RANK}
        names.update(node.name for node in graph.node if not high.isdisjoint((*node.input, *node.output)))
    return frozenset(names)


def may_have_unusual_forms(model: Model) -> bool:
    """Whether the model has what `usual_forms` looks for."""
    ops = {node.op_type for node in model.proto.graph.node}
    ranks = (len(kind.tensor_type.shape.dim) for kind in model.types.values())
    return not ops.isdisjoint({"Sqrt", "Div", "Erf", "Reciprocal"}) or any(rank > USUAL_RANK for rank in ranks)


def usual_forms(model: Model, limits: ToolLimits) -> dict[str, ChangedCopy]:
    """The remedies that write an op of the file in a form that compilers know better, each with the file after it."""
    alone = {remedy: after_remedies(model, limits, {remedy}) for remedy in _USUAL_FORMS}
    return {remedy: changed for remedy, changed in alone.items() if changed is not None}


def after_remedies(model: Model, limits: ToolLimits, remedies: Collection[str]) -> ChangedCopy | None:
    """The file after the remedies with these ids; None where none of them changes anything."""
    candidate = repaired(File.of(model), {*_BASE, *remedies}, limits)
    return None if set(remedies).isdisjoint(candidate.remedies) else candidate


def with_newer_forms(model: Model, limits: ToolLimits, ops: Collection[str]) -> ChangedCopy | None:
    """The file in a newer operator set; None where the tool is known to read its own, or one of the `ops` has no newer
    form there.
    """
    candidate = after_remedies(model, limits, {form.raise_opset.id})
    if limits.oldest_opset is not None or candidate is None:
        return None
    before, after = (opset_versions(proto.opset_import)[""] for proto in (model.proto, candidate.proto))
    for op in ops:
        if not onnx.defs.has(op, before) or onnx.defs.get_schema(op, after).since_version <= before:
            return None
    return replace(candidate, needed=True)


def with_lower_ranks(model: Model, limits: ToolLimits, most: int) -> ChangedCopy | None:
    """The file with at most `most` dimensions of each tensor where that is possible; None where nothing changes."""
    file = File.of(model)
    candidate = repaired(file, _BASE, limits)
    remedy = lower_ranks(most)
    try:
        change = _applied(remedy, file.after(candidate.proto), limits)
    except (NotApplicable, ModelError):
        return None
    applied = Applied(remedy=remedy.id, sentence=change.sentence, exactness=change.exactness or remedy.exactness)
    return ChangedCopy(proto=change.proto, applied=(*candidate.applied, applied), needed=True)


def form_candidates(model: Model, limits: ToolLimits, bounded: Bounded = directly) -> Iterator[ChangedCopy]:
    """The file with each difference in form from how probes of this target are written, smallest first; then with all.

    They are for a file that a tool refuses, and takes once it is written as its parts are.
    """
    file = File.of(model)
    one_by_one = [
        candidate
        for remedy in _form(limits)
        if remedy in (candidate := repaired(file, {_BINDING, remedy}, limits, bounded)).remedies
    ]
    together = repaired(file, {_BINDING, *_form(limits)}, limits, bounded)
    made: set[bytes] = set()
    for candidate in [*one_by_one, together]:
        content = candidate.proto.SerializeToString(deterministic=True)
        if candidate.applied and content not in made:
            made.add(content)
            yield replace(candidate, needed=True)


def _form(limits: ToolLimits) -> list[str]:
    """The remedies that lead from a file to a probe for this tool, the smallest change first."""
    probe_format = limits.probe_format
    own = (
        ("constants-to-initializers", probe_format.constants_as_initializers),
        ("write-defaults", probe_format.explicit_defaults),
        ("omit-reduction", bool(probe_format.unwritten_defaults)),
        ("lower-opset", limits.newest_opset is not None),
        ("lower-ir-version", limits.newest_ir is not None),
        ("safe-names", probe_format.safe_names),
        ("shorten-names", probe_format.longest_name is not None),
        ("neutral-boundary", probe_format.limits_boundary),
        ("weights-inside", probe_format.self_contained),
    )
    always = [
        _BINDING,
        "batch-pools",
        "leave-out-unused",
        "declare-shapes",
        "correct-declared-types",
        "name-nodes",
        "weights-no-inputs",
        "name-nameless-nodes",
    ]
    return [*always, *(remedy for remedy, demanded in own if demanded), "sort-nodes"]


def repaired(file: File, remedies: Collection[str], limits: ToolLimits, bounded: Bounded = directly) -> ChangedCopy:
    """The file after the remedies with these ids, as far as they can be applied."""
    applied: list[Applied] = []
    declined: list[Declined] = []
    for remedy in REMEDIES:
        if remedy.id not in remedies:
            continue
        for number in range(_ROUNDS):
            try:
                change = _applied(remedy, file, limits)
            except (NotApplicable, ModelError) as reason:
                if not number and remedy.id not in _BASE:
                    declined.append(Declined(remedy=remedy.id, reason=str(reason)))
                break
            exactness = change.exactness or remedy.exactness
            applied.append(
                Applied(remedy=remedy.id, sentence=change.sentence, exactness=exactness, domain=remedy.domain)
            )
            file = file.after(change.proto, change.types)
            if not change.structure:
                break
            file = file.examined(bounded)
    return ChangedCopy(proto=file.proto, applied=tuple(applied), declined=tuple(declined))


def _applied(remedy: FileRemedy, file: File, limits: ToolLimits) -> RemediedFile:
    """The change, if onnx.checker finds no more problems in it than in the file."""
    try:
        change = remedy.apply(file, limits)
    except (NotApplicable, ModelError):
        raise
    except Exception as error:  # invalid nodes may raise anything
        raise NotApplicable(f"the remedy failed: {type(error).__name__}: {error}") from error
    if not change.proto.graph.node:
        raise NotApplicable("the outputs are constants, so no node would be left")
    drop_unused(change.proto, but=unused(file.proto))
    refused = complaint(change.proto)
    if refused and not complaint(file.proto):
        raise NotApplicable(f"onnx refuses the result: {refused}")
    return change


def _named(proto: onnx.ModelProto, hints: Hints) -> list[onnx.NodeProto]:
    """The nodes that a tool named, or whose op it did."""
    ops = {op.rpartition("::")[2] for op in hints.ops}
    return [node for node in walk(proto.graph) if node.op_type in ops or node.name in hints.nodes]


def _retyped(file: File, nodes: Iterable[onnx.NodeProto], remedies: Iterable[str]) -> bool:
    """Whether one of the nodes reads or makes a tensor that has another element type after these remedies."""
    gone = frozenset[int]().union(*(declarations.RETYPED.get(remedy, ()) for remedy in remedies))
    tensors = (file.types.get(name) for node in nodes for name in (*node.input, *node.output))
    return any(kind is not None and kind.tensor_type.elem_type in gone for kind in tensors)


def _as_they_are(proto: onnx.ModelProto, nodes: Iterable[onnx.NodeProto]) -> Counter[Hashable]:
    """How often each of these nodes of the file is there as it is."""
    return Counter(_signatures(proto, nodes))


def _signatures(proto: onnx.ModelProto, nodes: Iterable[onnx.NodeProto]) -> Iterator[Hashable]:
    """Each node with its op's version, and with a note which of its inputs are constants."""
    constants, opsets = constant_names(proto.graph), opset_versions(proto.opset_import)
    for node in nodes:
        domain = domain_of(node)
        version = opsets.get(domain, 0)
        if onnx.defs.has(node.op_type, version, domain):
            version = onnx.defs.get_schema(node.op_type, version, domain).since_version
        yield node.SerializeToString(deterministic=True), version, *(name in constants for name in node.input)


def _answering(findings: Iterable[str]) -> list[FileRemedy]:
    ids = set(findings)
    return [remedy for remedy in REMEDIES if not ids.isdisjoint(remedy.answers)]


def _ids(remedies: Iterable[FileRemedy]) -> frozenset[str]:
    return frozenset(remedy.id for remedy in remedies)
