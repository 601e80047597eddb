"""Why a module does not export: the kind of problem, its place in the user's code, and what to write instead."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from onnxbisect.language import english


class FailureKind(StrEnum):
    """The kinds of problems, by their names in reports."""

    BRANCH = english("branch on values")
    LOOP = english("loop count by value")
    SHAPE = english("shape by values")
    INDEX = english("index by value")
    NO_FORM = english("op without ONNX form")
    CUSTOM_OP = english("custom op")
    CONTAINER = english("container of another class")
    IN_PLACE = english("in-place or view")
    NUMPY = english("numpy")
    AUTOGRAD = english("custom autograd function")
    DTYPE = english("unsupported dtype")
    SCRIPTED = english("torch.jit module")
    QUANTIZED = english("quantized by torch")
    PACKED = english("packed sequence")
    LOST_INPUT = english("input without effect")
    NUMBERS = english("wrong numbers")
    TIME = english("does not end")
    CRASH = english("crash")
    OTHER = english("other")


@dataclass(frozen=True, kw_only=True)
class CodeLine:
    """A line of the user's code."""

    file: str
    line: int
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """What the exporter said. `types` are the classes of its exceptions, and PackedSequence where the code at work has
    one; `op` is the op that it was about.

    `warned` are the tracer's warnings with their places. `differs` says how the exported file's numbers differ from the
    module's, where the export itself succeeded, and `lost` names inputs that the file does not have.
    """

    message: str
    types: tuple[str, ...] = ()
    op: str = ""
    place: CodeLine | None = None
    warned: tuple[tuple[CodeLine, str], ...] = ()
    differs: str = ""
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FailureCause:
    """The kind of a failure and its place."""

    kind: FailureKind
    place: CodeLine | None


#: What to write instead, by kind.
REMEDIES = {
    FailureKind.BRANCH: english(
        "compute both and choose with torch.where, or use torch.cond; if it never changes, fix it as a Python flag"
    ),
    FailureKind.LOOP: english("give the count as a Python int, or run to the largest count and mask what is too much"),
    FailureKind.SHAPE: english(
        "keep the shape fixed: torch.where or a mask with padding to a fixed count, in place of selecting"
    ),
    FailureKind.INDEX: english(
        "pass the index as a Python int, or select with one_hot and a product, torch.gather or index_select"
    ),
    FailureKind.NO_FORM: english("write it with ops that have an ONNX form, or run this module on the host"),
    FailureKind.CUSTOM_OP: english(
        "give it an ONNX form (custom_translation_table), write it with ops of torch, or run this module on the host"
    ),
    FailureKind.CONTAINER: english(
        "pass and return tensors, or lists, tuples and dicts of them, and make other containers, such as a cache, in a "
        "wrapper's forward; for a cache that a model of transformers only returns --set use_cache=false"
    ),
    FailureKind.IN_PLACE: english(
        "write the result to a new tensor (torch.cat, torch.where), and use reshape in place of view; in an "
        "attention of transformers try --try attention=eager"
    ),
    FailureKind.NUMPY: english("use torch in place of numpy"),
    FailureKind.AUTOGRAD: english(
        "call plain torch ops in forward; a custom autograd function is needed for training only"
    ),
    FailureKind.DTYPE: english("use float32; split complex numbers into a real and an imaginary part"),
    FailureKind.SCRIPTED: english(
        "export the Python module, before torch.jit.script or torch.jit.trace; the older exporter "
        "(--set exporter=legacy) takes these"
    ),
    FailureKind.QUANTIZED: english("export the float model; the compiler quantizes it, or quantize the ONNX file"),
    FailureKind.PACKED: english(
        "give the padded tensor to the recurrent layer, and mask its outputs behind each length; "
        "pack_padded_sequence is needed for training only"
    ),
    FailureKind.LOST_INPUT: english("pass the tensors as arguments of their own, not inside of a dict or an object"),
    FailureKind.NUMBERS: english("compare the outputs op by op: onnx-bisect extract cuts the file"),
    FailureKind.TIME: english("give more time (--timeout), or a smaller example"),
    FailureKind.CRASH: english("give more memory (--memory), or a smaller example"),
    FailureKind.OTHER: english("the message says what the exporter missed"),
}

_LOOPS = re.compile(r"^\s*(for|while)\b|\brange\(")
_BRANCHES = re.compile(r"^\s*(if|elif|assert)\b|\bif\b.*\belse\b|\b(and|or|not)\b")
_SELECTS = re.compile(r"\b(nonzero|unique|masked_select|argwhere|bincount|repeat_interleave|nms)\b")


