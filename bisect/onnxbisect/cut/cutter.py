"""Cut any set of units out of a model into a stand-alone model with the same semantics.

`onnx.utils.Extractor` walks from the tensors that leave the set back to those that enter it; the nodes it reaches are
exactly the set, convex or not (`onnxbisect.cut.skeleton`). This module adds what these nodes depend on: weights,
functions, operator sets and type declarations.
"""

from collections.abc import Sequence

import onnx

from onnxbisect.cut.apply_format import apply_format
from onnxbisect.cut.boundary import Declarations
from onnxbisect.cut.encoded import EncodedNodes
from onnxbisect.cut.frame import Frame, Framer, Wishes
from onnxbisect.cut.functions import Call, Functions, call_of
from onnxbisect.cut.no_constant_folding import join_outputs
from onnxbisect.cut.output_guard import guard_outputs
from onnxbisect.cut.piece import Piece
from onnxbisect.cut.skeleton import SkeletonExtractor
from onnxbisect.cut.weights import Weights
from onnxbisect.cut.wiring import Wiring, read_wiring
from onnxbisect.errors import CutError
from onnxbisect.model.external import external_tensors
from onnxbisect.model.model import Model
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.unitset import UnitSet, full, indices

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
        nodes = self._walk(frame, len(chosen))
        inputs, outputs, known = (
            [names[number] for number in numbers.tolist()] for numbers in (frame.inputs, frame.outputs, frame.known)
        )
        proto = onnx.ModelProto()
        proto.CopyFrom(self._head)
        graph = proto.graph
        graph.MergeFromString(self._nodes.join(nodes, frozenset(outputs)))
        graph.input.extend(map(self._types.at_boundary, inputs))
        graph.output.extend(map(self._types.at_boundary, outputs))
        everything = units == self._everything and wishes is None
        self._weights.add(graph, nodes, known, everything=everything)
        self._add_scopes(proto, nodes, everything=everything)
        covered = guard_outputs(graph, probe_format.covered, self._own_ends) if probe_format.covered else {}
        if not probe_format.folds and not everything:
            covered |= join_outputs(graph, self._own_ends)
        renamed = {new: covered.get(old, old) for new, old in apply_format(proto, probe_format).items()}
        return Piece(
            units=units,
            proto=proto,
            renamed={**covered, **renamed},
            probe_format=probe_format,
            external_nodes=self._external_nodes,
        )

    def _walk(self, frame: Frame, count: int) -> list[int]:
        """The nodes between the entering tensors and the roots: ascending indices into the model's nodes."""
        names = self._wiring.names
        entering, roots = ([names[number] for number in numbers.tolist()] for numbers in (frame.entering, frame.roots))
        nodes = self._extractor.nodes_between(entering, roots)
        if len(nodes) - len(self._wiring.constant_nodes.intersection(nodes)) != count:
            raise CutError("Some of these nodes have no output, so that no ONNX file can hold them alone.")
        return nodes

    def _add_scopes(self, proto: onnx.ModelProto, nodes: Sequence[int], *, everything: bool) -> None:
        if everything:
            proto.functions.extend(self._model.proto.functions)
            proto.opset_import.extend(self._model.proto.opset_import)
            return
        functions: set[Call] = set()
        domains = {"", "ai.onnx"}
        for called, used in set(map(self._needs.__getitem__, nodes)):
            functions |= called
            domains |= used
        proto.functions.extend(self._functions.pick(functions))
        proto.opset_import.extend(opset for opset in self._model.proto.opset_import if opset.domain in domains)


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
