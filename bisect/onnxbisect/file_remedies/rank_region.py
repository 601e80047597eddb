"""A graph written anew node by node, with tensors of high rank held at a lower one.

The elements of a tensor keep their order whatever its shape is, so a tensor of high rank is held in any shape that the
node which makes it likes, and read in any other behind a Reshape.
"""

from collections import ChainMap, Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxbisect.file_remedies import remedy
from onnxbisect.model.facts import TensorFacts
from onnxbisect.model.scopes import bodies, captures, domain_of
from onnxbisect.rewrites import NotApplicable
from onnxbisect.rewrites.apply import trace

Shape = tuple[int, ...]


class Region:
    """The new nodes, and for each tensor of high rank the tensor that holds its elements meanwhile."""

    def __init__(self, proto: onnx.ModelProto, facts: TensorFacts, most: int, forms: "Mapping[str, Form]") -> None:
        self.facts, self.most, self.opset, self._forms = facts, most, facts.opsets.get("", 0), forms
        self._proto = remedy.copied(proto)
        self._prefix = remedy.unused_prefix("rank", remedy.beginnings(remedy.every_name(proto.graph)))
        self._outputs = {value.name for value in proto.graph.output}
        # each with what the node at hand adds before what is settled
        self._held: ChainMap[str, tuple[str, Shape]] = ChainMap({}, {})
        self._full: ChainMap[str, bool] = ChainMap({}, {})
        self._views: ChainMap[tuple[str, Shape], str] = ChainMap({}, {})
        #: How many tensors each new one has the elements of.
        self._holding: Counter[str] = Counter()
        self._nodes: list[onnx.NodeProto] = []
        self._stored: list[onnx.TensorProto] = []
        self._replaced = onnx.NodeProto()
        #: The ops of the nodes that were written at a lower rank.
        self.ops: set[str] = set()

    def take(self, node: onnx.NodeProto) -> None:
        """Add the node, in a form of fewer dimensions if it needs one and has one."""
        self._replaced = node
        names = [name for name in (*node.input, *node.output) if name]
        form = None if domain_of(node) or bodies(node) else self._forms.get(node.op_type)
        if form is not None and any(self.is_high(name) for name in names):
            start, stored = len(self._nodes), len(self._stored)
            try:
                form(self, node)
            except NotApplicable:
                del self._nodes[start:], self._stored[stored:]
                self._holding.subtract(held for held, _ in self._held.maps[0].values())
                self._settle(kept=False)
            else:
                self._settle(kept=True)
                self.ops.add(node.op_type)
                for name in node.output:
                    if name in self._outputs:
                        self.full(name)
                self._settle(kept=True)
                return
        for name in [*node.input, *captures(node)]:
            if name in self._held:
                self.full(name)
        self._settle(kept=True)
        self._nodes.append(remedy.node_copy(node))

    def _settle(self, *, kept: bool) -> None:
        """Keep or forget what the node at hand has added."""
        tables: list[ChainMap[Any, Any]] = [self._held, self._full, self._views]
        for table in tables:
            new, settled = table.maps
            if kept:
                settled.update(new)
            new.clear()

    def result(self) -> onnx.ModelProto:
        """The model with the new nodes, without nodes and initializers that no node reads any more."""
        graph = self._proto.graph
        graph.initializer.extend(self._stored)
        suspects = {name for node in graph.node for name in (*node.input, *node.output) if name}
        read = {name for node in graph.node for name in (*node.input, *captures(node))}
        needed, kept = set(self._outputs), list[onnx.NodeProto]()
        for node in reversed(self._nodes):
            if not needed.isdisjoint(node.output) or read.isdisjoint(node.output):
                needed.update(node.input, captures(node))
                kept.append(node)
        remedy.set_nodes(graph, kept[::-1])
        remedy.drop_unread(graph, suspects - {name for node in kept for name in node.output})
        return self._proto

    # Reading

    def is_high(self, name: str) -> bool:
        """Whether a tensor has more dimensions than allowed."""
        return len(self.facts.shape(name) or ()) > self.most

    def shape(self, name: str) -> Shape:
        """The dimensions of a tensor, all of them fixed and none 0."""
        shape = self.facts.shape(name)
        if shape is None or any(not dim for dim in shape):
            raise NotApplicable(f"the shape of {name} is not known, or it is empty")
        return tuple(dim for dim in shape if dim)

    def numbers(self, node: onnx.NodeProto, slot: int, attribute: str) -> list[int] | None:
        """A list of integers from a constant input, or from the attribute of older operator sets."""
        if slot < len(node.input) and node.input[slot]:
            value = self.facts.value(node.input[slot])
            if value is None:
                raise NotApplicable(f"input {slot} is not a constant")
            return [int(number) for number in value.ravel()]
        found = attributes(node).get(attribute)
        return [int(number) for number in found] if isinstance(found, Sequence) else None

    def held(self, name: str) -> tuple[str, Shape]:
        """The tensor with the elements of `name`, and its shape."""
        return self._held.get(name) or (name, self.shape(name))

    # Writing

    def view(self, name: str, shape: Sequence[int]) -> str:
        """The tensor with the elements of `name` in this shape."""
        wanted = tuple(shape)
        held, now = self.held(name)
        if now == wanted:
            return held
        if len(wanted) > self.most:
            raise NotApplicable(f"more than {self.most} dimensions are left")
        if (name, wanted) not in self._views:
            value = self.facts.value(name) if self.facts.is_constant(name) else None
            self._views[name, wanted] = (
                self.reshaped(held, wanted) if value is None else self.constant(value.reshape(wanted))
            )
        return self._views[name, wanted]

    def full(self, name: str) -> None:
        """Compute a tensor under its own name and in its own shape."""
        held, now = self._held[name]
        if name in self._full:
            return
        self._full[name] = True
        shape = self.shape(name)
        last = self._nodes[-1] if self._nodes else None
        alone = self._holding[held] == 1
        if (
            last is not None
            and list(last.output) == [held]
            and held.startswith(self._prefix)
            and alone
            and now == shape
        ):
            last.output[0] = name
            self._keep(name, name, shape)
        else:
            self.add("Reshape", [held, self.constant(np.array(shape, np.int64))], output=name)

    def hold(self, name: str, held: str, shape: Sequence[int]) -> None:
        """Let `held` have the elements of `name`, which is computed itself if its rank is allowed."""
        self._keep(name, held, tuple(shape))
        if not self.is_high(name):
            self.full(name)

    def _keep(self, name: str, held: str, shape: Shape) -> None:
        if name in self._held:
            self._holding[self._held[name][0]] -= 1
        self._held[name] = (held, shape)
        self._holding[held] += 1

    def reshaped(self, tensor: str, shape: Sequence[int]) -> str:
        """The tensor behind a Reshape."""
        return self.add("Reshape", [tensor, self.constant(np.array(shape, np.int64))])

    def store(self, name: str, array: np.ndarray) -> None:
        """Store a tensor whose value is known under its own name, in place of the node that computes it."""
        if name in self._outputs:
            raise NotApplicable(f"{name} is an output of the graph")
        self._stored.append(numpy_helper.from_array(array, name))

    def constant(self, array: np.ndarray) -> str:
        """A new initializer."""
        name = f"{self._prefix}constant_{len(self._stored)}"
        self._stored.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
        return name

    def add(self, op: str, inputs: Sequence[str], *, output: str = "", **attributes: object) -> str:
        """A new node with one output."""
        name = f"{self._prefix}{op}_{len(self._nodes)}"
        node = helper.make_node(op, inputs, [output or name], name=name, **attributes)  # type: ignore[arg-type]  # onnx checks them
        trace(self._replaced, node)
        self._nodes.append(node)
        return output or name

    def again(self, node: onnx.NodeProto, inputs: Sequence[str], **changed: object) -> list[str]:
        """The node on other inputs and with other attributes; its outputs get new names."""
        new = remedy.node_copy(node)
        new.input[:] = inputs
        names = [f"{self._prefix}held/{name}" if name else "" for name in node.output]  # apart from those of `add`
        new.output[:] = names
        kept = [attribute for attribute in node.attribute if attribute.name not in changed]
        del new.attribute[:]
        new.attribute.extend(kept)
        new.attribute.extend(helper.make_attribute(key, value) for key, value in changed.items())
        self._nodes.append(new)
        return names


#: Adds a node at a lower rank. Raises NotApplicable where the node has no such form.
Form = Callable[[Region, onnx.NodeProto], None]


def attributes(node: onnx.NodeProto) -> Mapping[str, object]:
    """The attributes of a node by name."""
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
