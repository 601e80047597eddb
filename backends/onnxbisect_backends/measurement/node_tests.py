"""ONNX's own tests of single nodes as models to compile: one small model for each use of an op.

The tests feed everything through graph inputs. Real models have shapes, axes, pads and most indices as constants, and
compilers refuse them as inputs; so a test's values are written into the model, in up to five forms.

Each comes once more as before its op's inputs or attributes last changed: many compilers ignore the opset and read the
axes of a ReduceMean either as an attribute, as until opset 17, or as an input. Their answer on the other form says
little about the op.
"""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, helper, numpy_helper
from onnx.defs import OpSchema

from onnxbisect.model.scopes import qualified
from onnxbisect.model.shapeops import SEMANTIC_SLOTS, SHAPE_SLOTS

#: The oldest opset to write.
_OLDEST_OPSET = 9

#: Types of attributes that later became inputs.
_NUMBERS = {
    OpSchema.AttrType.FLOAT: AttributeProto.FLOAT,
    OpSchema.AttrType.FLOATS: AttributeProto.FLOATS,
    OpSchema.AttrType.INT: AttributeProto.INT,
    OpSchema.AttrType.INTS: AttributeProto.INTS,
}


def downgraded(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """The model of one node in the newest opset in which its op had other inputs or attributes than now.

    Constant inputs become attributes if they were. None if there is no such opset, the node is of another domain, or it
    has no form there.
    """
    node = model.graph.node[0]
    opset = next((entry.version for entry in model.opset_import if entry.domain == ""), 0)
    if node.domain or not onnx.defs.has(node.op_type, opset):
        return None
    now = onnx.defs.get_schema(node.op_type, opset)
    history = [it for it in _history(now.name, "") if it.since_version <= now.since_version]
    for later, then in pairwise(reversed(history)):
        if _signature(then) != _signature(now):
            until = later.since_version - 1
            return _written(model, now, then, until) if until >= _OLDEST_OPSET else None
    return None


def _signature(schema: OpSchema) -> tuple[list[str], list[str]]:
    return [it.name for it in schema.inputs], sorted(schema.attributes)


def _written(model: onnx.ModelProto, now: OpSchema, then: OpSchema, opset: int) -> onnx.ModelProto | None:
    older = onnx.ModelProto()
    older.CopyFrom(model)
    for entry in older.opset_import:
        if entry.domain == "":
            entry.version = opset
    graph, node = older.graph, older.graph.node[0]
    weights = {tensor.name: tensor for tensor in graph.initializer}
    moved = {name for name, it in then.attributes.items() if it.type in _NUMBERS} - {it.name for it in then.inputs}
    inputs = []
    for formal, name in zip(now.inputs, node.input, strict=False):
        if formal.name in moved and name in weights:
            value = weights[name]
            dtype = _NUMBERS[then.attributes[formal.name].type]
            number = float if dtype in (AttributeProto.FLOAT, AttributeProto.FLOATS) else int
            numbers = [number(it) for it in numpy_helper.to_array(value).ravel()]
            single = dtype in (AttributeProto.FLOAT, AttributeProto.INT) and len(numbers) == 1
            node.attribute.append(
                helper.make_attribute(formal.name, numbers[0] if single else numbers, attr_type=dtype)
            )
            graph.initializer.remove(weights[name])
        else:
            inputs.append(name)
    inputs += node.input[len(now.inputs) :]
    while inputs and not inputs[-1]:
        inputs.pop()
    node.input[:] = inputs
    for attribute in [it for it in node.attribute if it.name not in then.attributes]:
        default = now.attributes[attribute.name].default_value
        if helper.get_attribute_value(attribute) == (helper.get_attribute_value(default) if default.type else None):
            node.attribute.remove(attribute)
    try:
        onnx.checker.check_model(older, full_check=True)
    except Exception:  # its own errors, protobuf's, plain RuntimeErrors
        return None
    return older


#: The opset that exporters write today; newer tests are compiled at it if it has their node.
USUAL_OPSET = 20

#: The name of the node in every model.
NODE = "the_node"

#: Attribute values with another name before an opset; onnx.checker does not check them.
_FORMER_NAMES = {("GridSample", "mode"): (20, {b"linear": b"bilinear", b"cubic": b"bicubic"})}

#: Older IR versions list initializers among the inputs, which confuses some tools.
_OLDEST_IR = 4


class NodeTestForm(StrEnum):
    """Which inputs of a test are constant, how many of its outputs are used, and in which opset."""

    #: The inputs that control the computation: shapes, axes, pads, bounds, indices.
    USUAL = "shapes and indices constant"
    #: All but the first, so weights too.
    WEIGHTS = "all but the first input constant"
    #: None, as in ONNX's test.
    COMPUTED = "every input computed"
    #: As WEIGHTS, with the first output only: all tests of some ops use optional outputs, or omit the first one (GRU),
    #: which models seldom do.
    ONE_OUTPUT = "one output"
    #: As USUAL, in the opset before the op's inputs or attributes last changed.
    OLDER = "as an older opset has it"


@dataclass(frozen=True, kw_only=True)
class NodeTest:
    """One test: a model of one node, and values for its inputs. `op` is bare in the default domain, else `domain::Op`.

    `place` numbers the tests of one op from 0.
    """

    name: str
    op: str
    model: onnx.ModelProto
    values: Sequence[Any]
    place: int = 0

    def question(self, form: NodeTestForm, *, opset: int, newest_opset: int | None = None) -> onnx.ModelProto | None:
        """The test as a model at `opset` or below, or at the next one up to `newest_opset` that has the node.

        None if there is no such opset, if a value cannot be a constant, or if an earlier member of `NodeTestForm` gives
        the same.
        """
        if form is NodeTestForm.OLDER:
            usual = self.question(NodeTestForm.USUAL, opset=opset, newest_opset=newest_opset)
            return None if usual is None else downgraded(usual)
        earlier = list(NodeTestForm)[: list(NodeTestForm).index(form)]
        if self._shape(form) in map(self._shape, earlier):
            return None
        opsets = (entry.version for entry in self.model.opset_import if entry.domain in ("", "ai.onnx"))
        own = max(opsets, default=USUAL_OPSET)
        newest = own if newest_opset is None else min(own, newest_opset)
        node = self.model.graph.node[0]
        versions = (it.since_version for it in _history(node.op_type, node.domain))
        later = [version for version in versions if opset < version <= newest]
        written = (self._written(form, version) for version in (min(own, opset), *later))
        return next((model for model in written if model is not None), None)

    def _shape(self, form: NodeTestForm) -> tuple[frozenset[int], bool]:
        """The form's effect on this test; forms with equal results are the same model.

        Positions of the constant inputs, and whether an output is left unused.
        """
        node = self.model.graph.node[0]
        given = [slot for slot, name in enumerate(node.input) if name]
        constant: Iterable[int] = ()
        match form:
            case NodeTestForm.USUAL | NodeTestForm.OLDER:
                slots = {*SHAPE_SLOTS.get(node.op_type, ()), *SEMANTIC_SLOTS.get(node.op_type, ())}
                constant = (place for place, slot in enumerate(given) if slot in slots)
            case NodeTestForm.WEIGHTS | NodeTestForm.ONE_OUTPUT:
                constant = range(1, len(given))
        first, *others = node.output
        return frozenset(constant), form is NodeTestForm.ONE_OUTPUT and (not first or any(others))

    def _written(self, form: NodeTestForm, opset: int) -> onnx.ModelProto | None:
        """The model in a form; None if onnx.checker refuses it."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        graph = model.graph
        for entry in model.opset_import:
            if entry.domain in ("", "ai.onnx"):
                entry.version = opset
        if not any(entry.domain in ("", "ai.onnx") for entry in model.opset_import):
            model.opset_import.add(domain="", version=opset)  # as in every real model
        model.ir_version = max(_OLDEST_IR, helper.find_min_ir_version_for(list(model.opset_import), True))
        inputs = list(graph.input)
        constant, one_output = self._shape(form)
        for place in constant:
            value = self.values[place]
            if not isinstance(value, np.ndarray | np.generic | int | float):
                return None
            tensor = numpy_helper.from_array(np.asarray(value), inputs[place].name)
            if tensor.data_type != inputs[place].type.tensor_type.elem_type:
                return None
            graph.initializer.append(tensor)
        kept = [value for place, value in enumerate(inputs) if place not in constant]
        del graph.input[:]
        graph.input.extend(kept)
        graph.node[0].name = NODE
        for attribute in graph.node[0].attribute:
            until, former = _FORMER_NAMES.get((graph.node[0].op_type, attribute.name), (0, {}))
            if opset < until and attribute.s in former:
                attribute.s = former[attribute.s]
        try:
            if one_output:
                node, outputs = model.graph.node[0], model.graph.output
                del outputs[1:], node.output[1:]
                if not node.output[0]:
                    node.output[0] = outputs[0].name
                    outputs[0].type.tensor_type.ClearField("shape")
                    model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
            onnx.checker.check_model(model, full_check=True)
        except Exception:  # its own errors, protobuf's, plain RuntimeErrors
            return None
        return model


@lru_cache(maxsize=1)
def node_tests() -> tuple[NodeTest, ...]:
    """All tests of single nodes, the first one of every op before the second ones; building them takes seconds.

    Tests of functions with several nodes are left out: their ops have tests of their own.
    """
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deliberate overflows in the tests
        cases: list[Any] = collect_testcases(None)
    tests: list[NodeTest] = []
    counts: dict[str, int] = {}
    for case in cases:
        nodes = case.model.graph.node
        inputs, _ = case.data_sets[0]
        if len(nodes) != 1 or "_expanded" in case.name or len(inputs) != len(case.model.graph.input):
            continue
        op = qualified(nodes[0])
        place = counts.get(op, 0)
        counts[op] = place + 1
        tests.append(NodeTest(name=case.name, op=op, model=case.model, values=tuple(inputs), place=place))
    return tuple(sorted(tests, key=lambda test: (test.place, test.op)))


@lru_cache(maxsize=1024)
def _history(op: str, domain: str) -> tuple[OpSchema, ...]:
    """An op in each opset that changed it, oldest first."""
    schemas = (it for it in onnx.defs.get_all_schemas_with_history() if (it.name, it.domain) == (op, domain))
    return tuple(sorted(schemas, key=lambda it: it.since_version))
