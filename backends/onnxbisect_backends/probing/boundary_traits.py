"""What a compiler may mind of a file whatever its nodes are, and small models that ask for each: what stands at its
boundary, and the versions in which it is written.

A trait is refused at the boundary if a small model with it fails, and the same model passes where the trait stands
between two nodes or in the form that a probe would get (`onnxbisect.cut.neutral_boundary`). If both fail, the compiler
minds something else, and nothing is said of the boundary. A version is refused if a small model fails in it, and passes
in an old one.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import set_external_data

from onnxbisect.cut.apply_format import apply_format, safe_name
from onnxbisect.cut.required_producers import is_empty, runtime_dtype
from onnxbisect.cut.wiring import read_wiring
from onnxbisect.model.external import external_tensors
from onnxbisect.model.model import Model
from onnxbisect.probe_format import ProbeFormat

#: Versions that every current compiler reads.
_IR, _OPSET = 8, 13

#: Bytes of a name that hardly any compiler minds, and to which names are shortened where longer ones are refused; and
#: where names of so many are refused, too.
PLAIN_NAME, SHORT_NAME = 60, 24

#: The ranks that every compiler takes at a boundary.
LOWEST_PLAIN_RANK, HIGHEST_PLAIN_RANK = 2, 4
#: The highest rank that is asked for.
_HIGHEST_RANK = 8
#: How many inputs, and outputs, are asked for.
_COUNTS = (8, 20)
#: What a small model computes with, and the same turned: a Transpose keeps optimisers from removing pairs of Cast. One
#: that moves dimensions of 1 only would be removed itself.
_SHAPE, _TURNED = (2, 4), (4, 2)
#: The dtypes that are asked for, but for float, which every compiler takes.
DTYPES = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "bfloat16", "double"),
)


class TraitKind(StrEnum):
    """What a compiler may mind of a graph input or output."""

    RANK = "rank"
    DTYPE = "dtype"
    NAME = "name"
    CHARACTERS = "characters"
    EMPTY = "empty"
    COUNT = "count"
    EXTERNAL = "external"
    IR = "ir"
    OPSET = "opset"


#: The versions of small models, by what a trait may name instead.
_PLAIN_VERSIONS = {TraitKind.IR: _IR, TraitKind.OPSET: _OPSET}


@dataclass(frozen=True, kw_only=True, order=True)
class Trait:
    """`value` is the dtype, the name's length in bytes, the characters of names, how many there are, or the version; of
    ranks 0, 1, and those above 4.
    """

    what: TraitKind
    output: bool
    value: str

    @property
    def is_version(self) -> bool:
        """Whether it is about the file, and not about its boundary."""
        return self.what in _PLAIN_VERSIONS

    def __str__(self) -> str:
        side = "outputs" if self.output else "inputs"
        match self.what:
            case TraitKind.RANK:
                return f"{side} of rank {self.value}"
            case TraitKind.DTYPE:
                return f"{self.value} {side}"
            case TraitKind.NAME:
                return f"{side} with names of {self.value} bytes"
            case TraitKind.EMPTY:
                return f"{side} without elements"
            case TraitKind.COUNT:
                return f"{self.value} {side}"
            case TraitKind.EXTERNAL:
                return "weights in other files"
            case TraitKind.IR:
                return f"IR version {self.value}"
            case TraitKind.OPSET:
                return f"operator set {self.value}"
        return f"{side} with {self.value!r} in their names"


#: Many inputs, and outputs.
_MANY = frozenset(
    Trait(what=TraitKind.COUNT, output=side, value=str(count)) for count in _COUNTS for side in (False, True)
)

#: Weights that lie in a file beside the model, which has no side.
_EXTERNAL = Trait(what=TraitKind.EXTERNAL, output=False, value="")

#: Whether a compiler takes a model; None where it gives no answer.
Ask = Callable[[onnx.ModelProto], bool | None]


def traits_of(model: Model) -> frozenset[Trait]:
    """The traits that the model's parts may have.

    Parts have more inputs and outputs than the model. How many are taken, and names and ranks that most compilers take,
    are asked with the other traits, if there are any: no call where a compiler takes all of these.
    """
    wiring = read_wiring(model)
    found, beside = set[Trait](), set(_MANY)
    if any(len(names) >= _COUNTS[0] for names in (*wiring.boundary, *wiring.made)):
        found |= _MANY
    if external_tensors(model.proto):
        found.add(_EXTERNAL)
    own = {value.name: value.type for value in (*model.proto.graph.input, *model.proto.graph.output)}
    longest = {False: 0, True: 0}
    signs: dict[bool, set[str]] = {False: set(), True: set()}
    for output, names in ((False, wiring.takers), (True, wiring.maker)):
        for name in names:
            if name in model.known or (name not in wiring.takers and name not in own):
                continue
            kind = model.types.get(name, own.get(name))
            if kind is not None and kind.HasField("tensor_type"):
                rank = len(kind.tensor_type.shape.dim)
                if kind.tensor_type.HasField("shape") and (not rank or HIGHEST_PLAIN_RANK < rank <= _HIGHEST_RANK):
                    found.add(Trait(what=TraitKind.RANK, output=output, value=str(rank)))
                elif rank and rank < LOWEST_PLAIN_RANK:
                    beside.add(Trait(what=TraitKind.RANK, output=output, value=str(rank)))
                if is_empty(kind) and not output:  # a probe can avoid only inputs without elements
                    found.add(Trait(what=TraitKind.EMPTY, output=output, value=""))
                if runtime_dtype(kind) in DTYPES:
                    found.add(Trait(what=TraitKind.DTYPE, output=output, value=runtime_dtype(kind)))
            longest[output] = max(longest[output], len(name.encode("utf-8", "replace")))
            signs[output].update(name)
        if longest[output] > SHORT_NAME:
            trait = Trait(what=TraitKind.NAME, output=output, value=str(longest[output]))
            (found if longest[output] > PLAIN_NAME else beside).add(trait)
        if odd := sorted(sign for sign in signs[output] if safe_name(sign) != sign):
            found.add(Trait(what=TraitKind.CHARACTERS, output=output, value="".join(odd)))
    return frozenset(found | beside if found else found)


def version_traits(proto: onnx.ModelProto) -> frozenset[Trait]:
    """The versions of a file that are newer than those of small models."""
    opset = next((it.version for it in proto.opset_import if it.domain in ("", "ai.onnx")), 0)
    return frozenset(
        Trait(what=what, output=False, value=str(version))
        for what, version in ((TraitKind.IR, proto.ir_version), (TraitKind.OPSET, opset))
        if version > _PLAIN_VERSIONS[what]
    )


def measure(ask: Ask, traits: Collection[Trait]) -> dict[Trait, bool]:
    """Which of these traits the compiler takes at a boundary; those without an answer are missing.

    One call where it takes all of them; two where it takes not even a model without any, which says nothing against
    them; else how many it takes is asked apart from the rest, each is halved where it is refused, and one or two calls
    more for each trait that it refuses.
    """
    wanted = sorted(traits)
    if not wanted:
        return {}
    takes = ask(trial(wanted))
    if takes:
        return dict.fromkeys(wanted, True)
    plain = ask(trial(()))
    if plain is None:
        return {}
    if not plain:
        return dict.fromkeys(wanted, True)
    many, rest = ([it for it in wanted if (it.what is TraitKind.COUNT) is counts] for counts in (True, False))
    if not many or not rest:
        return _one_by_one(ask, wanted, takes)
    many_taken = ask(trial(many))
    # what is refused is among several others then, each half of which is asked anyway
    rest_taken = False if many_taken and len(rest) > 1 else ask(trial(rest))
    return _one_by_one(ask, many, many_taken) | _one_by_one(ask, rest, rest_taken)


def _one_by_one(ask: Ask, wanted: Sequence[Trait], takes: bool | None) -> dict[Trait, bool]:
    """The answer for each trait, by halving; `takes` is the answer for all of them together."""
    if takes:
        return dict.fromkeys(wanted, True)
    if len(wanted) > 1:
        middle = len(wanted) // 2
        halves = (wanted[:middle], wanted[middle:])
        return {trait: it for half in halves for trait, it in _one_by_one(ask, half, ask(trial(half))).items()}
    (trait,) = wanted
    if takes is None:
        return {}
    if trait.is_version:
        return _newest_version(ask, trait)
    found = {trait: not any(map(ask, _controls(trait)))}
    if found[trait] and (stricter := _stricter(trait)) and any(map(ask, _controls(stricter))):
        return {trait: False, stricter: False}
    return found


def _stricter(trait: Trait) -> Trait | None:
    """What is refused as well, if a probe in the form of `_limit` is."""
    if trait.what is TraitKind.NAME and int(trait.value) > PLAIN_NAME:
        return replace(trait, value=str(PLAIN_NAME))
    if trait.what is TraitKind.RANK and trait.value == "0":
        return replace(trait, value="1")
    return None


def _newest_version(ask: Ask, refused: Trait) -> dict[Trait, bool]:
    """Answers about versions between the one that is refused and those of small models, which are taken, by halving."""
    found = {refused: False}
    newest, oldest = _PLAIN_VERSIONS[refused.what], int(refused.value)
    while oldest - newest > 1:
        trait = replace(refused, value=str((newest + oldest) // 2))
        if (takes := ask(trial([trait]))) is None:
            break
        found[trait] = takes
        newest, oldest = (int(trait.value), oldest) if takes else (newest, int(trait.value))
    return found


def usual_traits() -> frozenset[Trait]:
    """What compilers are known to mind at a boundary: ranks of 0, 1 and 5 to 8, dtypes, long names, signs in names, no
    elements, and many of them.
    """
    values = [(TraitKind.RANK, str(rank)) for rank in (0, 1, *range(HIGHEST_PLAIN_RANK + 1, _HIGHEST_RANK + 1))]
    values += [(TraitKind.NAME, "128"), (TraitKind.NAME, "300"), (TraitKind.CHARACTERS, "/:; .-ü")]
    values += [(TraitKind.DTYPE, it) for it in DTYPES]
    values += [(TraitKind.EMPTY, "")]
    return _MANY.union(Trait(what=what, output=side, value=value) for what, value in values for side in (False, True))


def as_measured(declared: ProbeFormat, taken: Mapping[Trait, bool]) -> ProbeFormat:
    """The probe format with what was measured; what a backend declares becomes stricter only."""
    refused = {(trait.what, trait.output) for trait, takes in taken.items() if not takes and not _is_high(trait)}
    names = {what for what, _ in refused}
    lengths = [int(it.value) for it, takes in taken.items() if it.what is TraitKind.NAME and not takes]
    longest = PLAIN_NAME if min(lengths, default=0) > PLAIN_NAME else SHORT_NAME
    return replace(
        declared,
        input_dtypes=_dtypes(declared.input_dtypes, taken, output=False),
        output_dtypes=_dtypes(declared.output_dtypes, taken, output=True),
        min_input_rank=max(declared.min_input_rank, _least_rank(taken, output=False)),
        min_output_rank=max(declared.min_output_rank, _least_rank(taken, output=True)),
        max_input_rank=_most_rank(declared.max_input_rank, taken, output=False),
        max_output_rank=_most_rank(declared.max_output_rank, taken, output=True),
        empty_inputs=declared.empty_inputs and (TraitKind.EMPTY, False) not in refused,
        max_inputs=_most_of_them(declared.max_inputs, taken, output=False),
        max_outputs=_most_of_them(declared.max_outputs, taken, output=True),
        longest_name=declared.longest_name or (longest if lengths else None),
        self_contained=declared.self_contained or TraitKind.EXTERNAL in names,
        safe_names=declared.safe_names or TraitKind.CHARACTERS in names,
    )


def newest_versions(ir: int | None, opset: int | None, taken: Mapping[Trait, bool]) -> tuple[int | None, int | None]:
    """The newest IR version and operator set that are read, as declared or, where that is older, as measured."""
    return _newest(ir, taken, TraitKind.IR), _newest(opset, taken, TraitKind.OPSET)


def _newest(declared: int | None, taken: Mapping[Trait, bool], kind: TraitKind) -> int | None:
    measured = {int(it.value): takes for it, takes in taken.items() if it.what is kind}
    if all(measured.values()):
        return declared
    refused = min(version for version, takes in measured.items() if not takes)
    newest = max((version for version in measured if version < refused), default=_PLAIN_VERSIONS[kind])
    return newest if declared is None else min(declared, newest)


def _is_high(trait: Trait) -> bool:
    return trait.what is TraitKind.RANK and int(trait.value) > HIGHEST_PLAIN_RANK


def _is_low(trait: Trait) -> bool:
    return trait.what is TraitKind.RANK and int(trait.value) < LOWEST_PLAIN_RANK


def _least_rank(taken: Mapping[Trait, bool], *, output: bool) -> int:
    """The rank above those that are known to be refused; 0 where none is."""
    refused = (int(it.value) for it, takes in taken.items() if _is_low(it) and it.output is output and not takes)
    return 1 + max(refused, default=-1)


def _most_rank(declared: int | None, taken: Mapping[Trait, bool], *, output: bool) -> int | None:
    """The highest rank that is known to be taken, if one above is known to be refused."""
    measured = {int(it.value): takes for it, takes in taken.items() if _is_high(it) and it.output is output}
    if all(measured.values()):
        return declared
    refused = min(rank for rank, takes in measured.items() if not takes)
    highest = max((rank for rank in measured if rank < refused), default=HIGHEST_PLAIN_RANK)
    return highest if declared is None else min(declared, highest)


def _most_of_them(declared: int | None, taken: Mapping[Trait, bool], *, output: bool) -> int | None:
    """As many inputs, or outputs, as are known to be taken, if more are known to be refused."""
    measured = {
        int(it.value): takes for it, takes in taken.items() if it.what is TraitKind.COUNT and it.output is output
    }
    if all(measured.values()):
        return declared
    refused = min(count for count, takes in measured.items() if not takes)
    # a trial has one besides
    most = 1 + max((count for count in measured if count < refused), default=0)
    return most if declared is None else min(declared, most)


def _dtypes(declared: frozenset[str] | None, taken: Mapping[Trait, bool], *, output: bool) -> frozenset[str] | None:
    """The dtypes that are known to be taken, if one is known to be refused."""
    measured = {it.value: takes for it, takes in taken.items() if it.what is TraitKind.DTYPE and it.output is output}
    if declared is not None:
        return declared - {dtype for dtype, takes in measured.items() if not takes}
    if all(measured.values()):
        return None
    return frozenset({"float", *(dtype for dtype, takes in measured.items() if takes)})


def trial(wanted: Collection[Trait]) -> onnx.ModelProto:
    """A small model with these traits."""
    versions = {it.what: int(it.value) for it in wanted if it.is_version}
    traits = [it for it in wanted if not it.is_version and it != _EXTERNAL]
    graph = onnx.GraphProto(name="boundary")
    graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, _SHAPE))
    so_far = _node(graph, "Relu", ["x"], "start")
    if _EXTERNAL in wanted:
        so_far = _weighted(graph, so_far)
    inputs, outputs = ([it for it in traits if it.output is side] for side in (False, True))
    for number, trait in enumerate(inputs):
        for place in range(int(trait.value) if trait.what is TraitKind.COUNT else 1):
            name, kind, shape = _tensor(trait, f"in{number}_{place}")
            graph.input.append(helper.make_tensor_value_info(name, kind, shape))
            if _is_high(trait):
                name = _reshaped(graph, name, f"r{number}", _SHAPE)
            if trait.what is TraitKind.EMPTY:
                so_far = _node(graph, "Concat", [so_far, name], f"a{number}", axis=0)
            else:
                so_far = _joined(graph, so_far, name, kind, f"a{number}_{place}")
    for number, trait in enumerate(outputs):
        if trait.what is TraitKind.COUNT:
            for place in range(int(trait.value)):
                name = _node(graph, "Add", [so_far, so_far if place % 2 else "x"], f"out{number}_{place}")
                graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, _SHAPE))
            continue
        name, kind, shape = _tensor(trait, f"out{number}")
        if trait.what is TraitKind.EMPTY:
            _emptied(graph, so_far, name)
        elif not shape:
            _node(graph, "ReduceMax", [so_far], name, keepdims=0)
        elif _is_high(trait) or _is_low(trait):
            _reshaped(graph, so_far, name, shape)
        elif kind == TensorProto.FLOAT:
            _node(graph, "Abs", [so_far], name)
        elif kind == TensorProto.BOOL:
            _node(graph, "Greater", [so_far, "x"], name)
        else:
            cast = _node(graph, "Cast", [so_far], f"b{number}_cast", to=kind)
            _node(graph, "Transpose", [cast], name, perm=[1, 0])
        graph.output.append(helper.make_tensor_value_info(name, kind, shape))
    _node(graph, "Relu", [so_far], "y")
    graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, _SHAPE))
    return _model(graph, versions)


def _controls(trait: Trait) -> Iterable[onnx.ModelProto]:
    """Models that differ from the trait's trial in their boundary alone: if one passes, it is the boundary."""
    if trait == _EXTERNAL:
        stored = trial([trait])
        for tensor in stored.graph.initializer:
            tensor.ClearField("data_location")
            tensor.ClearField("external_data")
        yield stored
        return
    if trait.what not in (TraitKind.EMPTY, TraitKind.COUNT):
        trial_model = trial([trait])
        apply_format(trial_model, _limit(trait))
        yield trial_model
    if trait.what not in (TraitKind.DTYPE, TraitKind.EMPTY, TraitKind.COUNT):
        return
    graph = onnx.GraphProto(name="inside")
    graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, _SHAPE))
    inside = start = _node(graph, "Relu", ["x"], "start")
    _, kind, _ = _tensor(trait, "")
    if trait.what is TraitKind.EMPTY:
        inside = _node(graph, "Concat", [start, _emptied(graph, start, "inner")], "a", axis=0)
    elif trait.what is TraitKind.COUNT:
        for place in range(int(trait.value)):
            inside = _node(graph, "Add", [inside, "x"], f"a{place}")
    elif kind == TensorProto.BOOL:
        inside = _joined(graph, start, _node(graph, "Greater", [start, "x"], "inner"), kind, "a")
    else:
        cast = _node(graph, "Cast", [start], "cast", to=kind)
        inside = _joined(graph, start, _node(graph, "Transpose", [cast], "inner", perm=[1, 0]), kind, "a")
    _node(graph, "Abs", [inside], "y")
    graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, _SHAPE))
    yield _model(graph)


