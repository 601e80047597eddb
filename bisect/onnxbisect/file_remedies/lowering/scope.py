"""What is known about the tensors visible to nodes of a graph, a subgraph or a function."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from onnxbisect.model.scopes import captures
from onnxbisect.rewrites import Facts, Rewrite

#: Most elements of an outer constant that is visible to nodes in a subgraph.
_SMALL = 1024
#: An IR version in which a rule's constants are nodes, and one in which they are initializers.
_CONSTANTS_ARE_NODES, _CONSTANTS_ARE_INITIALIZERS = 3, 10


@dataclass(frozen=True, kw_only=True, eq=False)
class Scope:
    """`proto` stores the constants, `types` and `known` are as in `File`. `to` is the older operator set."""

    proto: onnx.ModelProto
    types: Mapping[str, onnx.TypeProto]
    known: Mapping[str, np.ndarray]
    folder: Path
    to: int

    @cached_property
    def facts(self) -> Facts:
        """For rules written for the operator set that the nodes have."""
        return Facts(self.proto, self.types, self.known, self.folder)

    @cached_property
    def older(self) -> Facts:
        """For nodes written for the older operator set."""
        facts = Facts(self.proto, self.types, self.known, self.folder)
        facts.opsets = {**facts.opsets, "": self.to}
        return facts

    def beside(self, rewrite: Rewrite) -> "Scope":
        """The scope with the tensors that a rule added."""
        made = {tensor.name: numpy_helper.to_array(tensor) for tensor in rewrite.replacement.initializers}
        return replace(self, types={**self.types, **rewrite.types}, known={**self.known, **made})

    def of_body(self, holder: onnx.NodeProto, body: onnx.GraphProto) -> "Scope":
        """The scope of a subgraph of a node in this one, with small constants and types from outside."""
        alone = onnx.ModelProto(ir_version=_CONSTANTS_ARE_INITIALIZERS, opset_import=self.proto.opset_import)
        alone.graph.CopyFrom(body)
        outer = captures(holder)
        types = {name: kind for name in outer if (kind := self.facts.type(name)) is not None}
        types |= {value.name: value.type for value in (*body.input, *body.output, *body.value_info)}
        values = {name: self.facts.value(name) for name in outer if self._is_small(name)}
        known = {name: value for name, value in values.items() if value is not None}
        return replace(self, proto=alone, types=types, known=known)

    def of_function(self, function: onnx.FunctionProto) -> "Scope":
        """The scope of a function, which sees nothing from outside."""
        alone = onnx.ModelProto(ir_version=_CONSTANTS_ARE_NODES, opset_import=self.proto.opset_import)
        alone.graph.node.extend(function.node)
        return replace(self, proto=alone, types={value.name: value.type for value in function.value_info}, known={})

    def _is_small(self, name: str) -> bool:
        shape = self.facts.shape(name) if self.facts.is_constant(name) else None
        return shape is not None and prod(_SMALL + 1 if dim is None else dim for dim in shape) <= _SMALL
