"""Adapt findings to the tool that will read the model."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from onnxbisect.finding import Finding, Severity
from onnxbisect.language import count, english
from onnxbisect.model.scopes import qualified
from onnxbisect.preflight.boundary import refused_boundary
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


@dataclass(frozen=True, kw_only=True)
class Reader:
    """The tool that reads the model: its name, the versions that it reads in full, and its probe format.

    A version is None where it is not known. `disputed` are ops about which real runs contradicted what is recorded of
    the tool, each with what was seen.
    """

    tool: str
    newest_ir: int | None = None
    newest_opset: int | None = None
    oldest_opset: int | None = None
    probe_format: ProbeFormat = field(default_factory=ProbeFormat)
    disputed: Mapping[str, str] = field(default_factory=dict)


def told_of(reader: Reader, found: Sequence[Finding], subject: InspectedModel) -> list[Finding]:
    """The findings adapted to this tool; those about versions that it does not read come first, then disputed ops."""
    settled = settled_by(reader.probe_format)
    others = [
        replace(finding, severity=Severity.ERROR, why=f"{finding.why} {_HIDDEN}") if finding.id in settled else finding
        for finding in found
        if finding.id not in _IN_GENERAL or not _knows(reader, finding.id)
    ]
    boundary = refused_boundary(reader.tool, reader.probe_format, subject)
    return [*_unread_versions(reader, subject), *boundary, *_disputed(reader, subject), *others]


def after_pass(reader: Reader, found: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings after this tool compiled the model: errors become warnings, unless probes remove their cause."""
    settled = settled_by(reader.probe_format)
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


def _knows(reader: Reader, id_: str) -> bool:
    known = {"ir-version-too-new": reader.newest_ir, "opset-too-new": reader.newest_opset}
    return known.get(id_, reader.oldest_opset) is not None


def _unread_versions(reader: Reader, subject: InspectedModel) -> list[Finding]:
    found = []
    ir, opset = subject.original.ir_version, subject.opset
    if reader.newest_opset is not None and opset is not None and opset > reader.newest_opset:
        detail = english(
            "opset {opset}, {tool} reads up to {newest_opset}",
            opset=opset,
            tool=reader.tool,
            newest_opset=reader.newest_opset,
        )
        fix = english(
            "Write it for opset {newest_opset}, or export again at that opset or below.",
            newest_opset=reader.newest_opset,
        )
        found.append(_finding("opset-newer-than-tool", detail, _WHY, fix, "lower-opset"))
    if reader.oldest_opset is not None and opset is not None and opset < reader.oldest_opset:
        detail = english(
            "opset {opset}, {tool} reads all ops from {oldest_opset} on",
            opset=opset,
            tool=reader.tool,
            oldest_opset=reader.oldest_opset,
        )
        why = english("Some ops had another form before, which it refuses although it takes them as they are today.")
        fix = english(
            "Write it for opset {oldest_opset}, or export again at that opset.", oldest_opset=reader.oldest_opset
        )
        mild = replace(_finding("opset-older-than-tool", detail, why, fix, "raise-opset"), severity=Severity.WARNING)
        found.append(mild)  # most ops have one form
    if reader.newest_ir is not None and ir > reader.newest_ir:
        detail = english(
            "IR version {ir}, {tool} reads up to {newest_ir}", ir=ir, tool=reader.tool, newest_ir=reader.newest_ir
        )
        name = json.dumps(subject.model.path.name)
        code = f"import onnx; m = onnx.load({name}, load_external_data=False); m.ir_version = {reader.newest_ir}; "
        command = shlex.join(["python", "-c", f"{code}onnx.save(m, {name})"])
        fix = english("Lower it, the ops do not change: {command}.", command=command)
        found.append(_finding("ir-newer-than-tool", detail, _WHY, fix, "lower-ir-version"))
    return found


def _disputed(reader: Reader, subject: InspectedModel) -> list[Finding]:
    """Findings about disputed ops; nodes that no input changes fold away in most tools and are left out."""
    sites: dict[str, list[NodeSite]] = {}
    for site in subject.sites if reader.disputed else ():
        op = qualified(site.node)
        if op in reader.disputed and not subject.constants.issuperset(filter(None, site.node.output)):
            sites.setdefault(op, []).append(site)
    return [
        Finding(
            id=DISPUTED,
            severity=Severity.WARNING,
            nodes=subject.holders(those),
            tensors=(),
            detail=f"{op}: {count(len(those), 'node')}; {reader.disputed[op]}",
            why=english("Real runs contradicted what the tool's document says of it."),
            fix=english("Ask the compiler: onnx-bisect run."),
        )
        for op, those in sites.items()
    ]


def _finding(id_: str, detail: str, why: str, fix: str, remedy: str) -> Finding:
    return Finding(
        id=id_, severity=Severity.ERROR, nodes=(), tensors=(), detail=detail, why=why, fix=fix, remedy=remedy
    )