def _limit(trait: Trait) -> ProbeFormat:
    """The probe format in which no boundary has the trait."""
    plain = frozenset({"float"})
    match trait.what:
        case TraitKind.RANK:
            if _is_high(trait):
                most = HIGHEST_PLAIN_RANK
                return ProbeFormat(max_output_rank=most) if trait.output else ProbeFormat(max_input_rank=most)
            least = int(trait.value) + 1
            return ProbeFormat(min_output_rank=least) if trait.output else ProbeFormat(min_input_rank=least)
        case TraitKind.DTYPE:
            return ProbeFormat(output_dtypes=plain) if trait.output else ProbeFormat(input_dtypes=plain)
        case TraitKind.NAME:
            return ProbeFormat(longest_name=PLAIN_NAME if int(trait.value) > PLAIN_NAME else SHORT_NAME)
    return ProbeFormat(safe_names=True)


def _tensor(trait: Trait, name: str) -> tuple[str, int, tuple[int, ...]]:
    """The name, dtype and shape of an input or output with the trait."""
    match trait.what:
        case TraitKind.RANK:
            # as many elements as a small model computes with, and no leading dimensions of 1, which tools squeeze
            high = (2, *[1] * (int(trait.value) - 3), 2, 2)
            flat = (prod(_SHAPE),) if trait.output else _SHAPE[1:]
            return name, TensorProto.FLOAT, high if _is_high(trait) else flat if int(trait.value) else ()
        case TraitKind.DTYPE:
            shape = _SHAPE if trait.value == "bool" else _TURNED
            return name, TensorProto.DataType.Value(trait.value.upper()), shape
        case TraitKind.NAME:
            return name.ljust(int(trait.value), "n"), TensorProto.FLOAT, _SHAPE
        case TraitKind.EMPTY:
            return name, TensorProto.FLOAT, (0, _SHAPE[1])
        case TraitKind.COUNT:
            return name, TensorProto.FLOAT, _SHAPE
    return f"{name}a{'b'.join(trait.value)}c", TensorProto.FLOAT, _SHAPE


