"""Checks replacements in the type in which a target stores float32 tensors: equal in float32, they may overflow there.

onnxruntime computes each node in float32, and its outputs are rounded to that type, as an NPU stores them. Nothing is
rounded inside subgraphs and functions. Stored numbers beyond the type's range become its largest number, as converters
write them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxbisect.cut.rename import rename_in_node
from onnxbisect.model.external import array_of
from onnxbisect.model.facts import TensorFacts
from onnxbisect.model.runnable import Sample
from onnxbisect.model.scopes import reads
from onnxbisect.model.session import rounding
from onnxbisect.proof import OutputDifference, Tolerance, difference
from onnxbisect.remedies.candidate import Candidate

#: The first IR version with overloads of functions; initializers need not be inputs.
_MIN_IR = 10
_CAST_HAS_BFLOAT16 = 13
#: Allowed difference in epsilons of the largest magnitude, so a replacement loses three bits at most.
_EPSILONS = 8


@dataclass(frozen=True, kw_only=True)
class LowPrecision:
    """`dtype` is ONNX's FLOAT16 or BFLOAT16."""

    dtype: int

    @property
    def name(self) -> str:
        """The name of the type, such as `float16`."""
        return TensorProto.DataType.Name(self.dtype).lower()

    @property
    def epsilon(self) -> float:
        """The gap between 1 and the next larger number."""
        return 2.0**-10 if self.dtype == TensorProto.FLOAT16 else 2.0**-7

    def rounded(self, array: np.ndarray) -> np.ndarray:
        """Rounded to the type, as float32; arrays of other types unchanged."""
        if array.dtype != np.float32:
            return array
        with np.errstate(over="ignore"):
            return array.astype(helper.tensor_dtype_to_np_dtype(self.dtype)).astype(np.float32)

    def stored(self, array: np.ndarray) -> np.ndarray:
        """A constant as the target stores it."""
        if array.dtype != np.float32 or self.dtype != TensorProto.FLOAT16:
            return self.rounded(array)
        largest = np.finfo(np.float16).max
        return self.rounded(np.where(np.isfinite(array), np.clip(array, -largest, largest), array))


class InLowPrecision:
    """Replacements and the nodes they replace, as one model (`proto`) that reads the original's tensors.

    `inputs` must be fed, `outputs` are compared.
    """

    def __init__(self, chosen: Sequence[Candidate], facts: TensorFacts, low: LowPrecision) -> None:
        self._chosen, self._facts, self._low = chosen, facts, low
        self.proto = onnx.ModelProto(ir_version=max(facts.ir_version, _MIN_IR), functions=facts.functions)
        opsets = {**facts.opsets, **{name: it for one in chosen for name, it in one.replacement.opsets.items()}}
        self.proto.opset_import.extend(helper.make_opsetid(name, version) for name, version in opsets.items())
        for candidate in chosen:
            maker = facts.maker(candidate.outputs[0])
            assert maker is not None  # noqa: S101 - it is to be replaced
            self._add([*candidate.replacement.removes, maker], (), _before(candidate))
            self._add(candidate.replacement.nodes, candidate.replacement.initializers, _after(candidate))
        # The original's tensors that the nodes read: constants are stored, and others become inputs.
        graph = self.proto.graph
        own = {name for node in graph.node for name in node.output} | {it.name for it in graph.initializer}
        self.inputs: list[str] = []
        for name in dict.fromkeys(name for node in graph.node for name in reads(node) if name not in own):
            value = self._facts.value(name)
            if value is not None and value.dtype != np.object_:
                graph.initializer.append(numpy_helper.from_array(self._low.stored(value), name))
            else:
                graph.input.append(onnx.ValueInfoProto(name=name, type=self._facts.type(name)))
                self.inputs.append(name)
        # Round the float32 outputs of all nodes.
        graph = onnx.shape_inference.infer_shapes(self.proto).graph
        floats = {it.name for it in graph.value_info if it.type.tensor_type.elem_type == TensorProto.FLOAT}
        nodes = []
        for node in self.proto.graph.node:
            nodes.append(node)
            for slot, name in enumerate(node.output):
                if name in floats:
                    node.output[slot] = f"{name}/exact"
                    nodes += self._rounding(f"{name}/exact", name)
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del self.proto.graph.node[:]
        self.proto.graph.node.extend(copies)
        self.outputs = [scope(it) + name for it in chosen for scope in (_before, _after) for name in it.outputs]
        self.proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in self.outputs)

    def feeds(self, sample: Sample) -> Sample:
        """The inputs in low precision; `sample` has the original's tensors."""
        return {name: self._low.rounded(sample[name]) for name in self.inputs}

    def differences(self, values: Sample) -> Iterator[tuple[Candidate, OutputDifference]]:
        """The differences at each replacement's outputs.

        Elements where the original is not finite in this type are not compared: the model fails there anyway.
        """
        for candidate in self._chosen:
            # the rules' own bounds, and a few epsilons for what is rounded in between
            absolute = sum(rule.bound.absolute for rule in candidate.rules)
            allowed = Tolerance(absolute=absolute, relative=_EPSILONS * self._low.epsilon)
            for name in candidate.outputs:
                old, new = values[_before(candidate) + name], values[_after(candidate) + name]
                if old.dtype == np.float32 and old.shape == new.shape:
                    old, new = (np.where(np.isfinite(old), each, 0) for each in (old, new))
                yield candidate, difference(name, old, new, allowed)

    def _add(self, nodes: Sequence[onnx.NodeProto], initializers: Sequence[onnx.TensorProto], scope: str) -> None:
        """Add nodes; the tensors they produce get names with this scope."""
        own = {name for node in nodes for name in node.output if name} | {tensor.name for tensor in initializers}
        names = {name: scope + name for name in own}
        for tensor in initializers:
            array = self._low.stored(array_of(tensor, self._facts.folder))
            self.proto.graph.initializer.append(numpy_helper.from_array(array, names[tensor.name]))
        for node in nodes:
            new = self.proto.graph.node.add()
            new.CopyFrom(node)
            new.name = scope + node.name
            rename_in_node(new, names)

    def _rounding(self, exact: str, name: str) -> list[onnx.NodeProto]:
        """Nodes that compute a tensor in low precision from the exact one."""
        if self._low.dtype == TensorProto.FLOAT16 or self._facts.opsets.get("", 0) >= _CAST_HAS_BFLOAT16:
            return [*rounding(exact, f"{name}/low", name, self._low.dtype)]
        # Veltkamp splitting: adding and subtracting x * 2^16 leaves the upper bits of x
        factor, large, rest = (f"{name}/{part}" for part in ("factor", "large", "rest"))
        self.proto.graph.initializer.append(numpy_helper.from_array(np.array(2**16 + 1, np.float32), factor))
        return [
            helper.make_node("Mul", [exact, factor], [large]),
            helper.make_node("Sub", [large, exact], [rest]),
            helper.make_node("Sub", [large, rest], [name]),
        ]


def _before(candidate: Candidate) -> str:
    return f"{candidate.node}/before/"


def _after(candidate: Candidate) -> str:
    return f"{candidate.node}/after/"
