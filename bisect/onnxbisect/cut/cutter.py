"""Cut any set of units out of a model into a stand-alone model with the same semantics.

`onnx.utils.Extractor` walks from the tensors that leave the set back to those that enter it; the nodes it reaches are
exactly the set, convex or not. It walks over a skeleton of the model: nodes without attributes and weights, with the
captures of subgraphs as plain inputs. So it keeps tensors that only a subgraph uses (onnx 1.23 loses them), copies no
tensor data, and serves any number of cuts; plain Python objects make its search ten times as fast as protobufs.

Then come what these nodes depend on (weights, functions, operator sets) and the declared types of the boundary. Nodes
are encoded once as protobuf bytes: protobuf parses concatenated messages as one and concatenates their repeated fields,
which is ten times as fast as adding nodes one by one.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import onnx
from onnx.utils import Extractor

from onnxbisect.cut.apply_format import apply_format
from onnxbisect.cut.frame import Framer, Wishes
from onnxbisect.cut.output_guard import accompany, guard_outputs, join_outputs
from onnxbisect.cut.packed_boundary import pack_boundary
from onnxbisect.cut.wiring import Functions, Weights, Wiring, read_wiring
from onnxbisect.cut.write import Piece
from onnxbisect.errors import CutError
from onnxbisect.model.external import external_tensors
from onnxbisect.model.model import Model
from onnxbisect.model.scopes import Call, call_of
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.unitset import UnitSet, full, indices


class Declarations:
    """Builds the value_info of a graph input or output, which ONNX demands to have a type.

    The type is the inferred one, else the one that the file declares, else a guess. Tensors inside a piece get only
    inferred types (`onnxbisect.cut.cutter`), because a wrong type is worse than none.
    """

    def __init__(self, model: Model, wiring: Wiring) -> None:
        graph = model.proto.graph
        self._model = model
        self._wiring = wiring
        self._declared = {value.name: value for value in (*graph.value_info, *graph.output, *graph.input)}

    def at_boundary(self, name: str) -> onnx.ValueInfoProto:
        """The tensor's declaration; guesses a type where none is known, and never raises."""
        value = onnx.ValueInfoProto()
        declared = self._declared.get(name)
        if declared is not None:
            value.CopyFrom(declared)
        value.name = name
        known = self._model.types.get(name)
        if known is not None:
            value.type.CopyFrom(known)
        elif value.type.WhichOneof("value") is None:
            # Most ops, custom ones included, return the dtype of their first input.
            unit = self._wiring.maker.get(name)
            taken = () if unit is None else self._wiring.boundary[unit]
            kinds = (self._model.types[it].tensor_type.elem_type for it in taken if it in self._model.types)
            value.type.tensor_type.elem_type = next(filter(None, kinds), onnx.TensorProto.FLOAT)
        return value


#: Largest node, in bytes, that is kept encoded. Larger nodes hold weights, which would be in memory twice.
_MOST_BYTES = 64 << 10


class EncodedNodes:
    """The nodes of one model, each with the inferred types of its outputs."""

    def __init__(self, model: Model, wiring: Wiring) -> None:
        self._types = model.types
        self._nodes, self._made = wiring.nodes, wiring.made
        self._maker = {name: index for index, names in enumerate(wiring.made) for name in names}
        self._kept = tuple(
            self._encode(index, ()) if node.ByteSize() <= _MOST_BYTES else None
            for index, node in enumerate(wiring.nodes)
        )

    def join(self, nodes: Sequence[int], outputs: Collection[str]) -> bytes:
        """A graph of these nodes; the caller declares the types of `outputs` itself."""
        kept = self._kept
        ends = {self._maker[name] for name in outputs if name in self._maker}
        return b"".join(
            [
                self._encode(index, outputs) if index in ends else kept[index] or self._encode(index, ())
                for index in nodes
            ]
        )

    def _encode(self, index: int, outputs: Collection[str]) -> bytes:
        declared = [
            onnx.ValueInfoProto(name=name, type=self._types[name])
            for name in self._made[index]
            if name in self._types and name not in outputs
        ]
        return bytes(onnx.GraphProto(node=[self._nodes[index]], value_info=declared).SerializeToString())


@dataclass(frozen=True, slots=True)
class _Node:
    """The parts of a NodeProto that the walk needs; `index` is the node's index in the model."""

    index: int
    input: tuple[str, ...]
    output: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Graph:
    """The parts of a GraphProto that the walk needs."""

    node: Sequence[_Node]
    input: tuple[()] = ()
    output: tuple[()] = ()
    initializer: tuple[()] = ()
    value_info: tuple[()] = ()


@dataclass(frozen=True, slots=True)
class _Skeleton:
    """The parts of a ModelProto that the walk needs."""

    graph: _Graph


class SkeletonExtractor(Extractor):
    """Finds the nodes of a cut. Build it once per model; it can be used from any thread."""

    def __init__(self, wiring: Wiring) -> None:
        nodes = [
            _Node(index, tuple([name for name in taken if name not in wiring.weights]), made)
            for index, (taken, made) in enumerate(zip(wiring.taken, wiring.made, strict=True))
        ]
        super().__init__(cast("onnx.ModelProto", _Skeleton(_Graph(nodes))))
        # The Extractor demands a declaration for each boundary tensor but does not read it.
        self.value_infos = dict.fromkeys(wiring.names, onnx.ValueInfoProto())

    def nodes_between(self, entering: Iterable[str], roots: Iterable[str]) -> list[int]:
        """The nodes met on the way back from `roots` to `entering`: ascending indices into the model's nodes."""
        extracted = cast("_Skeleton", self.extract_model(list(entering), list(roots)))
        return [node.index for node in extracted.graph.node]

    # The base class would copy tensor data with the following methods; `onnxbisect.cut.cutter` does that instead.

    def _collect_reachable_tensors(
        self, nodes: list[onnx.NodeProto]
    ) -> tuple[list[onnx.TensorProto], list[onnx.ValueInfoProto]]:
        return [], []

    def _collect_referred_local_functions(self, nodes: list[onnx.NodeProto]) -> list[onnx.FunctionProto]:
        return []

    def _make_model(self, nodes: list[onnx.NodeProto], *_: object) -> onnx.ModelProto:
        return cast("onnx.ModelProto", _Skeleton(_Graph(cast("list[_Node]", nodes))))


