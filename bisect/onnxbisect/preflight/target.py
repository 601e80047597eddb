"""Adapt findings to the tool that will read the model: its versions, what it takes at a boundary, and its ops."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx

from onnxbisect.cut.neutral_boundary import neutral_type
from onnxbisect.cut.required_producers import runtime_dtype
from onnxbisect.finding import Finding, Severity
from onnxbisect.language import count, english, quoted, shortened
from onnxbisect.model.scopes import qualified
from onnxbisect.preflight.subject import InspectedModel, NodeSite
from onnxbisect.probe_format import ProbeFormat

#: Ids of findings about a file that is newer than the tool reads.
NEWER_THAN_TOOL = ("opset-newer-than-tool", "ir-newer-than-tool")

#: General findings about versions, replaced where the tool's own versions are known.
_IN_GENERAL = ("ir-version-too-new", "opset-too-new", "opset-too-old")

_WHY = english(
    "It refuses a newer file, or leaves out checking, simplifying and constant folding with no more than "
    "a warning: ops that folding would remove may then be among the culprits."
)

#: Id of the findings about ops of which the tool's list and real runs disagree.
DISPUTED = "op-disputed"

#: Added to a finding whose cause the probe format removes.
_HIDDEN = english("Probes are written without it, so no culprit names it; the tool may still refuse the file itself.")
#: Ids of findings about inputs and outputs that a tool does not take.
REFUSED_AT_BOUNDARY = ("boundary-rank", "boundary-dtype", "boundary-name-too-long")
_WHY_BOUNDARY = english(
    "It refuses a file for its inputs and outputs before it looks at the ops. Probes are written in a form it takes."
)
#: General findings about ops; they become remarks where the record accepts the ops of their nodes.
_ABOUT_OPS = frozenset(
    {
        "control-flow",
        "control-flow-constant-condition",
        "custom-domain",
        "data-dependent-shape-op",
        "isnan-guard",
        "ml-domain",
        "optional-type",
        "postprocess-tail",
        "quantized-ops",
        "random-op",
        "schema-function-op",
        "sequence-type",
        "string-type",
    }
)


@dataclass(frozen=True, kw_only=True)
class ToolLimits:
    """What the tool that reads the model takes: the versions that it reads in full, and its probe format.

    A version is None where it is not known. `disputed` are ops about which real runs contradicted what is recorded of
    the tool, each with what was seen.
    """

    tool: str
    newest_ir: int | None = None
    newest_opset: int | None = None
    oldest_opset: int | None = None
    probe_format: ProbeFormat = field(default_factory=ProbeFormat)
    disputed: Mapping[str, str] = field(default_factory=dict)


def adapt_findings(limits: ToolLimits, found: Sequence[Finding], subject: InspectedModel) -> list[Finding]:
    """The findings adapted to this tool; those about versions that it does not read come first, then disputed ops."""
    settled = settled_by(limits.probe_format)
    read = {"ir-version-too-new": limits.newest_ir, "opset-too-new": limits.newest_opset}
    others = [
        replace(finding, severity=Severity.ERROR, why=f"{finding.why} {_HIDDEN}") if finding.id in settled else finding
        for finding in found
        if finding.id not in _IN_GENERAL or read.get(finding.id, limits.oldest_opset) is None
    ]
    boundary = refused_boundary(limits.tool, limits.probe_format, subject)
    # disputed ops; nodes that no input changes fold away in most tools and are left out
    sites: dict[str, list[NodeSite]] = {}
    for site in subject.sites if limits.disputed else ():
        op = qualified(site.node)
        if op in limits.disputed and not subject.constants.issuperset(filter(None, site.node.output)):
            sites.setdefault(op, []).append(site)
    return [
        *_unread_versions(limits, subject),
        *boundary,
        *[
            Finding(
                id=DISPUTED,
                severity=Severity.WARNING,
                nodes=subject.holders(those),
                tensors=(),
                detail=f"{op}: {count(len(those), 'node')}; {limits.disputed[op]}",
                why=english("Real runs contradicted what the tool's document says of it."),
                fix=english("Ask the compiler: onnx-bisect run."),
            )
            for op, those in sites.items()
        ],
        *others,
    ]


def after_pass(limits: ToolLimits, found: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings after this tool compiled the model: errors become warnings, unless probes remove their cause."""
    settled = settled_by(limits.probe_format)
    return tuple(
        replace(finding, severity=Severity.WARNING)
        if finding.severity is Severity.ERROR and finding.id not in settled
        else finding
        for finding in found
    )


