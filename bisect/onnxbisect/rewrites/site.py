"""The node that a rule is applied to, and the nodes that it adds: the interface of every rule.

Nodes whose form changed between operator sets are written in the form of the model's set.
"""

import typing
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxbisect.cut.rename import rename_in_node
from onnxbisect.model.external import constant_tensor
from onnxbisect.model.facts import TensorFacts
from onnxbisect.model.scopes import is_constant
from onnxbisect.rewrites.patterns import Match
from onnxbisect.rewrites.rule import NotApplicable, Replacement

#: Element types of numbers with a fraction that rules compute with.
FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)
INTEGERS = (TensorProto.INT32, TensorProto.INT64)
#: ONNX's operator set from which operators broadcast as numpy does. Older forms mean something else.
OLDEST_OPSET = 7
#: The first IR version in which an initializer need not be an input of the graph.
_FREE_INITIALIZERS = 4
#: Operators that broadcast only from a later operator set on.
_BROADCASTS_SINCE = {"Max": 8, "Min": 8, "Sum": 8, "Mean": 8}

T = TypeVar("T")


class Site:
    """One node with the facts about its tensors, and a growing list of new nodes.

    Readers raise NotApplicable, with a reason, for what is missing or unknown, so a rule reads as if all was there. New
    tensors get names that begin with `prefix`. `match` is set if the node is the last one of a rule's pattern.
    """

    def __init__(self, node: onnx.NodeProto, facts: TensorFacts, prefix: str, match: Match | None = None) -> None:
        self.node, self.facts, self._prefix, self._match = node, facts, prefix, match or Match(nodes=(node,))
        self.opset = facts.opsets.get("", 0)
        self._attributes = {attribute.name: attribute for attribute in node.attribute}
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[TensorProto] = []
        self._added: dict[str, np.ndarray] = {}
        self._opsets: dict[str, int] = {}

    # Reading

    def demand(self, condition: bool, reason: str) -> None:
        """Raise NotApplicable with this reason unless the condition holds."""
        if not condition:
            raise NotApplicable(reason)

    def known(self, fact: T | None, reason: str) -> T:
        """The fact; raises NotApplicable if it is None."""
        if fact is None:
            raise NotApplicable(reason)
        return fact

    def has(self, slot: int) -> bool:
        """Whether the node has this input."""
        return slot < len(self.node.input) and bool(self.node.input[slot])

    def input(self, slot: int) -> str:
        """The name of an input."""
        self.demand(self.has(slot), f"input {slot} is left out")
        return str(self.node.input[slot])

    def matched(self, name: str) -> str:
        """The tensor that a name of the rule's pattern stands for."""
        return self._match.tensors[name]

    def has_matched(self, name: str) -> bool:
        """Whether the matched alternative of the pattern has this name."""
        return name in self._match.tensors

    def has_part(self, name: str) -> bool:
        """Whether the match has a node of this name."""
        return name in self._match.named

    def part(self, name: str) -> "Site":
        """A node of the rule's pattern, for reading."""
        return Site(self._match.named[name], self.facts, self._prefix)

    def float32(self) -> str:
        """The name of the first input, which must be float32."""
        self.demand_dtype(TensorProto.FLOAT)
        return self.input(0)

    def inputs(self) -> list[str]:
        """The names of all inputs except omitted ones."""
        return [name for name in self.node.input if name]

    def attribute(self, name: str, default: T) -> T:
        """An attribute's value, or the default of its operator."""
        if name not in self._attributes:
            return default
        value = helper.get_attribute_value(self._attributes[name])
        return typing.cast(T, value.decode("utf-8", "replace") if isinstance(value, bytes) else value)

    def has_attribute(self, name: str) -> bool:
        """Whether the node has the attribute."""
        return name in self._attributes

    def dtype(self, slot: int) -> int:
        """The element type of an input."""
        return self.known(self.facts.dtype(self.input(slot)), f"the type of input {slot} is not known")

    def value_dtype(self, slot: int) -> np.dtype:
        """The numpy dtype of an input."""
        return helper.tensor_dtype_to_np_dtype(self.dtype(slot))

    def demand_dtype(self, *allowed: int, slot: int = 0) -> None:
        """Raise NotApplicable unless an input has one of these element types."""
        dtype = self.dtype(slot)
        names = ", ".join(_type_name(kind) for kind in allowed)
        self.demand(dtype in allowed, f"input {slot} is {_type_name(dtype)}; the rule holds for {names}")

    def rank(self, slot: int) -> int:
        """The number of dimensions of an input."""
        return len(self.known(self.facts.shape(self.input(slot)), f"the rank of input {slot} is not known"))

    def shape(self, slot: int) -> tuple[int, ...]:
        """The dimensions of an input, all of them fixed."""
        return self._fixed(self.facts.shape(self.input(slot)), f"input {slot}")

    def output_shape(self, slot: int = 0) -> tuple[int, ...]:
        """The dimensions of an output, all of them fixed."""
        return self._fixed(self.facts.shape(self.node.output[slot]), f"output {slot}")

    def value(self, slot: int) -> np.ndarray:
        """The value of a constant input."""
        return self.known(self.facts.value(self.input(slot)), f"input {slot} is not a constant")

    def is_constant(self, slot: int) -> bool:
        """Whether an input exists and is a constant."""
        return self.has(slot) and self.facts.is_constant(self.input(slot))

    def axis(self, rank: int, default: int = 0, name: str = "axis") -> int:
        """An attribute that names an axis, counted from the front."""
        axis = self.attribute(name, default)
        self.demand(-rank <= axis < rank, f"axis {axis} does not exist at rank {rank}")
        return axis % rank

    def axes(self, rank: int, slot: int = 1, name: str = "axes") -> tuple[int, ...] | None:
        """The axes of a reduction or a Squeeze, from its input or its attribute; None if it has neither."""
        if self.has(slot):
            given = [int(axis) for axis in self.value(slot).ravel()]
        elif self.has_attribute(name):
            given = list(self.attribute(name, [0]))
        else:
            return None
        self.demand(all(-rank <= axis < rank for axis in given), f"axes {given} do not exist at rank {rank}")
        return tuple(sorted(axis % rank for axis in given))

    def _fixed(self, shape: tuple[int | None, ...] | None, what: str) -> tuple[int, ...]:
        dims = self.known(shape, f"the shape of {what} is not known")
        fixed = tuple(dim for dim in dims if dim is not None)
        self.demand(len(fixed) == len(dims), f"{what} has a dynamic dimension")
        return fixed

    # Writing

    def op(self, kind: str, *inputs: str, domain: str = "", **attributes: object) -> str:
        """Add a node with one output; returns the output's name."""
        return self.ops(kind, inputs, 1, domain=domain, **attributes)[0]

    def ops(
        self, kind: str, inputs: Sequence[str], outputs: int, *, domain: str = "", **attributes: object
    ) -> tuple[str, ...]:
        """Add a node with several outputs; returns their names."""
        self.demand(
            self.opset >= _BROADCASTS_SINCE.get(kind, 0), f"{kind} does not broadcast in operator set {self.opset}"
        )
        name = f"{self._prefix}{kind}_{len(self._nodes)}"
        names = (name,) if outputs == 1 else tuple(f"{name}:{number}" for number in range(outputs))
        written: dict[str, Any] = attributes  # onnx checks the values itself
        self._nodes.append(helper.make_node(kind, inputs, names, name=name, domain=domain, **written))
        return names

    def add(self, node: onnx.NodeProto, opsets: dict[str, int] | None = None) -> None:
        """Add a complete node, with names; `opsets` are versions that must be imported for it.

        A Constant becomes an initializer: some compilers read only those forms of it that exporters write.
        """
        self._opsets |= opsets or {}
        held = constant_tensor(node) if is_constant(node) else None
        if not isinstance(held, TensorProto):
            self._nodes.append(node)
            return
        tensor = TensorProto()
        tensor.CopyFrom(held)
        tensor.name = node.output[0]
        self.constant_tensor(tensor)

    def fresh(self, name: str) -> str:
        """A name for a new tensor or node that keeps `name` readable."""
        return self._prefix + name

    def like(self, *inputs: str, kind: str = "", **changed: object) -> str:
        """Add a node of the same op, or another `kind`, and attributes on other inputs; returns its first output."""
        return self.likes(inputs, [True], kind=kind, **changed)[0]

    def likes(
        self, inputs: Sequence[str], wanted: Sequence[bool], *, kind: str = "", **changed: object
    ) -> tuple[str, ...]:
        """The same with several outputs; returns their names, which are empty for those that are not wanted."""
        made = self.ops(kind or self.node.op_type, inputs, len(wanted), domain=self.node.domain)
        names = tuple(name if it else "" for name, it in zip(made, wanted, strict=True))
        node = self._nodes[-1]
        node.output[:] = names[: max(slot for slot, it in enumerate(wanted, 1) if it)]
        node.attribute.extend(attribute for attribute in self.node.attribute if attribute.name not in changed)
        node.attribute.extend(helper.make_attribute(key, value) for key, value in changed.items() if value is not None)
        return names

    def constant(self, array: np.ndarray) -> str:
        """Add a constant; returns its name."""
        name = f"{self._prefix}constant_{len(self._initializers) + len(self._nodes)}"
        self._added[name] = array
        return self.constant_tensor(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))

    def held(self, tensor: str) -> np.ndarray | None:
        """The value of a constant, be it one that the rule added; None for any other tensor."""
        return self._added[tensor] if tensor in self._added else self.facts.value(tensor)

    def constant_tensor(self, tensor: TensorProto) -> str:
        """Add a constant that has a name; returns the name."""
        if self.facts.ir_version < _FREE_INITIALIZERS:
            self._nodes.append(helper.make_node("Constant", [], [tensor.name], name=tensor.name, value=tensor))
        else:
            self._initializers.append(tensor)
        return tensor.name

    def scalar(self, value: float, slot: int = 0) -> str:
        """Add a constant of rank 0 in the element type of an input."""
        with np.errstate(over="ignore"):
            array = np.array(value, self.value_dtype(slot))
        self.demand(bool(np.isfinite(array)) or not np.isfinite(value), f"{value:g} is too large for the element type")
        return self.constant(array)

    def integers(self, values: Iterable[int]) -> str:
        """Add a constant list of int64."""
        return self.constant(np.array(list(values), np.int64))

    def written(self) -> tuple[tuple[onnx.NodeProto, ...], tuple[TensorProto, ...]]:
        """The nodes and the constants so far, under their names."""
        return tuple(self._nodes), tuple(self._initializers)

    def replacement(self, outputs: str | tuple[str, ...]) -> Replacement:
        """The nodes so far, with `outputs` renamed to the node's outputs."""
        made = (outputs,) if isinstance(outputs, str) else outputs
        own = {name for node in self._nodes for name in node.output} | {it.name for it in self._initializers}
        rename: dict[str, str] = {}
        for slot, old in enumerate(self.node.output):
            if not old:
                continue
            self.demand(slot < len(made), f"output {slot} is in use and has no replacement")
            if made[slot] in own and made[slot] not in rename:
                rename[made[slot]] = old
            else:
                copy = helper.make_node("Identity", made[slot : slot + 1], [old], name=self.fresh(f"Identity_{slot}"))
                self._nodes.append(copy)
        dims = {tensor.name: tensor.dims for tensor in self._initializers}
        for node in self._nodes:
            written = {attribute.name for attribute in node.attribute}
            if node.op_type == "Conv" and node.input[1] in dims and "kernel_shape" not in written:
                # TPU-MLIR does not take it from the weight.
                node.attribute.append(helper.make_attribute("kernel_shape", dims[node.input[1]][2:]))
        for tensor in self._initializers:
            tensor.name = rename.get(tensor.name, tensor.name)
        for node in self._nodes:
            rename_in_node(node, rename)
        return Replacement(
            nodes=tuple(self._nodes),
            initializers=tuple(self._initializers),
            opsets=self._opsets,
        )


