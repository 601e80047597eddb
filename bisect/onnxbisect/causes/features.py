"""Features of a unit that a compiler may object to: op, ranks, dtypes, constants, attributes, sizes."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from math import gcd, prod
from typing import NamedTuple

import numpy as np
import onnx
from onnx import helper

from onnxbisect.causes.terms import Aspect
from onnxbisect.model.external import is_external
from onnxbisect.model.facts import TensorFacts
from onnxbisect.model.scopes import domain_of, qualified, schema_of
from onnxbisect.model.variants import ZERO_POINT_SLOTS

_DTYPES = {number: name.lower() for name, number in onnx.TensorProto.DataType.items()}
#: Most items of a list, and most characters of a string.
_ITEMS = 8
_CHARACTERS = 80


def dtype_name(kind: onnx.TypeProto) -> str | None:
    """`float`, `int64`, or a description of a type that is not a tensor; None for an unknown type."""
    if kind.HasField("tensor_type"):
        return _DTYPES.get(kind.tensor_type.elem_type) if kind.tensor_type.elem_type else None
    name = kind.WhichOneof("value")
    return name.removesuffix("_type") if name else None


def array_text(array: np.ndarray) -> str:
    """`3`, or `[0, 1]`; distinguishes a scalar from a list of one element."""
    flat = ", ".join(map(_scalar, array.reshape(-1).tolist()))
    if array.ndim > 1:
        return f"[{flat}] of shape {list(array.shape)}"
    return f"[{flat}]" if array.ndim else flat


def attribute_text(attribute: onnx.AttributeProto) -> str:
    """The value of an attribute; tensors and graphs only by their type."""
    if attribute.ref_attr_name:
        return f"the function's {attribute.ref_attr_name}"
    kind = onnx.AttributeProto.AttributeType.Name(attribute.type)
    if kind not in ("INT", "INTS", "FLOAT", "FLOATS", "STRING", "STRINGS"):
        return f"a {kind.lower().replace('_', ' ')}"
    value = helper.get_attribute_value(attribute)
    if not kind.endswith("S"):
        return _scalar(value)
    shown = ", ".join(map(_scalar, list(value)[:_ITEMS]))
    return f"[{shown}{', …' if len(value) > _ITEMS else ''}]"


def attribute_numbers(attribute: onnx.AttributeProto) -> list[int]:
    """The integers of an attribute; empty for other types."""
    if attribute.type == onnx.AttributeProto.INT:
        return [attribute.i]
    return list(attribute.ints) if attribute.type == onnx.AttributeProto.INTS else []


def _scalar(value: object) -> str:
    if isinstance(value, bytes):
        return value[: 2 * _CHARACTERS].decode("utf-8", "replace")[:_CHARACTERS]
    return f"{value:.6g}" if isinstance(value, float) else str(value)[:_CHARACTERS]


#: Most elements of a constant whose value is a feature; larger constants are weights.
_SMALL = 8
#: The largest power of two that a dimension is said to be a multiple of: twice what tools align to.
COARSEST = 128


class FeatureSubject(NamedTuple):
    """A property of a unit: the rank of any input or, only for units of one `op`, the rank of its `indices`.

    A tuple because it is used as a key in hundreds of thousands of look-ups for one model.
    """

    aspect: Aspect
    name: str = ""
    op: str = ""


#: The values that a unit has for each subject; None stands for an unknown value.
Row = Mapping[FeatureSubject, frozenset[int | str | None]]

TENSOR, INPUT, OUTPUT = "tensor", "input", "output"
CONSTANT, FOLDED, COMPUTED, OMITTED = "constant", "computed from constants", "computed", "omitted"
DYNAMIC, EMPTY, NEGATIVE = "dynamic", "empty", "negative"


class Features:
    """Reads the features of one model's nodes. `folded` are the tensors that are computed from constants."""

    def __init__(self, facts: TensorFacts, folded: Collection[str] = ()) -> None:
        self._facts, self._folded = facts, folded

    def of(self, node: onnx.NodeProto) -> Row:
        """The node's values for every subject that applies to its op and tensors."""
        found: dict[FeatureSubject, set[int | str | None]] = {}
        for subject, value in self._found(node):
            found.setdefault(subject, set()).add(value)
        return {subject: frozenset(values) for subject, values in found.items()}

    def _found(self, node: onnx.NodeProto) -> Iterator[tuple[FeatureSubject, int | str | None]]:
        op, domain = qualified(node), domain_of(node)
        yield FeatureSubject(Aspect.OP, op=op), op
        if domain:
            yield FeatureSubject(Aspect.DOMAIN), domain
        yield FeatureSubject(Aspect.INPUTS, op=op), len(node.input)
        yield FeatureSubject(Aspect.OUTPUTS, op=op), sum(map(bool, node.output))
        for attribute in node.attribute:
            yield FeatureSubject(Aspect.ATTRIBUTE, attribute.name, op), attribute_text(attribute)
            if numbers := attribute_numbers(attribute):
                yield FeatureSubject(Aspect.LARGEST, attribute.name, op), max(numbers)
        takes, makes = _formal(node.op_type, self._facts.opsets.get(domain, 0), domain)
        for slot, tensor in enumerate(node.input):
            name, floats = _slot(takes, slot, INPUT)
            yield from self._anywhere(tensor, INPUT, floats=floats)
            yield from self._input(tensor, name, op, telling=(domain, node.op_type) not in ZERO_POINT_SLOTS)
            if not self._facts.is_constant(tensor):
                yield from self._alignment(tensor, name, op)
        for name in {_slot(takes, slot, INPUT)[0] for slot in range(len(node.input), len(takes))}:
            yield FeatureSubject(Aspect.SOURCE, name, op), OMITTED
        for slot, tensor in enumerate(node.output):
            name, floats = _slot(makes, slot, OUTPUT)
            yield from self._anywhere(tensor, OUTPUT, floats=floats)
            yield from self._alignment(tensor, name, op)

    def _anywhere(self, tensor: str, side: str, *, floats: bool) -> Iterator[tuple[FeatureSubject, int | str | None]]:
        """Features that units of different ops can share.

        The dtype of a slot that accepts no floats, such as indices, adds nothing to the op and is left out.
        """
        if not tensor:
            return
        shape = self._facts.shape(tensor)
        for place in (TENSOR, side):
            yield FeatureSubject(Aspect.RANK, place), None if shape is None else len(shape)
            if floats:
                yield FeatureSubject(Aspect.DTYPE, place), self._dtype(tensor)
        if shape is None or None in shape:
            yield FeatureSubject(Aspect.SHAPE, TENSOR), DYNAMIC
        elif 0 in shape:
            yield FeatureSubject(Aspect.SHAPE, TENSOR), EMPTY

    def _input(
        self, tensor: str, name: str, op: str, *, telling: bool
    ) -> Iterator[tuple[FeatureSubject, int | str | None]]:
        """Features that only units of the same op can share."""
        subject = FeatureSubject(Aspect.SOURCE, name, op)
        if not tensor:
            yield subject, OMITTED
            return
        constant = self._facts.is_constant(tensor)
        yield subject, FOLDED if tensor in self._folded else CONSTANT if constant else COMPUTED
        shape = self._facts.shape(tensor)
        yield FeatureSubject(Aspect.RANK, name, op), None if shape is None else len(shape)
        yield FeatureSubject(Aspect.DTYPE, name, op), self._dtype(tensor)
        sizes = None if shape is None or None in shape else [size or 0 for size in shape]
        yield FeatureSubject(Aspect.ELEMENTS, name, op), None if sizes is None else prod(sizes)
        if sizes != []:
            yield FeatureSubject(Aspect.DIMENSION, name, op), None if sizes is None else max(sizes)
        held = self._facts.stored(tensor)
        in_other_file = isinstance(held, onnx.TensorProto) and is_external(held)  # which may be missing
        if telling and constant and not in_other_file and sizes is not None and prod(sizes) <= _SMALL:
            array = self._facts.value(tensor)
            # As in `model.variants`: values of small weights and biases do not distinguish units.
            if array is not None and (array.dtype.kind in "iub" or array.size == 1):
                yield FeatureSubject(Aspect.VALUE, name, op), array_text(array)
                if array.dtype.kind == "i" and np.any(array < 0):
                    yield FeatureSubject(Aspect.SIGN, name, op), NEGATIVE

    def _alignment(self, tensor: str, name: str, op: str) -> Iterator[tuple[FeatureSubject, int | None]]:
        """What the channels and the last dimension are multiples of: powers of two."""
        shape = self._facts.shape(tensor)
        if not tensor or (shape is not None and len(shape) < 2):
            return
        for axis in (1, -1) if shape is None or len(shape) > 2 else (1,):
            size = None if shape is None else shape[axis]
            subject = FeatureSubject(Aspect.ALIGNMENT, f"dimension {axis} of {name}", op)
            yield subject, gcd(size, COARSEST) if size else None

    def _dtype(self, tensor: str) -> str | None:
        kind = self._facts.type(tensor)
        return None if kind is None else dtype_name(kind)


#: For each formal parameter: its name, whether it accepts floats, whether it is variadic.
_Formals = tuple[tuple[str, bool, bool], ...]


@cache
def _formal(op: str, version: int, domain: str) -> tuple[_Formals, _Formals]:
    """The formal inputs and outputs of an op; empty where it has no schema."""
    schema = schema_of(op, version, domain)
    return ((), ()) if schema is None else (_parameters(schema.inputs), _parameters(schema.outputs))


def _parameters(formals: Iterable[onnx.defs.OpSchema.FormalParameter]) -> _Formals:
    variadic = onnx.defs.OpSchema.FormalParameterOption.Variadic
    return tuple((formal.name, "tensor(float)" in formal.types, formal.option == variadic) for formal in formals)


def _slot(formals: _Formals, slot: int, side: str) -> tuple[str, bool]:
    """Name of a slot, and whether it accepts floats, which is unknown without a schema."""
    if slot < len(formals):
        return formals[slot][:2]
    if formals and formals[-1][2]:
        return formals[-1][:2]
    return f"{side} {slot}", False