def settled_by(probe_format: ProbeFormat) -> set[str]:
    """Ids of the findings whose cause is removed from every probe of this format."""
    reduction = {"ScatterND.reduction", "ScatterElements.reduction"} <= set(probe_format.unwritten_defaults)
    return {
        id_
        for id_, gone in (
            ("missing-default-attr", probe_format.explicit_defaults),
            ("constant-node-not-tensor-value", probe_format.constants_as_initializers),
            ("explicit-reduction-none", reduction),
        )
        if gone
    }


def _unread_versions(limits: ToolLimits, subject: InspectedModel) -> list[Finding]:
    found = []
    ir, opset = subject.original.ir_version, subject.opset
    if limits.newest_opset is not None and opset is not None and opset > limits.newest_opset:
        detail = english(
            "opset {opset}, {tool} reads up to {newest_opset}",
            opset=opset,
            tool=limits.tool,
            newest_opset=limits.newest_opset,
        )
        fix = english(
            "Write it for opset {newest_opset}, or export again at that opset or below.",
            newest_opset=limits.newest_opset,
        )
        found.append(_finding("opset-newer-than-tool", detail, _WHY, fix, "lower-opset"))
    if limits.oldest_opset is not None and opset is not None and opset < limits.oldest_opset:
        detail = english(
            "opset {opset}, {tool} reads all ops from {oldest_opset} on",
            opset=opset,
            tool=limits.tool,
            oldest_opset=limits.oldest_opset,
        )
        why = english("Some ops had another form before, which it refuses although it takes them as they are today.")
        fix = english(
            "Write it for opset {oldest_opset}, or export again at that opset.", oldest_opset=limits.oldest_opset
        )
        mild = replace(_finding("opset-older-than-tool", detail, why, fix, "raise-opset"), severity=Severity.WARNING)
        found.append(mild)  # most ops have one form
    if limits.newest_ir is not None and ir > limits.newest_ir:
        detail = english(
            "IR version {ir}, {tool} reads up to {newest_ir}", ir=ir, tool=limits.tool, newest_ir=limits.newest_ir
        )
        name = json.dumps(subject.model.path.name)
        code = f"import onnx; m = onnx.load({name}, load_external_data=False); m.ir_version = {limits.newest_ir}; "
        command = shlex.join(["python", "-c", f"{code}onnx.save(m, {name})"])
        fix = english("Lower it, the ops do not change: {command}.", command=command)
        found.append(_finding("ir-newer-than-tool", detail, _WHY, fix, "lower-ir-version"))
    return found


def _finding(id_: str, detail: str, why: str, fix: str, remedy: str) -> Finding:
    return Finding(
        id=id_, severity=Severity.ERROR, nodes=(), tensors=(), detail=detail, why=why, fix=fix, remedy=remedy
    )


def refused_boundary(tool: str, probe_format: ProbeFormat, subject: InspectedModel) -> Iterator[Finding]:
    """What the tool's limits of inputs and outputs say of the file: ranks, dtypes, and lengths of names."""
    ranks = ProbeFormat(min_input_rank=probe_format.min_input_rank, min_output_rank=probe_format.min_output_rank)
    most = ProbeFormat(max_input_rank=probe_format.max_input_rank, max_output_rank=probe_format.max_output_rank)
    dtypes = ProbeFormat(input_dtypes=probe_format.input_dtypes, output_dtypes=probe_format.output_dtypes)
    graph = subject.original.graph
    weights = subject.constants
    inputs = [("input", value) for value in graph.input if value.name not in weights]
    boundary = [*inputs, *(("output", value) for value in graph.output)]
    low, high, other, long = [], [], [], []
    for word, value in boundary:
        what = f"{word} {quoted(value.name)}"
        if neutral_type(value, ranks, output=word == "output") is not None:
            low.append((value, f"{what} has rank {len(value.type.tensor_type.shape.dim)}"))
        if neutral_type(value, most, output=word == "output") is not None:
            high.append((value, f"{what} has rank {len(value.type.tensor_type.shape.dim)}"))
        if neutral_type(value, dtypes, output=word == "output") is not None:
            other.append((value, f"{what} is {runtime_dtype(value.type)}"))
        size = len(value.name.encode("utf-8", "replace"))
        if probe_format.longest_name is not None and size > probe_format.longest_name:
            long.append((value, english("the name of the {what} has {size} bytes", what=what, size=size)))
    if low:
        lowest = ", ".join(
            f"{word}s of rank {rank} and more"
            for word, rank in (("input", ranks.min_input_rank), ("output", ranks.min_output_rank))
            if rank
        )
        fix = english("Give it leading dimensions of 1, such as [1] for a scalar, and a Squeeze or Unsqueeze inside.")
        yield _boundary_finding("boundary-rank", low, f"{tool} takes {lowest}", fix, "neutral-boundary")
    if high:
        highest = ", ".join(
            f"{word}s of rank {rank} and less"
            for word, rank in (("input", most.max_input_rank), ("output", most.max_output_rank))
            if rank is not None
        )
        fix = english("Give it fewer dimensions, and a Reshape inside.")
        yield _boundary_finding("boundary-rank", high, f"{tool} takes {highest}", fix, "neutral-boundary")
    if other:
        fix = english("Give it a dtype that the tool takes, and a Cast inside.")
        yield _boundary_finding(
            "boundary-dtype",
            other,
            english("{tool} takes none of this dtype there", tool=tool),
            fix,
            "neutral-boundary",
        )
    if long:
        takes = english("{tool} reads {longest_name} at most", tool=tool, longest_name=probe_format.longest_name)
        yield _boundary_finding("boundary-name-too-long", long, takes, english("Shorten it."), "shorten-names")


