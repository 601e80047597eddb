"""Add the constant tensors of a piece: dense and sparse initializers, known values, quantization annotations."""

from collections.abc import Iterable, Sequence
from itertools import chain

import onnx
from onnx import helper, numpy_helper

from onnxbisect.cut.wiring import Wiring
from onnxbisect.model.model import Model

#: Up to this IR version an initializer must also be a graph input.
IR_WITH_INITIALIZERS_AS_INPUTS = 3


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

    def add(self, graph: onnx.GraphProto, nodes: Sequence[int], known: Iterable[str], *, everything: bool) -> None:
        """Add to `graph` the constants read by its nodes (indices in the model) and the values of `known` tensors."""
        if everything:
            graph.initializer.extend(self._dense)
            graph.sparse_initializer.extend(self._sparse.values())
            graph.quantization_annotation.extend(self._annotations)
            return
        dense = sorted(set(chain.from_iterable(map(self._dense_of.__getitem__, nodes))))
        sparse = dict.fromkeys(name for node in nodes for name in self._sparse_of[node]) if self._sparse else {}
        graph.initializer.extend([self._dense[index] for index in dense])
        graph.initializer.extend(numpy_helper.from_array(self._known[name], name) for name in known)
        graph.sparse_initializer.extend(self._sparse[name] for name in sparse)
        if self._annotations:
            self._annotate(graph)
        if self._always_inputs:
            list_as_inputs(graph, graph.initializer)
        elif self._as_inputs:
            list_as_inputs(graph, [tensor for tensor in graph.initializer if tensor.name in self._as_inputs])

    def _annotate(self, graph: onnx.GraphProto) -> None:
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


def list_as_inputs(graph: onnx.GraphProto, weights: Iterable[onnx.TensorProto]) -> None:
    """List these initializers as graph inputs, unless they already are."""
    listed = {value.name for value in graph.input}
    graph.input.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in weights
        if tensor.name not in listed
    )