def cause_of(failure: Failure) -> FailureCause:
    """The kind of a failure, and the line to look at."""
    if failure.differs:
        # The export succeeded: look at what the tracer made a constant, and warned of with many false alarms.
        for words, kind in (
            ("NumPy array", FailureKind.NUMPY),
            ("Python integer", FailureKind.INDEX),
            ("Python index", FailureKind.INDEX),
            ("Python boolean", FailureKind.BRANCH),
            ("Python float", FailureKind.BRANCH),
            ("Iterating over a tensor", FailureKind.LOOP),
        ):
            warned = (place for place, text in failure.warned if words in text)
            # shapes do not change with values: a warning about them is a false alarm
            if found := [it for it in warned if ".shape" not in it.source and ".size(" not in it.source]:
                loops = kind is FailureKind.INDEX and _LOOPS.search(found[0].source)
                return FailureCause(kind=FailureKind.LOOP if loops else kind, place=found[0])
        return FailureCause(kind=FailureKind.LOST_INPUT if failure.lost else FailureKind.NUMBERS, place=failure.place)
    source = failure.place.source if failure.place else ""
    return FailureCause(kind=next(kind for kind, fits in _REFUSALS if fits(failure, source)), place=failure.place)


def remedy(cause: FailureCause, failure: Failure) -> str:
    """What to write instead."""
    if cause.kind is FailureKind.NO_FORM and failure.op:
        return english("{op} has none: {rest}", op=failure.op, rest=REMEDIES[cause.kind])
    return REMEDIES[cause.kind]


def first_sentence(message: str) -> str:
    """A message of torch without its advice about logs and documents."""
    cut = r" \(Size-like| Caused by:| For more information| \(unhinted:| Hint:| Developer debug context:"
    return re.split(cut, message, maxsplit=1)[0].replace(" Explanation: ", ": ").strip()


def _says(*words: str) -> Callable[[Failure, str], bool]:
    """Whether the message has one of these, in small letters."""
    return lambda failure, source: any(word in failure.message.lower() for word in words)


def _is(*types: str) -> Callable[[Failure, str], bool]:
    return lambda failure, source: any(it in failure.types for it in types)


def _by_value(failure: Failure, source: str) -> bool:
    return _is("GuardOnDataDependentSymNode")(failure, source) or _says("data-dependent", "data dependent")(
        failure, source
    )


def _without_form(failure: Failure, source: str) -> bool:
    named = _is("DispatchError", "UnsupportedOperatorError", "DecompositionNotImplementedError")(failure, source)
    return named or _says("no onnx function found", "onnx_ops not found", "to onnx opset version")(failure, source)


_REFUSALS: Sequence[tuple[FailureKind, Callable[[Failure, str], bool]]] = (
    (FailureKind.SCRIPTED, _says("exporting a scriptmodule", "scriptmodule is not supported")),
    (FailureKind.QUANTIZED, _says("torch.classes.quantized", "quantized::", "quantizedcpu")),
    (FailureKind.PACKED, _is("PackedSequence")),
    (FailureKind.NUMPY, _says(".numpy()", "numpy array", "can't call numpy", "numpy is not")),
    (FailureKind.LOOP, lambda failure, source: _by_value(failure, source) and bool(_LOOPS.search(source))),
    (FailureKind.BRANCH, lambda failure, source: _by_value(failure, source) and bool(_BRANCHES.search(source))),
    (FailureKind.SHAPE, lambda failure, source: _by_value(failure, source) and bool(_SELECTS.search(source))),
    (FailureKind.INDEX, lambda failure, source: _by_value(failure, source) and "integer" in failure.message),
    (FailureKind.SHAPE, _by_value),
    (FailureKind.BRANCH, _says("dynamic control flow", "torch.cond", "bool(tensor)", "boolean value of tensor")),
    (FailureKind.AUTOGRAD, _says("autograd.function", "autograd function", "pythonop", "prim::pythonop")),
    (
        FailureKind.DTYPE,
        _says("complex", "unsupported dtype", "dtype is not supported", "float8", "not supported for dtype"),
    ),
    (FailureKind.CUSTOM_OP, lambda failure, source: _without_form(failure, source) and _foreign(failure.op)),
    (FailureKind.NO_FORM, _without_form),
    (FailureKind.CONTAINER, _says("input type", "pytree", "jit inputs/outputs", "only tuples, lists", "input_spec")),
    (
        FailureKind.IN_PLACE,
        _says("in-place", "inplace", "mutat", "a view of", "cannot view a tensor", "functionaliz", "non-functional"),
    ),
    (FailureKind.TIME, _is("TimeLimit")),
    (FailureKind.CRASH, _is("Crash", "MemoryError")),
    (FailureKind.CRASH, _says("can't allocate memory", "out of memory", "not enough memory")),
    (FailureKind.OTHER, lambda failure, source: True),
)


def _foreign(op: str) -> bool:
    """Whether an op is of a library of its own."""
    return bool(op) and op.partition(".")[0] not in (
        "aten",
        "prims",
        "_operator",
        "math",
        "<built-in function getitem>",
    )
