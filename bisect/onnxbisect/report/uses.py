"""The uses of each op in the model, with their results; profiles are made from these."""

from collections.abc import Mapping
from math import isfinite
from typing import Any

import onnx
from onnx import AttributeProto, TensorProto

from onnxbisect.diagnosis import Certainty, CulpritKind
from onnxbisect.job import Job
from onnxbisect.model.scopes import domain_of
from onnxbisect.report.contents import UseEntry, UseInput
from onnxbisect.report.ranges import spell
from onnxbisect.report.states import States
from onnxbisect.rewrites.facts import Facts
from onnxbisect.unitset import UnitSet, members, size

_DTYPE_ATTRIBUTES = frozenset({"to", "dtype"})


def use_entries(job: Job, states: States) -> list[UseEntry]:
    """One entry for each variant, in model order.

    `passing` counts its units in passing probes, `refused` those that are culprits alone, and `message` is the
    compiler's for the latter. An attribute that is a tensor or a graph is null, and so is an omitted input.
    """
    refused: dict[int, str] = {}
    for culprit in job.diagnosis.culprits:
        if culprit.kind is CulpritKind.SINGLE and culprit.certainty is Certainty.CONFIRMED:
            for occurrence in culprit.places:
                refused.update((unit, culprit.message) for unit in members(occurrence))
    facts = Facts.of(job.model)
    return [
        _entry(job, facts, states, refused, units)
        for units in sorted(filter(None, job.model.universe.variant_members), key=lambda units: units & -units)
    ]


def _entry(job: Job, facts: Facts, states: States, refused: Mapping[int, str], units: UnitSet) -> UseEntry:
    first = next(iter(members(units)))
    node = job.model.proto.graph.node[job.model.units[first].node]
    messages = [refused[unit] for unit in members(units) if unit in refused]
    return {
        "op": node.op_type,
        "domain": domain_of(node),
        "opset": facts.opsets.get(domain_of(node)),
        "attributes": {attribute.name: _value(attribute) for attribute in node.attribute},
        "inputs": [_input(facts, name) for name in node.input],
        "outputs": sum(map(bool, node.output)),
        "units": spell(units),
        "passing": size(units & states.passing),
        "refused": len(messages),
        "message": messages[0] if messages else "",
    }


def _input(facts: Facts, name: str) -> UseInput | None:
    if not name:
        return None
    dtype, shape = facts.dtype(name), facts.shape(name)
    return {
        "dtype": None if dtype is None else TensorProto.DataType.Name(dtype),
        "rank": None if shape is None else len(shape),
        "constant": facts.is_constant(name),
    }


def _number(value: float) -> float | str:
    """The value, as text if it is infinite or NaN, which JSON lacks."""
    return value if isfinite(value) else str(value)


def _value(attribute: onnx.AttributeProto) -> Any:
    """The value as profiles write it: dtypes by name."""
    match attribute.type:
        case AttributeProto.INT if attribute.name in _DTYPE_ATTRIBUTES:
            known = attribute.i in TensorProto.DataType.values()
            return TensorProto.DataType.Name(attribute.i) if known else attribute.i
        case AttributeProto.INT:
            return attribute.i
        case AttributeProto.FLOAT:
            return _number(attribute.f)
        case AttributeProto.STRING:
            return attribute.s.decode("utf-8", "replace")
        case AttributeProto.INTS:
            return list(attribute.ints)
        case AttributeProto.FLOATS:
            return list(map(_number, attribute.floats))
        case AttributeProto.STRINGS:
            return [item.decode("utf-8", "replace") for item in attribute.strings]
    return None
