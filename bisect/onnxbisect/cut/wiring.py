"""The model's dataflow as plain Python values, read once from the protobuf."""

from dataclasses import dataclass
from itertools import chain

import onnx

from onnxbisect.model.model import Model
from onnxbisect.model.scopes import bodies, captures


@dataclass(frozen=True, kw_only=True, eq=False)
class Wiring:
    """The producer and the consumers of each tensor, captures of subgraphs included.

    `taken` and `made` hold per node the tensors that it reads and makes: each once, without omitted inputs, captures
    after the node's own inputs. `constants` gives the Constant node that makes a tensor, `maker` the unit.
    `boundary` holds per unit the tensors it reads that are neither initializers nor Constants: they become graph inputs
    where their producer is not in the cut. `takers` are the units that read a tensor. `branching` are the nodes with
    subgraphs, `constant_nodes` the Constant nodes that are not units. `names` are all tensors that a node reads
    or makes, and the model's inputs and outputs; `number` gives a tensor's index in `names`.
    """

    nodes: tuple[onnx.NodeProto, ...]
    taken: tuple[tuple[str, ...], ...]
    made: tuple[tuple[str, ...], ...]
    weights: frozenset[str]
    constants: dict[str, int]
    maker: dict[str, int]
    boundary: tuple[tuple[str, ...], ...]
    takers: dict[str, tuple[int, ...]]
    branching: frozenset[int]
    constant_nodes: frozenset[int]
    names: tuple[str, ...]
    number: dict[str, int]


def read_wiring(model: Model) -> Wiring:
    """Read the dataflow of a model in time linear in its size, without reading weights."""
    graph = model.proto.graph
    nodes = tuple(graph.node)
    weights = {tensor.name for tensor in graph.initializer}
    weights.update(tensor.values.name for tensor in graph.sparse_initializer)
    made = tuple(tuple(filter(None, node.output)) for node in nodes)
    branching = frozenset(index for index, node in enumerate(nodes) if bodies(node))
    taken = tuple(
        tuple(dict.fromkeys([*filter(None, node.input), *(captures(node) if index in branching else ())]))
        for index, node in enumerate(nodes)
    )
    units = {unit.node for unit in model.units}
    constants = {name: index for index, names in enumerate(made) if index not in units for name in names}
    boundary = tuple(
        tuple(name for name in taken[unit.node] if name not in weights and name not in constants)
        for unit in model.units
    )
    takers: dict[str, list[int]] = {}
    for index, names in enumerate(boundary):
        for name in names:
            takers.setdefault(name, []).append(index)
    ends = (value.name for value in (*graph.input, *graph.output))
    names = tuple(dict.fromkeys(chain(chain.from_iterable(taken), chain.from_iterable(made), ends)))
    return Wiring(
        nodes=nodes,
        taken=taken,
        made=made,
        weights=frozenset(weights),
        constants=constants,
        maker={name: index for index, unit in enumerate(model.units) for name in made[unit.node]},
        boundary=boundary,
        takers={name: tuple(indices) for name, indices in takers.items()},
        branching=branching,
        constant_nodes=frozenset(range(len(nodes))) - units,
        names=names,
        number={name: number for number, name in enumerate(names)},
    )
