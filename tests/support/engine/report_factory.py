"""Jobs built by hand, so that reports are tested without a search and without a compiler."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from onnxbisect.diagnosis import (
    Certainty,
    CertificateStatus,
    CompletedDiagnosis,
    ContextUnits,
    CulpritKind,
    DiagnosedCulprit,
    Diagnosis,
    DiagnosisProof,
    Evidence,
    ProbeRecord,
    Stats,
    Target,
)
from onnxbisect.finding import Finding
from onnxbisect.model.model import Model, Unit
from onnxbisect.unitset import UnitSet, members, of
from onnxbisect.universe import Universe
from onnxbisect.verdict import Kind, Status, Verdict

#: A node name that attacks a browser, a terminal, a Markdown table and an XML parser at once.
HOSTILE = "<img src=x onerror=alert(1)>\n\x1b[31m|`]]>&\u202egnp.exe\x00\ufffe[a](javascript:alert(1))"

PASS = Verdict(status=Status.PASS, seconds=1.5)


def refused(message: str) -> Verdict:
    return Verdict(status=Status.FAIL, kind=Kind.UNSUPPORTED, message=message, fingerprint=message, seconds=0.5)


def model_of(proto: onnx.ModelProto, path: str = "decoder.onnx") -> Model:
    """A Model of a proto whose nodes are sorted and named; variants are op type and attributes."""
    nodes = proto.graph.node
    constants = {node.output[0]: index for index, node in enumerate(nodes) if node.op_type == "Constant"}
    units, variants, names = [], [], []
    index_of: dict[tuple[str, str], int] = {}
    for index, node in enumerate(nodes):
        if node.op_type != "Constant":
            units.append(Unit(node=index, constants=tuple(constants[i] for i in node.input if i in constants)))
            kind = (node.op_type, str(sorted(str(attribute) for attribute in node.attribute)))
            variants.append(index_of.setdefault(kind, len(index_of)))
            names.append(node.name)
    producer = {tensor: i for i, unit in enumerate(units) for tensor in nodes[unit.node].output}
    after: list[set[int]] = [set() for _ in units]
    for i, unit in enumerate(units):
        for tensor in nodes[unit.node].input:
            if tensor in producer:
                after[producer[tensor]].add(i)
    infos = [*proto.graph.input, *proto.graph.value_info, *proto.graph.output]
    return Model(
        path=Path(path),
        sha256="ab" * 32,
        proto=proto,
        units=tuple(units),
        types={info.name: info.type for info in infos},
        known={},
        notes=(),
        universe=Universe(
            variant=tuple(variants),
            solo=tuple(variants),
            op=tuple(nodes[unit.node].op_type for unit in units),
            names=tuple((name,) for name in names),
            tensors=tuple(tuple(nodes[unit.node].output) for unit in units),
            successors=tuple(of(successors) for successors in after),
        ),
    )


def chain(ops: Sequence[str | onnx.NodeProto], names: Mapping[int, str] | None = None) -> Model:
    """`x → op 0 → op 1 …`, all float[1,4], nodes named `/net/block.N/Op` unless `names` says otherwise."""
    nodes = []
    for i, op in enumerate(ops):
        node = helper.make_node(op, [], []) if isinstance(op, str) else op
        node.input[:] = ["x" if i == 0 else f"t{i - 1}"]
        node.output[:] = [f"t{i}"]
        node.name = (names or {}).get(i, f"/net/block.{i}/{node.op_type}")
        nodes.append(node)
    tensors = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("x", *(n.output[0] for n in nodes))
    ]
    graph = helper.make_graph(nodes, "net", tensors[:1], tensors[-1:], value_info=tensors[1:-1])
    return model_of(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


def single(model: Model, occurrences: Iterable[int], message: str = "", **changes: object) -> DiagnosedCulprit:
    """A confirmed culprit of one unit, blamed as the search does it."""
    units = [1 << unit for unit in occurrences]
    return culprit(model, units, CulpritKind.SINGLE, message, **changes)


def culprit(
    model: Model, occurrences: Sequence[UnitSet], kind: CulpritKind, message: str = "", **changes: object
) -> DiagnosedCulprit:
    first = occurrences[0]
    values: dict[str, object] = {
        "units": first,
        "occurrences": tuple(occurrences),
        "kind": kind,
        "certainty": Certainty.CONFIRMED,
        "failure": Kind.UNSUPPORTED,
        "fingerprint": message,
        "message": message,
        "evidence": Evidence(fails=first),
    }
    return DiagnosedCulprit(**(values | changes))  # type: ignore[arg-type] # tests name the fields they change


def job_of(
    model: Model,
    culprits: Sequence[DiagnosedCulprit] = (),
    *,
    needs_context: Sequence[ContextUnits] = (),
    more: Sequence[tuple[UnitSet, Verdict, str]] = (),
    certificate: DiagnosisProof | None = None,
    preflight: Sequence[Finding] = (),
    options: Mapping[str, object] | None = None,
) -> CompletedDiagnosis:
    """A finished job: the whole model fails, each culprit fails and is blamed, the remainder passes."""
    whole = model.universe.everything
    blamed = 0
    for found in culprits:
        for occurrence in found.occurrences:
            blamed |= occurrence
    remainder = whole & ~blamed
    asked = [(whole, refused("compile failed") if culprits else PASS, "the whole model")]
    judged = []
    for found in culprits:
        verdict = Verdict(
            status=Status.FAIL, kind=found.failure, message=found.message, fingerprint=found.fingerprint, seconds=0.5
        )
        ops = " + ".join(model.universe.op[i] for i in list(members(found.units))[:4])
        asked += [(found.units, verdict, f"{ops} alone"), (remainder | found.units, verdict, f"blame {ops}")]
        evidence = Evidence(
            fails=found.units,
            subsets=found.evidence.subsets,
            context=remainder,
            blame=remainder | found.units,
        )
        fields = {name: getattr(found, name) for name in found.__dataclass_fields__}
        judged.append(DiagnosedCulprit(**(fields | {"evidence": evidence})))
    if culprits:
        asked.append((remainder, PASS, "the remainder"))
    asked += more
    probes = tuple(
        ProbeRecord(key=f"k{i}", units=units, verdict=verdict, why=why, round=i)
        for i, (units, verdict, why) in enumerate(asked)
    )
    return CompletedDiagnosis(
        model=model,
        target=Target(
            backend="whitelist", tool="simulator", version="1.0", options=dict(options or {"profile": "edgesam"})
        ),
        diagnosis=Diagnosis(
            verdict=Status.FAIL if culprits else Status.PASS,
            culprits=tuple(judged),
            needs_context=tuple(needs_context),
            certificate=certificate
            or DiagnosisProof(
                status=CertificateStatus.PROVEN, probes=(remainder,), assumes=("a superset of what fails fails",)
            ),
            remainder=remainder,
        ),
        probes=probes,
        preflight=tuple(preflight),
        stats=Stats(
            compiler_calls=len(probes), cached=0, rounds=4, compile_seconds=7.25, engine_seconds=0.02, wall_seconds=3.5
        ),
    )
