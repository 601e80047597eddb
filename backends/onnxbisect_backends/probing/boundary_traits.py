"""What a compiler takes of a file whatever its nodes are, asked by small models.

A trait is refused at the boundary if a small model with it fails, and the same model passes where the trait stands
between two nodes or in the form that a probe would get (`onnxbisect.cut.neutral_boundary`). If both fail, the compiler
minds something else, and nothing is said of the boundary. A version is refused if a small model fails in it, and passes
in an old one.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import onnx

from onnxbisect.cut.apply_format import safe_name
from onnxbisect.cut.required_producers import is_empty, runtime_dtype
from onnxbisect.cut.wiring import read_wiring
from onnxbisect.model.external import external_tensors
from onnxbisect.model.model import Model
from onnxbisect.probe_format import ProbeFormat
from onnxbisect_backends.probing.small_models import controls, trial
from onnxbisect_backends.probing.traits import (
    EXTERNAL,
    HIGHEST_PLAIN_RANK,
    LOWEST_PLAIN_RANK,
    PLAIN_NAME,
    PLAIN_VERSIONS,
    SHORT_NAME,
    Trait,
    TraitKind,
)

#: The highest rank that is asked for.
_HIGHEST_RANK = 8
#: How many inputs, and outputs, are asked for.
_COUNTS = (8, 20)
#: The dtypes that are asked for, but for float, which every compiler takes.
DTYPES = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "bfloat16", "double"),
)


#: Many inputs, and outputs.
_MANY = frozenset(
    Trait(what=TraitKind.COUNT, output=side, value=str(count)) for count in _COUNTS for side in (False, True)
)

#: Whether a compiler takes a model; None where it gives no answer.
Ask = Callable[[onnx.ModelProto], bool | None]


def traits_of(model: Model) -> frozenset[Trait]:
    """The traits that the model's parts may have.

    Parts have more inputs and outputs than the model. How many are taken is asked with the other traits, if there are
    any: no call where a compiler takes that many and all of these.
    """
    wiring = read_wiring(model)
    found = set[Trait]()
    if any(len(names) >= _COUNTS[0] for names in (*wiring.boundary, *wiring.made)):
        found |= _MANY
    if external_tensors(model.proto):
        found.add(EXTERNAL)
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
                plain = LOWEST_PLAIN_RANK <= rank <= HIGHEST_PLAIN_RANK
                if kind.tensor_type.HasField("shape") and rank <= _HIGHEST_RANK and not plain:
                    found.add(Trait(what=TraitKind.RANK, output=output, value=str(rank)))
                if is_empty(kind) and not output:  # a probe can avoid only inputs without elements
                    found.add(Trait(what=TraitKind.EMPTY, output=output, value=""))
                if runtime_dtype(kind) in DTYPES:
                    found.add(Trait(what=TraitKind.DTYPE, output=output, value=runtime_dtype(kind)))
            longest[output] = max(longest[output], len(name.encode("utf-8", "replace")))
            signs[output].update(name)
        if longest[output] > SHORT_NAME:
            found.add(Trait(what=TraitKind.NAME, output=output, value=str(longest[output])))
        if odd := sorted(sign for sign in signs[output] if safe_name(sign) != sign):
            found.add(Trait(what=TraitKind.CHARACTERS, output=output, value="".join(odd)))
    return frozenset(found | _MANY if found else found)


def version_traits(proto: onnx.ModelProto) -> frozenset[Trait]:
    """The versions of a file that are newer than those of small models."""
    opset = next((it.version for it in proto.opset_import if it.domain in ("", "ai.onnx")), 0)
    return frozenset(
        Trait(what=what, output=False, value=str(version))
        for what, version in ((TraitKind.IR, proto.ir_version), (TraitKind.OPSET, opset))
        if version > PLAIN_VERSIONS[what]
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
    found = {trait: not any(map(ask, controls(trait)))}
    if found[trait] and (stricter := _stricter(trait)) and any(map(ask, controls(stricter))):
        return {trait: False, stricter: False}
    return found


def _stricter(trait: Trait) -> Trait | None:
    """A trait of what probes get in place of this one; if it is refused too, they must get another form."""
    if trait.what is TraitKind.NAME and int(trait.value) > PLAIN_NAME:
        return replace(trait, value=str(PLAIN_NAME))
    if trait.what is TraitKind.RANK and trait.value == "0":
        return replace(trait, value="1")
    return None


def _newest_version(ask: Ask, refused: Trait) -> dict[Trait, bool]:
    """Answers about versions between the one that is refused and those of small models, which are taken, by halving."""
    found = {refused: False}
    newest, oldest = PLAIN_VERSIONS[refused.what], int(refused.value)
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
    refused = {(trait.what, trait.output) for trait, takes in taken.items() if not takes and not trait.is_high_rank}
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
    newest = max((version for version in measured if version < refused), default=PLAIN_VERSIONS[kind])
    return newest if declared is None else min(declared, newest)


def _least_rank(taken: Mapping[Trait, bool], *, output: bool) -> int:
    """The rank above those that are known to be refused; 0 where none is."""
    refused = (int(it.value) for it, takes in taken.items() if it.is_low_rank and it.output is output and not takes)
    return 1 + max(refused, default=-1)


def _most_rank(declared: int | None, taken: Mapping[Trait, bool], *, output: bool) -> int | None:
    """The highest rank that is known to be taken, if one above is known to be refused."""
    measured = {int(it.value): takes for it, takes in taken.items() if it.is_high_rank and it.output is output}
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
