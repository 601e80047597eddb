"""Divide a model into units and build the universe that the search uses."""

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from onnxbisect.model.model import Unit
from onnxbisect.model.scopes import is_constant, qualified, reads
from onnxbisect.model.variants import Variants
from onnxbisect.unitset import of
from onnxbisect.universe import Universe


def units_of(graph: onnx.GraphProto, order: Sequence[int]) -> tuple[Unit, ...]:
    """One unit for each node that is not a Constant, in this order of the nodes.

    A Constant node belongs to each unit that reads it, also from a subgraph. One that makes a graph output and that no
    unit reads is a unit of its own, because otherwise no probe would have that output. An unused one is in no unit.
    """
    constants = {node.output[0]: index for index, node in enumerate(graph.node) if is_constant(node)}
    units: dict[int, Unit] = {}
    claimed: set[int] = set()
    for index, node in enumerate(graph.node):
        if not is_constant(node):
            own = tuple(sorted(constants[name] for name in reads(node) if name in constants))
            claimed.update(own)
            units[index] = Unit(node=index, constants=own)
    for value in graph.output:
        index = constants.get(value.name, -1)
        if index >= 0 and index not in claimed:
            units[index] = Unit(node=index)
    return tuple(units[index] for index in order if index in units)


def universe_of(
    proto: onnx.ModelProto,
    units: tuple[Unit, ...],
    types: Mapping[str, onnx.TypeProto],
    known: Mapping[str, np.ndarray],
    folder: Path,
) -> Universe:
    """Number variants and solos in order of first appearance, and connect units that share tensors."""
    nodes = proto.graph.node
    variants = Variants(proto, types, known, folder)
    variant_ids: dict[Hashable, int] = {}
    solo_ids: dict[Hashable, int] = {}
    variant: list[int] = []
    solo: list[int] = []
    producer = {name: number for number, unit in enumerate(units) for name in nodes[unit.node].output if name}
    after: list[list[int]] = [[] for _ in units]
    for number, unit in enumerate(units):
        node = nodes[unit.node]
        variant.append(variant_ids.setdefault(variants.variant(node), len(variant_ids)))
        solo.append(solo_ids.setdefault((variant[-1], variants.solo(node)), len(solo_ids)))
        for name in reads(node):
            if name in producer:
                after[producer[name]].append(number)
    return Universe(
        variant=tuple(variant),
        solo=tuple(solo),
        op=tuple(qualified(nodes[unit.node]) for unit in units),
        names=tuple((nodes[unit.node].name, *(nodes[index].name for index in unit.constants)) for unit in units),
        tensors=tuple(tuple(name for name in nodes[unit.node].output if name) for unit in units),
        successors=tuple(of(consumers) for consumers in after),
    )
