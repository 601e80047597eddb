"""A model of which a rule says what is refused, as a finished job: for tests of what is concluded from that."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import onnx
from onnx import parser

from onnxbisect.diagnosis import Certainty, CompletedDiagnosis, DiagnosedCulprit
from onnxbisect.model import Model, load
from onnxbisect.unitset import members
from support.engine.report_factory import job_of, single

#: Windows as in Hiera and Swin: of rank 6 in between, at three sizes, and the same ops at rank 4.
WINDOWS = """(float[1,8,8,4] x) => (float[1,8,8,4] y) {
    s0 = Constant<value_ints = [1,2,4,2,4,4]>() s1 = Constant<value_ints = [1,4,2,4,2,4]>()
    s2 = Constant<value_ints = [1,1,8,1,8,4]>() back = Constant<value_ints = [1,8,8,4]>()
    flat = Constant<value_ints = [64,4]>() part = Constant<value_ints = [8,8,4]>()
    row = Constant<value_ints = [1,64,4]>()
    a0 = Reshape(x, s0) a1 = Transpose<perm = [0,1,3,2,4,5]>(a0) a2 = Relu(a1) a3 = Reshape(a2, part)
    b0 = Reshape(a3, s1) b1 = Transpose<perm = [0,1,3,2,5,4]>(b0) b2 = Neg(b1) b3 = Reshape(b2, row)
    c0 = Reshape(b3, s2) c1 = Transpose<perm = [0,3,1,2,4,5]>(c0) c2 = Exp(c1) c3 = Abs(c2) c4 = Reshape(c3, back)
    d0 = Transpose<perm = [0,2,1,3]>(c4) d1 = Relu(d0) d2 = Reshape(d1, flat) d3 = Exp(d2) y = Reshape(d3, back)
}"""

GATHERS = """(float[4,4,8] x) => (float[4,2] y) {
    i0 = Constant<value_int = 0>() i1 = Constant<value_int = 1>() i2 = Constant<value_int = 2>()
    i3 = Constant<value_int = 3>() list = Constant<value_ints = [1, 0]>()
    a = Gather<axis = 1>(x, i0) b = Gather<axis = 1>(x, i1) c = Gather<axis = 1>(x, i2) d = Gather<axis = 1>(x, i3)
    e = Add(a, b) f = Add(c, d) g = Add(e, f) h = Gather<axis = 1>(g, list) y = Add(h, h)
}"""


def model_of(folder: Path, body: str) -> Model:
    """A model in ONNX's text form, without its header."""
    path = folder / "model.onnx"
    text = f'<ir_version: 10, opset_import: ["": 18, "acme": 1, "com.microsoft": 1]>\ng {body}'
    path.write_bytes(parser.parse_model(text).SerializeToString())
    return load(path)


def rank(model: Model, tensor: str) -> int:
    """The rank of a tensor; -1 where it is not known."""
    kind = model.types.get(tensor)
    if kind is not None and kind.tensor_type.HasField("shape"):
        return len(kind.tensor_type.shape.dim)
    return -1


def node(model: Model, unit: int) -> onnx.NodeProto:
    """The node of a unit."""
    return model.proto.graph.node[model.units[unit].node]


def refusing(
    model: Model, refused: Callable[[onnx.NodeProto], bool], *, certainty: Certainty = Certainty.CONFIRMED
) -> CompletedDiagnosis:
    """What is to be said when the compiler refuses these nodes, each for itself: a culprit for each variant of them."""
    places: dict[int, list[int]] = {}
    for unit, variant in enumerate(model.universe.variant):
        if refused(node(model, unit)):
            places.setdefault(variant, []).append(unit)
    message = "not supported"
    return job_of(model, [single(model, units, message, certainty=certainty) for units in places.values()])


def and_also(job: CompletedDiagnosis, culprits: Iterable[DiagnosedCulprit]) -> CompletedDiagnosis:
    """The same job with more culprits, whose units did not pass."""
    more = tuple(culprits)
    blamed = {unit for culprit in more for place in culprit.places for unit in members(place)}
    probes = tuple(
        replace(probe, units=probe.units & ~sum(1 << unit for unit in blamed)) if probe.verdict.passed else probe
        for probe in job.probes
    )
    diagnosis = replace(job.diagnosis, culprits=(*job.diagnosis.culprits, *more))
    return replace(job, diagnosis=diagnosis, probes=probes)


def wide(model: Model) -> CompletedDiagnosis:
    """What is to be said when the compiler takes no tensors of rank 6."""
    return refusing(model, lambda it: any(rank(model, name) >= 6 for name in [*it.input, *it.output]))


def scalar_indices(it: onnx.NodeProto) -> bool:
    """What a compiler refuses that takes lists of indices only."""
    return it.op_type == "Gather" and it.input[1] != "list"
