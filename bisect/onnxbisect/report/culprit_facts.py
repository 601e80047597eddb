"""What a report shows of a unit besides its op: properties that a compiler may object to, its neighbours, its source.

The line of the user's source is known as far as the exporter recorded it: in the metadata that torch's dynamo exporter
writes on nodes (`pkg.torch.onnx.stack_trace`, outermost frame first; `pkg.torch.onnx.name_scopes`; `namespace`), in the
doc strings of its TorchScript exporter with `verbose=True` (innermost frame first), and in node names that carry the
module scope (`/mask_decoder/transformer/layers.0/Add`).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxbisect.model.model import Model
from onnxbisect.model.modules import item_before_last, module_of
from onnxbisect.report.culprit_contents import DrawnEdge, DrawnNode, Role, Surroundings
from onnxbisect.unitset import UnitSet, members, size

_DTYPES = {number: name.lower() for name, number in onnx.TensorProto.DataType.items()}
#: Most elements of a constant whose value is shown; larger constants are weights.
_SMALL = 8


class UnitProperties:
    """Properties of the units of one model, as pairs of a label and a value that can both be shown to a user."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def of(self, unit: int, *, shapes: bool) -> dict[str, str]:
        """`{"attribute axis": "1", "input 0": "float[1,3]", "input 1": "constant int64[2] = [0, 1]"}`.

        Without `shapes`, only the rank: `float[?,?]`.
        """
        node = self._model.proto.graph.node[self._model.units[unit].node]
        facts = {f"attribute {attribute.name}": _attribute(attribute) for attribute in node.attribute}
        for position, tensor in enumerate(node.input):
            facts[f"input {position}"] = self._tensor(tensor, shapes=shapes)
        return facts

    def type(self, tensor: str) -> str:
        """The tensor's type, such as `float[1,3,224,224]`; empty where it is unknown."""
        known = self._model.types.get(tensor)
        return _type(known, shapes=True) if known is not None else ""

    def _tensor(self, name: str, *, shapes: bool) -> str:
        if not name:
            return "omitted"
        constant = self._constants.get(name)
        if constant is not None:
            return _constant(constant)
        if name in self._model.known:
            return _value(np.asarray(self._model.known[name]))
        known = self._model.types.get(name)
        return _type(known, shapes=shapes) if known is not None else "unknown type"

    @cached_property
    def _constants(self) -> Mapping[str, onnx.TensorProto]:
        graph = self._model.proto.graph
        constants = {tensor.name: tensor for tensor in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant" and node.domain in ("", "ai.onnx") and node.output:
                for attribute in node.attribute:
                    if attribute.name == "value" and attribute.HasField("t"):
                        constants[node.output[0]] = attribute.t
        return constants


def _attribute(attribute: onnx.AttributeProto) -> str:
    match attribute.type:
        case onnx.AttributeProto.TENSOR:
            return _constant(attribute.t)
        case onnx.AttributeProto.GRAPH | onnx.AttributeProto.GRAPHS:
            return "a subgraph"
        case onnx.AttributeProto.SPARSE_TENSOR | onnx.AttributeProto.SPARSE_TENSORS | onnx.AttributeProto.TENSORS:
            return "tensors"
    if attribute.ref_attr_name:
        return f"the function's {attribute.ref_attr_name}"
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value[:200].decode("utf-8", "replace")
    items = list(value) if hasattr(value, "__iter__") and not isinstance(value, str) else None
    if items is not None:
        shown = ", ".join(_scalar(item) for item in items[:_SMALL])
        return f"[{shown}{', …' if len(items) > _SMALL else ''}]"
    return _scalar(value)


def _scalar(value: object) -> str:
    if isinstance(value, bytes):
        return value[:80].decode("utf-8", "replace")
    return f"{value:.6g}" if isinstance(value, float) else str(value)[:80]


def _constant(tensor: onnx.TensorProto) -> str:
    elements = int(np.prod(tensor.dims, dtype=np.int64)) if tensor.dims else 1
    external = tensor.data_location == onnx.TensorProto.EXTERNAL
    if elements <= _SMALL and not external and tensor.data_type != onnx.TensorProto.STRING:
        return _value(numpy_helper.to_array(tensor))
    return f"constant {_DTYPES.get(tensor.data_type, '?')}{_dims(str(dim) for dim in tensor.dims)}"


def _value(array: np.ndarray) -> str:
    text = f"constant {array.dtype}{_dims(str(dim) for dim in array.shape)}"
    if array.size > _SMALL:
        return text
    flat = ", ".join(_scalar(item) for item in array.reshape(-1).tolist())
    return f"{text} = {flat if array.ndim == 0 else f'[{flat}]'}"


def _type(kind: onnx.TypeProto, *, shapes: bool) -> str:
    if not kind.HasField("tensor_type"):
        return str(kind.WhichOneof("value") or "unknown type").removesuffix("_type")
    dtype = _DTYPES.get(kind.tensor_type.elem_type, "?")
    if not kind.tensor_type.HasField("shape"):
        return f"{dtype} of unknown rank"
    dims = kind.tensor_type.shape.dim
    return f"{dtype}{_dims(str(dim.dim_value) if shapes and dim.HasField('dim_value') else '?' for dim in dims)}"


def _dims(dims: Iterable[str]) -> str:
    return f"[{','.join(dims)}]"


#: Most units of a culprit that is drawn, and most neighbours on either side.
_DRAWN = 12
_NEIGHBOURS = 4


def surroundings(model: Model, facts: UnitProperties, units: UnitSet) -> Surroundings | None:
    """`nodes` (name, op, role) and `edges` between them (indices into `nodes`, tensor, type); None if too large.

    Roles: `culprit`; `before` and `after` for neighbours; `input` and `output` for the graph's own, whose op is empty.
    """
    if not 0 < size(units) <= _DRAWN:
        return None
    universe, graph = model.universe, model.proto.graph
    inside = list(members(units))
    before = _outside((universe.predecessors[unit] for unit in inside), units)
    after = _outside((universe.successors[unit] for unit in inside), units)
    roles: dict[int, Role] = dict.fromkeys(before[-_NEIGHBOURS:], "before")
    roles |= dict.fromkeys(after[:_NEIGHBOURS], "after")
    roles |= dict.fromkeys(inside, "culprit")
    nodes: list[DrawnNode] = []
    place: dict[int, int] = {}
    producer: dict[str, int] = {}
    for unit in sorted(roles):
        node = graph.node[model.units[unit].node]
        place[unit] = len(nodes)
        producer |= {tensor: unit for tensor in node.output if tensor}
        nodes.append({"name": node.name, "op": universe.op[unit], "role": roles[unit]})
    edges: list[DrawnEdge] = []
    for unit in sorted(roles):
        for tensor in dict.fromkeys(graph.node[model.units[unit].node].input):
            source = producer.get(tensor)
            if source is not None and "culprit" in (roles[unit], roles[source]):
                edges.append(_edge(place[source], place[unit], tensor, facts))
    weights = {tensor.name for tensor in graph.initializer}
    used = {name for unit in inside for name in graph.node[model.units[unit].node].input} - weights
    made = {name: unit for unit in inside for name in graph.node[model.units[unit].node].output}
    for value in [value for value in graph.input if value.name in used][:_NEIGHBOURS]:
        nodes.append({"name": value.name, "op": "", "role": "input"})
        for unit in inside:
            if value.name in graph.node[model.units[unit].node].input:
                edges.append(_edge(len(nodes) - 1, place[unit], value.name, facts))
    for value in [value for value in graph.output if value.name in made][:_NEIGHBOURS]:
        nodes.append({"name": value.name, "op": "", "role": "output"})
        edges.append(_edge(place[made[value.name]], len(nodes) - 1, value.name, facts))
    return {
        "nodes": nodes,
        "edges": edges,
        "hidden_before": max(0, len(before) - _NEIGHBOURS),
        "hidden_after": max(0, len(after) - _NEIGHBOURS),
    }


def _outside(neighbours: Iterable[UnitSet], units: UnitSet) -> list[int]:
    union = 0
    for some in neighbours:
        union |= some
    return list(members(union & ~units))


def _edge(source: int, target: int, tensor: str, facts: UnitProperties) -> DrawnEdge:
    return {"from": source, "to": target, "tensor": tensor, "type": facts.type(tensor)}


_DYNAMO_FRAME = re.compile(r'File "([^"\n]{1,1000})", line (\d{1,9}), in ([^\n]{1,200})(?:\n +([^\n]*))?')
_TORCHSCRIPT_FRAME = re.compile(r"^ *([^\n()]{1,1000})\((\d{1,9})\): ([^\n]{1,200})$", re.MULTILINE)
#: Frames of the framework itself: never what the user has to edit.
_FRAMEWORK = re.compile(
    r"(?:^|[\\/])(?:torch[\\/](?:nn|onnx|fx|export|utils|jit|autograd|_[^\\/]+)|functorch|onnxscript)[\\/]|^<"
)


@dataclass(frozen=True, kw_only=True)
class Origin:
    """A place in the user's source. `scope` is the path of the module, `module` its class; None where unknown."""

    file: str | None = None
    line: int | None = None
    function: str | None = None
    code: str | None = None
    scope: str | None = None
    module: str | None = None

    def __bool__(self) -> bool:
        return self.file is not None or self.scope is not None


def origin(node: onnx.NodeProto) -> Origin:
    """Where this node came from; a falsy Origin if the exporter recorded nothing."""
    metadata = {entry.key: entry.value for entry in node.metadata_props}
    frames = _DYNAMO_FRAME.findall(metadata.get("pkg.torch.onnx.stack_trace", ""))[::-1]
    frames = frames or [(*frame, "") for frame in _TORCHSCRIPT_FRAME.findall(node.doc_string)]
    # the innermost frame that is not the framework's own
    own = next((frame for frame in frames if not _FRAMEWORK.search(frame[0])), None)
    file, line, function, code = own or (None, None, "", "")
    return Origin(
        file=file,
        line=None if line is None else int(line),
        function=function.strip() or None,
        code=code.strip() or None,
        scope=module_of(node),
        module=item_before_last(metadata.get("pkg.torch.onnx.class_hierarchy", "")),
    )