def _weighted(graph: onnx.GraphProto, tensor: str) -> str:
    """The tensor with a weight added that `onnx.save` writes beside the model."""
    weight = numpy_helper.from_array(np.ones(_SHAPE, np.float32), "weight")
    set_external_data(weight, location="weights.data")
    graph.initializer.append(weight)
    return _node(graph, "Add", [tensor, "weight"], "weighted")


def _reshaped(graph: onnx.GraphProto, tensor: str, name: str, shape: tuple[int, ...]) -> str:
    graph.initializer.append(helper.make_tensor(f"{name}_shape", TensorProto.INT64, [len(shape)], shape))
    return _node(graph, "Reshape", [tensor, f"{name}_shape"], name)


def _emptied(graph: onnx.GraphProto, tensor: str, name: str) -> str:
    """No row of the tensor."""
    for part in ("starts", "ends", "axes"):
        graph.initializer.append(helper.make_tensor(f"{name}_{part}", TensorProto.INT64, [1], [0]))
    return _node(graph, "Slice", [tensor, f"{name}_starts", f"{name}_ends", f"{name}_axes"], name)


def _joined(graph: onnx.GraphProto, so_far: str, tensor: str, kind: int, name: str) -> str:
    """The tensor's part in what is computed so far."""
    if kind == TensorProto.BOOL:
        return _node(graph, "Where", [tensor, so_far, "x"], name)
    if kind != TensorProto.FLOAT:
        turned = _node(graph, "Transpose", [tensor], f"{name}_turned", perm=[1, 0])
        tensor = _node(graph, "Cast", [turned], f"{name}_cast", to=TensorProto.FLOAT)
    return _node(graph, "Add", [so_far, tensor], name)


def _node(graph: onnx.GraphProto, op: str, inputs: list[str], output: str, **attributes: Any) -> str:
    graph.node.append(helper.make_node(op, inputs, [output], name=f"node_{len(graph.node)}", **attributes))
    return output


def _model(graph: onnx.GraphProto, versions: Mapping[TraitKind, int] = _PLAIN_VERSIONS) -> onnx.ModelProto:
    ir, opset = (versions.get(kind, plain) for kind, plain in _PLAIN_VERSIONS.items())
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)