def _type_name(dtype: int) -> str:
    return str(TensorProto.DataType.Name(dtype)).lower()


#: Operator sets from which reductions take their axes as an input.
_REDUCTION_INPUT = {"ReduceSum": 13}
_OTHER_REDUCTION_INPUT = 18


def reshape(at: Site, tensor: str, shape: Sequence[int]) -> str:
    """Reshape to fixed dimensions. A dimension of 0 would copy the input's, so empty tensors are refused.

    A constant is reshaped here, since compilers may take no Reshape of a weight.
    """
    at.demand(0 not in shape, "a tensor is empty")
    held = at.held(tensor)
    return at.op("Reshape", tensor, at.integers(shape)) if held is None else at.constant(held.reshape(shape))


def transpose(at: Site, tensor: str, perm: Sequence[int]) -> str:
    """Permute axes, those of a constant here; no node if the permutation is the identity."""
    if list(perm) == sorted(perm):
        return tensor
    held = at.held(tensor)
    return at.op("Transpose", tensor, perm=list(perm)) if held is None else at.constant(held.transpose(perm))


def slice_axis(at: Site, tensor: str, axis: int, start: int, end: int, step: int = 1) -> str:
    """A range of one axis."""
    if at.opset < 10:
        at.demand(step == 1, "Slice has no steps before operator set 10")
        return at.op("Slice", tensor, axes=[axis], starts=[start], ends=[end])
    steps = [] if step == 1 else [at.integers([step])]
    return at.op("Slice", tensor, at.integers([start]), at.integers([end]), at.integers([axis]), *steps)


