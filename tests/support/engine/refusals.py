"""A model of which a rule says what is refused, as a finished job: for tests of what is concluded from that."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import onnx
from onnx import parser

from onnxbisect.diagnosis import Certainty, Culprit
from onnxbisect.job import Job
from onnxbisect.model import Model, load
from onnxbisect.unitset import members
from support.engine.report_factory import job_of, single


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
) -> Job:
    """What is to be said when the compiler refuses these nodes, each for itself: a culprit for each variant of them."""
    places: dict[int, list[int]] = {}
    for unit, variant in enumerate(model.universe.variant):
        if refused(node(model, unit)):
            places.setdefault(variant, []).append(unit)
    message = "not supported"
    return job_of(model, [single(model, units, message, certainty=certainty) for units in places.values()])


def and_also(job: Job, culprits: Iterable[Culprit]) -> Job:
    """The same job with more culprits, whose units did not pass."""
    more = tuple(culprits)
    blamed = {unit for culprit in more for place in culprit.places for unit in members(place)}
    probes = tuple(
        replace(probe, units=probe.units & ~sum(1 << unit for unit in blamed)) if probe.verdict.passed else probe
        for probe in job.probes
    )
    diagnosis = replace(job.diagnosis, culprits=(*job.diagnosis.culprits, *more))
    return replace(job, diagnosis=diagnosis, probes=probes)
