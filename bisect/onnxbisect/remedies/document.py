"""A repair as data: the contents of `repair.json`, from which all other forms are written."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx

from onnxbisect.diagnosis import Alternative, Target
from onnxbisect.errors import OnnxBisectError
from onnxbisect.input_value import InputValue
from onnxbisect.json_form import from_json, to_json
from onnxbisect.model.facts import TensorFacts
from onnxbisect.model.input_values import plain
from onnxbisect.model.model import Model
from onnxbisect.model.modules import origin
from onnxbisect.model.scopes import is_constant, qualified, walk
from onnxbisect.proof import OutputDifference, Tolerance
from onnxbisect.remedies.advisor import Left
from onnxbisect.remedies.contract import PlaceProof, Repair
from onnxbisect.remedies.found import SearchedModel
from onnxbisect.report.culprit_words import source_line
from onnxbisect.rewrites import Exactness
from onnxbisect.verdict import Status, Verdict

#: The value of `format`; a change that breaks readers counts the number up.
FORMAT = "onnx-bisect/repair@1"


@dataclass(frozen=True, kw_only=True)
class NodeRow:
    """A node with its tensors, such as `Relu(x: float32[1, 8]) -> y: float32[1, 8]`."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RuleRow:
    """A rule: its exactness, its source, and the same change in PyTorch."""

    id: str
    summary: str
    exactness: Exactness
    bound: str
    domain: str
    pytorch: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Change:
    """One replaced node, and the nodes removed with it: the others of its pattern, or those in its subgraphs.

    `compiles` says that the compiler accepted all new nodes. `low` are the differences in the type in which the target
    stores float32 tensors, if it is another one (`RepairDocument.computes_in`).
    `source` is the line of the user's source, such as `model.py:112  x[:, i, :]`, where the exporter recorded it.
    """

    node: str
    op: str
    rules: tuple[RuleRow, ...]
    exactness: Exactness
    before: NodeRow
    after: tuple[NodeRow, ...]
    differences: tuple[OutputDifference, ...]
    allowed: Tolerance
    compiles: bool
    removed: tuple[NodeRow, ...] = ()
    low: tuple[OutputDifference, ...] = ()
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class FileChange:
    """A change of the whole file."""

    sentence: str
    exactness: Exactness


@dataclass(frozen=True, kw_only=True)
class LeftRow:
    """A culprit that stays, why no rule repairs it, and the lines of the user's source that it comes from.

    `allow` is the option with which a rule would be tried; None where there is none left to try.
    """

    nodes: tuple[str, ...]
    ops: tuple[str, ...]
    kind: str
    message: str
    reasons: tuple[str, ...]
    sources: tuple[str, ...] = ()
    allow: Exactness | None = None


@dataclass(frozen=True, kw_only=True)
class StruckRow:
    """A replacement that was tried and excluded."""

    node: str
    rules: tuple[str, ...]
    reason: str


@dataclass(frozen=True, kw_only=True)
class CulpritRow:
    """The verdict on a culprit with other options: `pass`, `fail`, `unresolved`, or "" if it was not compiled."""

    ops: tuple[str, ...]
    verdict: str
    message: str


@dataclass(frozen=True, kw_only=True)
class AlternativeRow:
    """The compiler with `options` changed: its verdicts on the original culprits, and on the whole model if all pass.

    `problem` is a sentence if it could not be called.
    """

    options: dict[str, str]
    tool: str
    version: str
    culprits: tuple[CulpritRow, ...]
    whole: str
    message: str
    problem: str
    compiler_calls: int
    cached: int


