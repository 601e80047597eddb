"""What `onnx-bisect inspect` shows: the findings of every check, and an overview of the model."""

import shlex
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

import onnx

from onnxbisect.finding import Finding, Severity
from onnxbisect.json_form import to_json
from onnxbisect.language import english
from onnxbisect.model.model import Model
from onnxbisect.model.modules import parts, path_of_node
from onnxbisect.model.read import original
from onnxbisect.model.scopes import domain_of, is_constant, qualified
from onnxbisect.preflight import ops, structure, types
from onnxbisect.preflight.subject import CheckResult, InspectedModel, type_text
from onnxbisect.preflight.target import OpRecord, ToolLimits, adapt_findings, with_recorded_issues
from onnxbisect.unitset import UnitSet, members, size

#: Ops that exporters use for what may change between runs: sizes, branches, iterations, reads at an index.
_DYNAMIC = frozenset(
    {
        "Compress",
        "ConstantOfShape",
        "If",
        "Loop",
        "NonMaxSuppression",
        "NonZero",
        "Range",
        "Scan",
        "Shape",
        "Size",
        "Unique",
    }
)
#: Most components that are shown.
_MOST = 12
#: Name of the group of nodes that are in no module, or in a module beyond the limit.
OTHERS = "(others)"
#: The value of `format`; an incompatible change increments the number.
FORMAT = "onnx-bisect/inspection@1"


@dataclass(frozen=True, kw_only=True)
class PreflightCheck:
    """One thing that compilers are known to mind. `seen` quotes them, empty where no words are on record.

    `remedy` is as in `Finding`. `taken_by` are tools that were seen to compile a model which has it: for them it is no
    error.
    """

    id: str
    severity: Severity
    why: str
    fix: str
    seen: str
    remedy: str
    taken_by: tuple[str, ...]
    find: Callable[[InspectedModel], CheckResult | None]


@lru_cache(maxsize=1)
def checks() -> tuple[PreflightCheck, ...]:
    """Every check: its texts from checks.toml, whose order is the order of findings, its code from the modules."""
    find: Mapping[str, Callable[[InspectedModel], CheckResult | None]] = {
        **types.CHECKS,
        **structure.CHECKS,
        **ops.CHECKS,
    }
    data = tomllib.loads((resources.files("onnxbisect.preflight") / "checks.toml").read_text(encoding="utf-8"))
    return tuple(
        PreflightCheck(
            id=id_,
            severity=Severity(texts["severity"]),
            why=texts["why"],
            fix=texts["fix"],
            seen=texts.get("seen", ""),
            remedy=texts.get("remedy", ""),
            taken_by=tuple(texts.get("taken_by", ())),
            find=find[id_],
        )
        for id_, texts in data.items()
    )


def preflight(model: Model, limits: ToolLimits | None = None, record: OpRecord | None = None) -> tuple[Finding, ...]:
    """Findings about everything known to trouble compilers: errors first, then warnings, then remarks.

    Calls no compiler and does not run the model; takes time linear in the model and reads the file again, because
    `load` normalises some properties that are checked here. Models that `load` refuses never come this far. With
    `limits`, findings are adapted to that tool; `record` says which ops it accepts.
    """
    subject = InspectedModel(model, original(model))
    command = shlex.join(["onnx-bisect", "fix", model.path.name])
    does = " " + english("`{command}` does that where the compiler refuses the file.", command=command)
    found = []
    for check in checks():
        seen = check.find(subject)
        if seen is None:
            continue
        severity, why, remedy = check.severity, [check.why], check.remedy if seen.remediable else ""
        if check.seen:
            why.append(english("Seen: {said}", said=check.seen))
        if limits and limits.tool in check.taken_by:
            severity = Severity.WARNING if severity is Severity.ERROR else severity
            why.append(english("{tool} was seen to compile a model with it.", tool=limits.tool))
        found.append(
            Finding(
                id=check.id,
                severity=severity,
                nodes=seen.nodes,
                tensors=seen.tensors,
                detail=seen.detail,
                why=" ".join([*(f"{it.rstrip('.')}." for it in why[:-1]), why[-1]]),
                fix=check.fix + (does if remedy else ""),
                remedy=remedy,
            )
        )
    if record is not None:
        found = with_recorded_issues(record, found)
    if limits is not None:
        found = adapt_findings(limits, found, subject)
    order = list(Severity)
    return tuple(sorted(found, key=lambda finding: order.index(finding.severity)))


@dataclass(frozen=True, kw_only=True)
class ModelModule:
    """One module of the model.

    `dynamic` counts dynamic ops whose results depend on input values or unbound sizes; `settled` counts those whose
    results are constant.
    """

    name: str
    nodes: int
    dynamic: tuple[tuple[str, int], ...]
    settled: tuple[tuple[str, int], ...]


