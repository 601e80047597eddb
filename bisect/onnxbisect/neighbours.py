"""Neighbours of a culprit: its own small model with one thing changed, to find out which property a compiler rejects.

They compute something else, so none of them is a repair. One that compiles shows how the model may be written.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxbisect.causes.condition import ABSENT, phrase
from onnxbisect.causes.features import CONSTANT, Features, FeatureSubject, Row, attribute_text
from onnxbisect.causes.terms import Aspect, Relation
from onnxbisect.file_remedies import File
from onnxbisect.file_remedies.lowering import FORMS, OLDEST, lower_opset
from onnxbisect.file_remedies.remedy import copied, node_copy, set_nodes
from onnxbisect.model.external import constant_tensor
from onnxbisect.model.facts import TensorFacts, with_rank
from onnxbisect.model.model import Model
from onnxbisect.model.scopes import domain_of, is_constant, qualified, schema_of
from onnxbisect.model.session import Clock, Session
from onnxbisect.preflight import ToolLimits
from onnxbisect.proof import random_feeds
from onnxbisect.rewrites import NotApplicable

#: Element types to try in place of each one, where the op has them.
_DTYPES: Mapping[int, tuple[int, ...]] = {
    TensorProto.FLOAT: (TensorProto.FLOAT16,),
    TensorProto.FLOAT16: (TensorProto.FLOAT,),
    TensorProto.BFLOAT16: (TensorProto.FLOAT,),
    TensorProto.DOUBLE: (TensorProto.FLOAT,),
    TensorProto.INT64: (TensorProto.INT32, TensorProto.FLOAT),
    TensorProto.INT32: (TensorProto.FLOAT,),
}
#: A rank that nearly every compiler accepts.
_USUAL_RANK = 4
_COMMUTATIVE = ("Add", "Mul", "Max", "Min", "And", "Or", "Xor", "Equal")
#: Ops that accept a list of one element in place of a scalar.
_TAKE_LISTS = (*_COMMUTATIVE, "Sub", "Div", "Pow", "Mod", "PRelu", "Where", "Greater", "Less", "Gather")

#: An element type and static dimensions.
_Form = tuple[int, Sequence[int]]


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """A changed model. `text` describes it, as in `Gather with indices of rank 1`; `row` holds its features."""

    text: str
    proto: onnx.ModelProto
    row: Row


def neighbours(model: Model, culprit: Row) -> Iterator[Neighbour]:
    """Yield the valid neighbours of the only op in `model`, most informative first; the file must hold all data.

    `culprit` holds the features that the op has in the original model. Yields nothing for an op that ONNX does not
    define and for a Constant.
    """
    # The model with all stored tensors as initializers.
    start = copied(model.proto)
    kept = []
    for one in start.graph.node:
        held = constant_tensor(one) if is_constant(one) else None
        if isinstance(held, TensorProto):
            start.graph.initializer.append(held)
            start.graph.initializer[-1].name = one.output[0]
        else:
            kept.append(one)
    set_nodes(start.graph, kept)
    if len(start.graph.node) != 1:
        return
    node = start.graph.node[0]
    versions = {entry.domain: entry.version for entry in start.opset_import}
    schema = schema_of(node.op_type, versions.get(node.domain, 0), domain_of(node))
    if schema is not None and schema.inputs:
        yield from _Neighbours(start, schema, culprit, File.of(model)).found()


class _Neighbours:
    """Makes the neighbours of a model with one node that has the features `culprit`; `file` is the model as read."""

    def __init__(self, start: onnx.ModelProto, schema: onnx.defs.OpSchema, culprit: Row, file: File) -> None:
        self._start, self._schema, self._culprit, self._file = start, schema, culprit, file
        self._node = start.graph.node[0]
        self._op = qualified(self._node)
        self._facts = TensorFacts.inferred(start)
        self._before = Features(self._facts).of(self._node)
        self._constants = {tensor.name for tensor in start.graph.initializer}
        self._runs = _runs(start)

    def found(self) -> Iterator[Neighbour]:
        """Yield all valid neighbours, each made only when it is needed."""
        for slot in range(len(self._node.input)) if self._op in _TAKE_LISTS else ():
            for name, (dtype, dims) in self._forms([slot]).items():
                if not dims:
                    yield from self._with(self._named(Aspect.RANK, slot), 1, tensors={name: (dtype, (1,))})
        yield from self._usual_rank()
        yield from self._usual_attributes()
        yield from self._other_dtypes()
        # Move a constant operand to the other side.
        constant = [name in self._constants for name in self._node.input]
        if self._op in _COMMUTATIVE and sorted(constant) == [False, True]:
            node = node_copy(self._node)
            node.input[:] = list(reversed(node.input))
            yield from self._with(self._named(Aspect.SOURCE, 1 - constant.index(True)), CONSTANT, node=node)
        yield from self._older_form()

    def _usual_attributes(self) -> Iterator[Neighbour]:
        """Set each attribute to its default."""
        for attribute in self._node.attribute:
            formal = self._schema.attributes.get(attribute.name)
            if formal is None or formal.required:
                continue
            node = node_copy(self._node)
            usual = [formal.default_value] if formal.default_value.type else []
            kept = [it for it in node.attribute if it.name != attribute.name]
            del node.attribute[:]
            node.attribute.extend([*kept, *usual])
            value = attribute_text(usual[0]) if usual else ABSENT
            yield from self._with(FeatureSubject(Aspect.ATTRIBUTE, attribute.name, self._op), value, node=node)

    def _other_dtypes(self) -> Iterator[Neighbour]:
        """Change the dtype of all inputs that must have the same type."""
        for slots in self._alike().values():
            forms, allowed = self._forms(slots), self._formal(slots[0]).types
            dtypes = {dtype for dtype, _ in forms.values()}
            for dtype in _DTYPES.get(dtypes.pop(), ()) if len(dtypes) == 1 else ():
                name = TensorProto.DataType.Name(dtype).lower()
                if f"tensor({name})" in allowed:
                    tensors = {tensor: (dtype, dims) for tensor, (_, dims) in forms.items()}
                    yield from self._with(self._named(Aspect.DTYPE, slots[0]), name, tensors=tensors)

    def _usual_rank(self) -> Iterator[Neighbour]:
        """Give the first input, and all inputs of its type and rank, the rank that most compilers accept."""
        slots = next(iter(self._alike().values()), [])
        forms = self._forms(slots)
        rank = len(next(iter(forms.values()), (0, ()))[1])
        if rank in (0, _USUAL_RANK):
            return
        tensors = {
            name: (dtype, with_rank(dims, _USUAL_RANK)) for name, (dtype, dims) in forms.items() if len(dims) == rank
        }
        node = node_copy(self._node)
        for attribute in node.attribute:
            if attribute.name == "axis" and attribute.i >= 0:
                attribute.i += _USUAL_RANK - rank
            elif attribute.name == "perm" and rank > _USUAL_RANK:
                attribute.ints[:] = [it - rank + _USUAL_RANK for it in attribute.ints if it >= rank - _USUAL_RANK]
        yield from self._with(self._named(Aspect.RANK, slots[0]), _USUAL_RANK, tensors=tensors, node=node)

    def _older_form(self) -> Iterator[Neighbour]:
        """Write the node as in an older opset, for instance with axes as an attribute."""
        form = FORMS.get(self._node.op_type)
        if form is None or domain_of(self._node) or not OLDEST < form.until <= self._facts.opsets.get("", 0):
            return
        try:
            change = lower_opset.apply(self._file, ToolLimits(tool="", newest_opset=form.until - 1))
        except NotApplicable:
            return
        yield from self._valid(f"{self._op} as operator set {form.until - 1} has it", change.proto)

    def _with(
        self,
        subject: FeatureSubject,
        value: int | str,
        *,
        tensors: Mapping[str, _Form] | None = None,
        node: onnx.NodeProto | None = None,
    ) -> Iterator[Neighbour]:
        """The neighbour with changed tensors or a changed node, in which `subject` has `value`."""
        proto = copied(self._start)
        graph = proto.graph
        if node is not None:
            graph.node[0].CopyFrom(node)
        for place in graph.input:
            if tensors and place.name in tensors:
                place.CopyFrom(helper.make_tensor_value_info(place.name, *tensors[place.name]))
        for tensor in graph.initializer:
            if tensors and tensor.name in tensors:
                dtype, dims = tensors[tensor.name]
                with np.errstate(over="ignore"):  # of a mask's -3.4e38 float16 makes minus infinity
                    array = numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(dtype)).reshape(dims)
                tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
        yield from self._valid(f"{self._op} with {phrase(subject, Relation.IS, (value,))}", proto)

    def _valid(self, text: str, proto: onnx.ModelProto) -> Iterator[Neighbour]:
        """Yield the neighbour if it differs in a feature, is a valid model, and runs where the culprit does."""
        del proto.graph.value_info[:]
        for output in proto.graph.output:
            output.ClearField("type")
        try:
            proto = onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)
            onnx.checker.check_model(proto)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
            return
        (node, *more) = [it for it in proto.graph.node if not is_constant(it)]
        if more or (self._runs and not _runs(proto)):
            return
        after = Features(TensorFacts.inferred(proto)).of(node)
        if after != self._before:
            kept = {it: values for it, values in self._culprit.items() if it in after or it not in self._before}
            changed = {it: values for it, values in after.items() if values != self._before.get(it)}
            yield Neighbour(text=text, proto=proto, row={**kept, **changed})

    def _alike(self) -> dict[str, list[int]]:
        """Input slots that must have the same type, grouped by the schema's name for that type."""
        groups: dict[str, list[int]] = {}
        for slot, name in enumerate(self._node.input):
            if name:
                groups.setdefault(self._formal(slot).type_str, []).append(slot)
        return groups

    def _formal(self, slot: int) -> onnx.defs.OpSchema.FormalParameter:
        return self._schema.inputs[min(slot, len(self._schema.inputs) - 1)]

    def _named(self, aspect: Aspect, slot: int) -> FeatureSubject:
        return FeatureSubject(aspect, self._formal(slot).name, self._op)

    def _forms(self, slots: Sequence[int]) -> dict[str, _Form]:
        """The forms of those inputs whose dtype and dimensions are all known."""
        found: dict[str, _Form] = {}
        for name in (self._node.input[slot] for slot in slots):
            dtype, shape = self._facts.dtype(name), self._facts.shape(name)
            if dtype is not None and shape is not None and None not in shape:
                found[name] = (dtype, tuple(dim or 0 for dim in shape))
        return found


def _runs(proto: onnx.ModelProto) -> bool:
    """Whether onnxruntime runs it on random inputs."""
    try:
        session = Session(proto, folder=Path())
        session.run(list(session.outputs), next(random_feeds(proto.graph.input, 1)), Clock(inf))
    except Exception:  # onnxruntime's exceptions share no base class but this
        return False
    return True