@dataclass(frozen=True, kw_only=True)
class RepairDocument:
    """`verdict` is that of the repaired model: `pass`, `fail` or `unresolved`. `repaired` says whether there is one.

    `diagnosis_calls` and `repair_calls` are compiler calls. `input_shapes` are dimensions that the user bound: the
    repaired model is proven, and may be valid, for those only. `input_values` are inputs that the user bound: constants
    of the repaired model.
    """

    model: str
    model_sha256: str
    target: Target
    verdict: Status
    repaired: bool
    complete: bool
    allow: Exactness
    file_change: FileChange | None
    changes: tuple[Change, ...]
    outputs: tuple[OutputDifference, ...]
    outputs_allowed: Tolerance
    samples: int
    left: tuple[LeftRow, ...]
    struck: tuple[StruckRow, ...]
    input_shapes: dict[str, tuple[int, ...]]
    input_values: dict[str, InputValue]
    diagnosis_calls: int
    repair_calls: int
    computes_in: str = ""
    alternatives: tuple[AlternativeRow, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    format: str = FORMAT

    def to_json(self) -> dict[str, Any]:
        """The document as JSON values."""
        document: dict[str, Any] = to_json(self)
        return document

    @classmethod
    def of_json(cls, data: object) -> "RepairDocument":
        """What `to_json` wrote, maybe on another machine. Raises OnnxBisectError if this version cannot read it."""
        try:
            return from_json(data, cls)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise OnnxBisectError("This is no repair that this version of onnx-bisect can read.") from None


def document(
    original: Model,
    repair: Repair,
    allow: Exactness,
    *,
    diagnosis_calls: int,
    repair_calls: int,
    input_shapes: dict[str, tuple[int, ...]] | None = None,
    computes_in: str = "",
    alternatives: Sequence[Alternative] = (),
) -> RepairDocument:
    """The document of a repair."""
    proof = repair.proof
    nodes = {node.name: node for node in repair.before.model.proto.graph.node}
    file = repair.changed_file
    return RepairDocument(
        model=original.path.name,
        model_sha256=original.sha256,
        target=repair.before.job.target,
        verdict=repair.after.diagnosis.verdict,
        repaired=repair.model is not None,
        complete=not (repair.stopped or repair.limited),
        allow=allow,
        file_change=None if file is None else FileChange(sentence=file.sentence, exactness=file.exactness),
        changes=tuple(_changes(repair)),
        outputs=() if proof is None else proof.outputs,
        outputs_allowed=Tolerance() if proof is None else proof.allowed,
        samples=0 if proof is None else proof.samples,
        left=tuple(left_row(it, nodes) for it in repair.left),
        struck=tuple(
            StruckRow(node=it.candidate.node, rules=tuple(rule.id for rule in it.candidate.rules), reason=it.reason)
            for it in repair.struck
        ),
        input_shapes=input_shapes or {},
        input_values={name: plain(array) for name, array in original.input_values.items()},
        diagnosis_calls=diagnosis_calls,
        repair_calls=repair_calls,
        computes_in=computes_in,
        alternatives=tuple(_alternative(it, repair.rounds[0].before) for it in alternatives),
        options=dict(repair.after.options),
    )


def left_row(left: Left, nodes: Mapping[str, onnx.NodeProto] | None = None) -> LeftRow:
    """A place that stays, as data; `nodes` are those of its model, by name."""
    own = [nodes[name] for name in left.place.nodes if name in nodes] if nodes else []
    return LeftRow(
        nodes=left.place.nodes,
        ops=left.ops,
        kind=left.kind.value,
        message=left.message,
        reasons=left.reasons,
        sources=tuple(dict.fromkeys(line for it in own if (line := source_line(origin(it))))),
        allow=left.allow,
    )


def _alternative(one: Alternative, before: SearchedModel) -> AlternativeRow:
    pairs = zip(before.culprits, one.culprits, strict=True) if one.culprits else ()
    return AlternativeRow(
        options=dict(one.options),
        tool=one.tool,
        version=one.version,
        culprits=tuple(CulpritRow(ops=culprit.ops, **_columns(verdict)) for culprit, verdict in pairs),
        whole=_columns(one.whole)["verdict"],
        message=_columns(one.whole)["message"],
        problem=one.problem,
        compiler_calls=one.calls,
        cached=one.cached,
    )


def _columns(verdict: Verdict | None) -> dict[str, str]:
    if verdict is None:
        return {"verdict": "", "message": ""}
    return {"verdict": verdict.status.value, "message": "" if verdict.passed else verdict.message}


def _changes(repair: Repair) -> Iterator[Change]:
    for one in repair.rounds:
        nodes = {node.name: node for node in one.before.model.proto.graph.node}
        for place in () if one.proof is None else one.proof.places:
            taken = repair.compiles or one.after.passing.issuperset(place.candidate.new_nodes)
            yield _change(place, nodes[place.candidate.node], one, taken)


def _change(place: PlaceProof, node: onnx.NodeProto, repair: Repair, compiles: bool) -> Change:
    candidate, facts = place.candidate, repair.before.facts
    new = candidate.replacement
    types = {
        tensor.name: onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims) for tensor in new.initializers
    }
    both = [*new.removes, node], list(new.nodes)
    before, after = ([it for it in walk(nodes) if not is_constant(it)] for nodes in both)
    inside = facts.extended({**repair.after.model.types, **types}, new.initializers)
    return Change(
        node=candidate.node,
        op=candidate.op,
        rules=tuple(
            RuleRow(
                id=rule.id,
                summary=rule.summary,
                exactness=rule.exactness,
                bound=rule.bound.text,
                domain=rule.domain.text if rule.domain else "",
                pytorch=rule.pytorch,
                source=rule.source,
            )
            for rule in candidate.rules
        ),
        exactness=candidate.exactness,
        before=_row(node, facts),
        after=tuple(_row(it, inside) for it in after if it not in before),
        differences=place.differences,
        allowed=place.allowed,
        compiles=compiles,
        removed=tuple(_row(it, facts) for it in before if it not in after and it != node),
        low=place.low,
        source=source_line(origin(node)),
    )


def _row(node: onnx.NodeProto, facts: TensorFacts) -> NodeRow:
    return NodeRow(
        name=node.name,
        op=qualified(node),
        inputs=tuple(_tensor(name, facts) for name in node.input),
        outputs=tuple(_tensor(name, facts) for name in node.output),
    )


def _tensor(name: str, facts: TensorFacts) -> str:
    """`x: float32[1, 8]`."""
    kind = facts.type(name) if name else None
    if kind is None or not kind.HasField("tensor_type"):
        return name
    dims = facts.shape(name)
    shape = "" if dims is None else f"[{', '.join('?' if dim is None else str(dim) for dim in dims)}]"
    dtype = onnx.TensorProto.DataType.Name(kind.tensor_type.elem_type).lower()
    return f"{name}: {dtype}{shape}"