def components(subject: InspectedModel) -> tuple[ModelModule, ...]:
    """The components in model order; empty where node names and exporter metadata distinguish no modules."""
    found = parts({index: path_of_node(node) for index, node in enumerate(subject.nodes)})
    kept = sorted(found, key=lambda path: size(found[path]), reverse=True)[:_MOST]
    groups: dict[str, UnitSet] = {}
    for path, nodes in found.items():
        name = "/".join(path) if path and path in kept else OTHERS
        groups[name] = groups.get(name, 0) | nodes
    modules = []
    for name, nodes in groups.items():
        dynamic: Counter[str] = Counter()
        settled: Counter[str] = Counter()
        for index in members(nodes):
            node = subject.nodes[index]
            if node.domain in ("", "ai.onnx") and node.op_type in _DYNAMIC:
                # An If is settled if its condition is constant, although what the branch computes may not be.
                decides = node.input[:1] if node.op_type == "If" else [name for name in node.output if name]
                (settled if all(name in subject.constants for name in decides) else dynamic)[node.op_type] += 1
        modules.append(
            ModelModule(
                name=name, nodes=size(nodes), dynamic=tuple(dynamic.most_common()), settled=tuple(settled.most_common())
            )
        )
    return tuple(modules)


@dataclass(frozen=True, kw_only=True)
class OpUse:
    """One op type. `op` is bare in the default domain, else `domain::Op`; `variants` are distinct support questions."""

    op: str
    domain: str
    units: int
    variants: int


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """A graph input or output, its type in words: `float32[1,3,224,224]`, a `?` for each unknown dimension."""

    name: str
    type: str


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """An overview of a model. `ops` are sorted by number of units, largest first, then by name.

    `nodes` counts the main graph's nodes with Constants; `known` counts the tensors that fold away with static shapes.
    `opsets` maps domains to versions, the default domain as `ai.onnx`. `notes` are the sentences of `Model.notes`.
    `target` is the tool that the findings concern, empty where they are general. `components` are the model's modules,
    empty where names distinguish none.
    """

    sha256: str
    name: str
    ir_version: int
    producer: str
    opsets: tuple[tuple[str, int], ...]
    nodes: int
    units: int
    variants: int
    functions: int
    initializers: int
    known: int
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    ops: tuple[OpUse, ...]
    notes: tuple[str, ...]
    target: str
    components: tuple[ModelModule, ...]
    findings: tuple[Finding, ...]


def inspect(
    model: Model, limits: ToolLimits | None = None, record: OpRecord | None = None, *, notes: Sequence[str] = ()
) -> Inspection:
    """The complete overview with preflight findings; calls no compiler.

    With its `limits` or a `record` of its ops, findings are adapted to that target, and `notes` say where the knowledge
    comes from.
    """
    proto, graph = model.proto, model.proto.graph
    units: dict[str, list[int]] = {}
    domains: dict[str, str] = {}
    for index, unit in enumerate(model.units):
        node = model.proto.graph.node[unit.node]
        if is_constant(node):
            continue
        units.setdefault(qualified(node), []).append(index)
        domains[qualified(node)] = domain_of(node) or "ai.onnx"
    variant = model.universe.variant
    rows = [
        OpUse(op=op, domain=domains[op], units=len(own), variants=len({variant[index] for index in own}))
        for op, own in units.items()
    ]
    return Inspection(
        sha256=model.sha256,
        name=model.path.name,
        ir_version=proto.ir_version,
        producer=f"{proto.producer_name} {proto.producer_version}".strip(),
        opsets=tuple(sorted((item.domain or "ai.onnx", item.version) for item in proto.opset_import)),
        nodes=len(graph.node),
        units=len(model.units),
        variants=len(set(model.universe.variant)),
        functions=len(proto.functions),
        initializers=len(graph.initializer) + len(graph.sparse_initializer),
        known=len(model.known),
        inputs=_tensors(graph.input),
        outputs=_tensors(graph.output),
        ops=tuple(sorted(rows, key=lambda row: (-row.units, row.op))),
        notes=(*notes, *model.notes),
        target="" if limits is None else limits.tool,
        components=components(InspectedModel(model, original(model))),
        findings=preflight(model, limits, record),
    )


def inspection_document(seen: Inspection) -> dict[str, object]:
    """The inspection as JSON data in the format `onnx-bisect/inspection@1`, with names unescaped."""
    return {"format": FORMAT, **to_json(seen)}


def _tensors(values: Iterable[onnx.ValueInfoProto]) -> tuple[Tensor, ...]:
    return tuple(Tensor(name=value.name, type=type_text(value.type)) for value in values)