_AS_IT_IS = ProbeFormat()


class Cutter:
    """Cuts pieces out of one model. Build it once; `cut` can be called from any thread.

    Building takes time linear in the model, a cut linear in the piece. The model is not changed; pieces are copies.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._everything = full(len(model.units))
        self._wiring = read_wiring(model)
        self._extractor = SkeletonExtractor(self._wiring)
        self._framer = Framer(model, self._wiring)
        self._nodes = EncodedNodes(model, self._wiring)
        self._types = Declarations(model, self._wiring)
        self._weights = Weights(model, self._wiring)
        self._functions = Functions(model.proto)
        self._needs = tuple(_needs(self._functions, self._wiring))
        self._head = _head(model.proto)
        external = external_tensors(model.proto)
        self._external_nodes = len(external) > len(external_tensors(model.proto, in_nodes=False))
        graph = model.proto.graph
        self._own_ends = frozenset(value.name for value in (*graph.input, *graph.output))

    def cut(self, units: UnitSet, probe_format: ProbeFormat = _AS_IT_IS, wishes: Wishes | None = None) -> Piece:
        """Return `units` as a stand-alone model.

        Graph inputs are the tensors that enter the set, except those of known value, which become initializers. Graph
        outputs are the tensors that leave the set, plus the first result of each unit whose results are unused. The set
        of all units keeps the model's own inputs and outputs. `wishes` overrides the boundary (`cut_between`). Raises
        CutError for an empty set.
        """
        chosen = indices(units)
        if not len(chosen):
            raise CutError("There is nothing to cut out: name at least one node.")
        names = self._wiring.names
        frame = self._framer.frame(units, chosen, wishes)
        entering, roots, inputs, outputs, known = (
            [names[number] for number in numbers.tolist()]
            for numbers in (frame.entering, frame.roots, frame.inputs, frame.outputs, frame.known)
        )
        nodes = self._extractor.nodes_between(entering, roots)
        if len(nodes) - len(self._wiring.constant_nodes.intersection(nodes)) != len(chosen):
            raise CutError("Some of these nodes have no output, so that no ONNX file can hold them alone.")
        proto = onnx.ModelProto()
        proto.CopyFrom(self._head)
        graph = proto.graph
        graph.MergeFromString(self._nodes.join(nodes, frozenset(outputs)))
        graph.input.extend(map(self._types.at_boundary, inputs))
        graph.output.extend(map(self._types.at_boundary, outputs))
        everything = units == self._everything and wishes is None
        self._weights.add(graph, nodes, known)
        functions: set[Call] = set()
        domains = {"", "ai.onnx"}
        for called, used in set(map(self._needs.__getitem__, nodes)):
            functions |= called
            domains |= used
        proto.functions.extend(self._functions.pick(functions))
        proto.opset_import.extend(opset for opset in self._model.proto.opset_import if opset.domain in domains)
        covered = guard_outputs(graph, probe_format.covered, self._own_ends) if probe_format.covered else {}
        if not everything:
            covered |= accompany(graph, probe_format.accompanied)
        if (probe_format.loses_outputs or not probe_format.folds) and not everything:
            covered |= join_outputs(graph, self._own_ends, folds=probe_format.folds)
        renamed = {new: covered.get(old, old) for new, old in apply_format(proto, probe_format).items()}
        if not everything:  # the whole model has the inputs and outputs of the file
            packed = pack_boundary(proto, probe_format)
            renamed |= {new: renamed.get(old, old) for new, old in packed.items()}
        return Piece(
            units=units,
            proto=proto,
            renamed={**covered, **renamed},
            probe_format=probe_format,
            external_nodes=self._external_nodes,
        )


def _needs(functions: Functions, wiring: Wiring) -> list[tuple[frozenset[Call], frozenset[str]]]:
    """The functions and domains that each node needs; nodes of the same kind share one tuple."""
    shared: dict[Call, tuple[frozenset[Call], frozenset[str]]] = {}
    needs = []
    for index, node in enumerate(wiring.nodes):
        if index in wiring.branching:
            needs.append(functions.needs_of(node))
            continue
        call = call_of(node)
        if call not in shared:
            shared[call] = functions.needs_of(node)
        needs.append(shared[call])
    return needs


def _head(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of the model without nodes, tensors and functions, but with any field that a later onnx may add."""
    head = onnx.ModelProto()
    _copy_except(model, head, {"graph", "functions", "opset_import", "training_info"})
    payload = {"node", "initializer", "sparse_initializer", "input", "output", "value_info", "quantization_annotation"}
    _copy_except(model.graph, head.graph, payload)
    return head


def _copy_except(
    source: onnx.ModelProto | onnx.GraphProto, target: onnx.ModelProto | onnx.GraphProto, left_out: set[str]
) -> None:
    for field, value in source.ListFields():
        if field.name in left_out:
            continue
        if hasattr(value, "extend"):
            getattr(target, field.name).extend(value)
        elif hasattr(value, "CopyFrom"):
            getattr(target, field.name).CopyFrom(value)
        else:
            setattr(target, field.name, value)
