"""Findings from a record of the ops that a target accepts, and their effect on general findings."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from onnxbisect.finding import Finding, Severity
from onnxbisect.language import count, english, shortened

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
            yet = english("Yet {source} takes these ops.", source=record.source)
            why = f"{finding.why.rstrip('.')}. {yet}"
            settled.append(replace(finding, severity=Severity.INFO, why=why))
    issues = sorted(record.issues, key=lambda issue: (not issue.refused, issue.folds, -len(issue.nodes), issue.op))
    return [*(_finding(record, issue) for issue in issues), *settled]


def _finding(record: OpRecord, issue: OpIssue) -> Finding:
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
            why=english("{source} says nothing about it.", source=record.source),
            fix=english("Ask the compiler: onnx-bisect run."),
        )
    why = english("Refused, according to {source}.", source=record.source)
    fix = english("Replace it (onnx-bisect fix), or run it on the host (onnx-bisect split).")
    if record.alone:
        why = english(
            "Refused alone, according to {source}; beside other ops it may compile, where they are fused.",
            source=record.source,
        )
        fix = " ".join([english("Ask the compiler: onnx-bisect run."), fix])
    if issue.folds:
        why += " " + english("It computes a constant, which would fold away in an older file.")
        fix = english("Lower the version of the file first.")
    return Finding(
        id="op-refused", severity=record.severity, nodes=issue.nodes, tensors=(), detail=detail, why=why, fix=fix
    )