def concat(at: Site, tensors: Sequence[str], axis: int) -> str:
    """Join tensors; no node for a single one."""
    return tensors[0] if len(tensors) == 1 else at.op("Concat", *tensors, axis=axis)


def reduce(at: Site, kind: str, tensor: str, axes: Sequence[int], *, keepdims: bool) -> str:
    """Reduce over some axes."""
    if at.opset < _REDUCTION_INPUT.get(kind, _OTHER_REDUCTION_INPUT):
        return at.op(kind, tensor, axes=list(axes), keepdims=int(keepdims))
    return at.op(kind, tensor, at.integers(axes), keepdims=int(keepdims))


def clip(at: Site, tensor: str, low: float, high: float) -> str:
    """Clip between two numbers."""
    if at.opset < 11:
        return at.op("Clip", tensor, min=float(low), max=float(high))
    return at.op("Clip", tensor, at.scalar(low), at.scalar(high))


def cast(at: Site, tensor: str, dtype: int) -> str:
    """Convert to another element type."""
    return at.op("Cast", tensor, to=dtype)


def rounded(value: float, at: Site, slot: int = 0) -> float:
    """The number rounded to the element type of an input."""
    return float(np.array(value, helper.tensor_dtype_to_np_dtype(at.dtype(slot))))


def pairwise(at: Site, kind: str) -> str:
    """Join all inputs of the node by a binary op, from left to right."""
    first, *rest = at.inputs()
    for other in rest:
        first = at.op(kind, first, other)
    return first


def minus(at: Site, tensor: str) -> str:
    """The tensor times -1, in the element type of the node's first input."""
    return at.op("Mul", tensor, at.scalar(-1))


def demand_float32(at: Site) -> None:
    """Raise NotApplicable unless all inputs are float32."""
    for slot in range(len(at.node.input)):
        if at.has(slot):
            at.demand_dtype(TensorProto.FLOAT, slot=slot)
