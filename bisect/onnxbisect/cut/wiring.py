"""The model's dataflow as plain Python values, and what a piece of it needs besides nodes: constants and functions.

All is read once from the protobuf, because a search cuts hundreds of pieces.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import onnx
from onnx import helper, numpy_helper

from onnxbisect.model.model import Model
from onnxbisect.model.scopes import Call, bodies, call_of, captures, functions_of

#: Up to this IR version an initializer must also be a graph input.
IR_WITH_INITIALIZERS_AS_INPUTS = 3


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


class Weights:
    """The initializers of one model and the nodes that read each.

    An initializer that the model lists as an input stays an input: compilers treat its value as changeable.
    """

    def __init__(self, model: Model, wiring: Wiring) -> None:
        graph = model.proto.graph
        self._known = model.known
        self._dense = tuple(graph.initializer)
        self._sparse = {tensor.values.name: tensor for tensor in graph.sparse_initializer}
        self._annotations = tuple(graph.quantization_annotation)
        self._position = {tensor.name: index for index, tensor in enumerate(self._dense)}
        taken = [tuple(name for name in names if name in wiring.weights) for names in wiring.taken]
        self._dense_of = tuple(
            tuple(self._position[name] for name in names if name in self._position) for names in taken
        )
        self._sparse_of = tuple(tuple(name for name in names if name in self._sparse) for names in taken)
        self._as_inputs = frozenset(value.name for value in graph.input if value.name in wiring.weights)
        self._always_inputs = model.proto.ir_version <= IR_WITH_INITIALIZERS_AS_INPUTS

    def add(self, graph: onnx.GraphProto, nodes: Sequence[int], known: Iterable[str]) -> None:
        """Add to `graph` the constants read by its nodes (indices in the model), those that it returns, and the values
        of `known` tensors.
        """
        ends = [value.name for value in graph.output]
        own = (self._position[name] for name in ends if name in self._position)
        dense = sorted({*chain.from_iterable(map(self._dense_of.__getitem__, nodes)), *own})
        sparse = dict.fromkeys(name for node in nodes for name in self._sparse_of[node]) if self._sparse else {}
        sparse |= dict.fromkeys(name for name in ends if name in self._sparse)
        graph.initializer.extend([self._dense[index] for index in dense])
        graph.initializer.extend(numpy_helper.from_array(self._known[name], name) for name in known)
        graph.sparse_initializer.extend(self._sparse[name] for name in sparse)
        if self._annotations:
            present = {tensor.name for tensor in graph.initializer} | {value.name for value in graph.input}
            present.update(name for node in graph.node for name in (*node.input, *node.output))
            brought = {tensor.name for tensor in graph.initializer}
            for annotation in self._annotations:
                if annotation.tensor_name not in present:
                    continue
                parameters = [entry.value for entry in annotation.quant_parameter_tensor_names]
                if not all(name in present or name in self._position for name in parameters):
                    continue
                graph.quantization_annotation.append(annotation)
                for name in parameters:
                    if name not in brought and name in self._position:
                        graph.initializer.append(self._dense[self._position[name]])
                        brought.add(name)
        if self._always_inputs:
            list_as_inputs(graph, graph.initializer)
        elif self._as_inputs:
            list_as_inputs(graph, [tensor for tensor in graph.initializer if tensor.name in self._as_inputs])


def list_as_inputs(graph: onnx.GraphProto, weights: Iterable[onnx.TensorProto]) -> None:
    """List these initializers as graph inputs, unless they already are."""
    listed = {value.name for value in graph.input}
    graph.input.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in weights
        if tensor.name not in listed
    )


class Functions:
    """The model-local functions of a model, with the functions that each calls, transitively.

    `onnx.utils.Extractor` identifies functions by name and domain only and does not look into subgraphs, so it loses
    overloads and functions that only a subgraph calls.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._functions = functions_of(model)
        self._reach: dict[Call, tuple[frozenset[Call], frozenset[str]]] = {}
        for start in self._functions:
            seen, domains, queue = {start}, set(), [start]
            while queue:
                call = queue.pop()
                domains.add(call[0])
                function = self._functions.get(call)
                for called in () if function is None else _calls(function.node):
                    if called not in seen:
                        seen.add(called)
                        queue.append(called)
            self._reach[start] = frozenset(seen & self._functions.keys()), frozenset(domains)

    def needs_of(self, node: onnx.NodeProto) -> tuple[frozenset[Call], frozenset[str]]:
        """The functions that a node needs, transitively, and the domains of all operators used by it and them."""
        needed: set[Call] = set()
        domains: set[str] = set()
        for call in set(_calls([node])):
            functions, more = self._reach.get(call, (frozenset(), {call[0]}))
            needed |= functions
            domains |= more
        return frozenset(needed), frozenset(domains)

    def pick(self, needed: Iterable[Call]) -> list[onnx.FunctionProto]:
        """The definitions of the needed functions, in the model's order."""
        wanted = set(needed)
        return [function for call, function in self._functions.items() if call in wanted]


def _calls(nodes: Iterable[onnx.NodeProto]) -> Iterator[Call]:
    """All calls made by the nodes and the nodes in their subgraphs, with repeats."""
    for node in nodes:
        yield call_of(node)
        for body in bodies(node):
            yield from _calls(body.node)