def _boundary_finding(
    id_: str, found: list[tuple[onnx.ValueInfoProto, str]], takes: str, fix: str, remedy: str
) -> Finding:
    return Finding(
        id=id_,
        severity=Severity.ERROR,
        nodes=(),
        tensors=tuple(value.name for value, _ in found),
        detail=f"{shortened(tuple(text for _, text in found))}; {takes}",
        why=_WHY_BOUNDARY,
        fix=fix,
        remedy=remedy,
    )


@dataclass(frozen=True, kw_only=True)
class OpIssue:
    """Nodes of one op that a target's record refuses (`refused`) or does not know.

    `nodes` are names in the main graph; `places` locate the op in subgraphs and functions. `reason` is empty where the
    op as such is refused. `folds` tells whether the nodes would fold away in a file of a version that the target reads
    in full.
    """

    op: str
    refused: bool
    nodes: tuple[str, ...]
    places: tuple[str, ...] = ()
    reason: str = ""
    folds: bool = False


@dataclass(frozen=True, kw_only=True)
class OpRecord:
    """The ops of this model that a target refuses or that are unknown. `source` is a phrase that names the evidence.

    `alone`: it is from models of one op each. What fails there may compile beside others, as Erf does within Gelu, so
    it is a warning.
    """

    source: str
    issues: tuple[OpIssue, ...]
    alone: bool = False

    @property
    def severity(self) -> Severity:
        """How grave a refusal is."""
        return Severity.WARNING if self.alone else Severity.ERROR


def with_recorded_issues(record: OpRecord, found: Sequence[Finding]) -> list[Finding]:
    """Add the findings of the record, and adapt the general findings to it.

    A general finding about an op becomes as grave as the record's refusal of the op, and a remark where it accepts it.
    """
    refused = {name for issue in record.issues if issue.refused for name in issue.nodes}
    unknown = {name for issue in record.issues if not issue.refused for name in issue.nodes}
    settled = []
    for finding in found:
        nodes = set(finding.nodes)
        if finding.id not in _ABOUT_OPS or not nodes:
            settled.append(finding)
        elif nodes & refused:
            settled.append(replace(finding, severity=record.severity))
        elif nodes & unknown:
            settled.append(finding)
        else:
            yet = english("Yet {source_} takes these ops.", source_=record.source)
            why = f"{finding.why.rstrip('.')}. {yet}"
            settled.append(replace(finding, severity=Severity.INFO, why=why))
    issues = sorted(record.issues, key=lambda issue: (not issue.refused, issue.folds, -len(issue.nodes), issue.op))
    return [*(_op_finding(record, issue) for issue in issues), *settled]


def _op_finding(record: OpRecord, issue: OpIssue) -> Finding:
    detail = f"{issue.op}: {count(len(issue.nodes), 'node')}"
    detail += f", {issue.reason}" if issue.reason else ""
    detail += f"; {shortened(issue.places, 3)}" if issue.places else ""
    if not issue.refused:
        return Finding(
            id="op-not-known",
            severity=Severity.WARNING,
            nodes=issue.nodes,
            tensors=(),
            detail=detail,
            why=english("{source_} says nothing about it.", source_=record.source),
            fix=english("Ask the compiler: onnx-bisect run."),
        )
    why = english("Refused, according to {source_}.", source_=record.source)
    fix = english("Replace it (onnx-bisect fix), or run it on the host (onnx-bisect split).")
    if record.alone:
        why = english(
            "Refused alone, according to {source_}; beside other ops it may compile, where they are fused.",
            source_=record.source,
        )
        fix = " ".join([english("Ask the compiler: onnx-bisect run."), fix])
    if issue.folds:
        why += " " + english("It computes a constant, which would fold away in an older file.")
        fix = english("Lower the version of the file first.")
    return Finding(
        id="op-refused", severity=record.severity, nodes=issue.nodes, tensors=(), detail=detail, why=why, fix=fix
    )
