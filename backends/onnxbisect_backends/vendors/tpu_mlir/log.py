"""What TPU-MLIR says when it refuses a model, as patterns; texts of 1.8.1 and 1.30.2, nearly all met in real runs.

The first that matches gives the kind, so what says most stands first. `[onnx-bisect]` begins the lines that
`tpu_mlir_steps.py` adds.
"""

import re
from collections.abc import Sequence

from onnxbisect.verdict import Kind, Table
from onnxbisect_backends.logs import Pattern, compile_pattern

#: What MLIR prints of a place: the first output of a node, and the node's op.
_PLACE = r'loc\("(?P<tensor>.+?)_(?P<op>[A-Za-z]+)"\)'


def _pattern(regex: str, kind: Kind = Kind.UNSUPPORTED, *, fails: bool = False) -> Pattern:
    return Pattern(regex=compile_pattern(regex), kind=kind, fails=fails)


#: Texts of compiles that say nothing about the model's ops, with what was wrong instead: the probe folded away, or is
#: no ONNX file; the wheel has nothing for the processor.
NO_QUESTION: tuple[Pattern, ...] = (
    _pattern(r"error: .*expected non-function type", Kind.INVALID),
    _pattern(r"DecodeError: .*", Kind.INVALID),
    # in a file that it does not fold: an output that is a constant of its own, which only cutting makes
    _pattern(
        r"op = self\.getOperand\(_name\)\n(?:.*\n){1,20}?KeyError: 'operand (?P<tensor>.*) not found'", Kind.INVALID
    ),
    _pattern(r"can't find symbol: \w+", Kind.ERROR),
)

PATTERNS: tuple[Pattern, ...] = (
    *NO_QUESTION,
    # model_transform: the op list, all that is missing at once, then texts of single converters
    _pattern(r"^RuntimeError: Op not support:\{(?P<op>[^}]*)\}"),
    _pattern(r"^RuntimeError: (?P<op>\w+) Op not support now"),
    _pattern(r"^RuntimeError: Unsupport opset for (?P<op>\w+)"),
    _pattern(r"^RuntimeError: (?P<op>\w+) does not test the case of specify the sequence_lens"),
    _pattern(r"^\[onnx-bisect\] converting (?P<op>\S+) '(?P<tensor>.*)': .*"),
    _pattern(r"^AssertionError: Please check --input_shapes formula or check if there is any dynamic dim"),
    _pattern(r"^KeyError: 'operand (?P<tensor>.*) not found'"),
    _pattern(r"^KeyError: 'input shapes error:.*'", Kind.ERROR),
    _pattern(r"^KeyError: .*"),
    _pattern(r"^TypeError: The element type in the input tensor is not defined"),
    _pattern(r"^ValueError: Currently, only constant axis is supported"),
    _pattern(r"^AssertionError$"),
    _pattern(r"^RuntimeError: Error, can't find \['(?P<tensor>.*)'\] in model", Kind.ERROR),
    _pattern(r"^ValueError: could not convert string to float: '--.*'", Kind.ERROR),
    # tpuc-opt, of either step; its last words come after all of these
    _pattern(r"error: type of return operand \d+ \(.*\) doesn't match function result type", Kind.ERROR),
    _pattern(rf"error: {_PLACE}: 'top\.\w+' op .*"),
    _pattern(r"error: (?:.*: )?failed to legalize operation '\w+\.\w+'.*"),
    _pattern(rf'^[^"\n]*"top\.\w+"\(.*{_PLACE}\n+unimplemented tpu dialect!'),
    _pattern(r"^unimplemented tpu dialect!"),
    _pattern(r"^can't get scale and zeropoint"),
    _pattern(r"^permute shape not support"),
    _pattern(r"^\[ERR\] .*: Assertion \".*\" failed\."),
    _pattern(r"^tpuc-opt: .*: Assertion `.*' failed\.", Kind.CRASH),
    _pattern(r"^Not Implemented$"),
    _pattern(r"^UNREACHABLE executed at (?:.*/Interfaces/(?P<op>\w+)\.cpp|.*):\d+!", Kind.CRASH),
    _pattern(r"^PLEASE submit a bug report to .*", Kind.CRASH),
    # it compiled, and computes other numbers
    _pattern(r"^ *\[(?P<tensor>\S.*)_(?P<op>[A-Za-z]+) *\] +NOT_\w+ +\[FAILED\]", Kind.NUMERIC),
    _pattern(r"^npz compare FAILED\.", Kind.NUMERIC),
    _pattern(r"Not Support Resize Cubic !!!! Using Linear Instead !!!!!", Kind.NUMERIC, fails=True),
    _pattern(r"^RuntimeError: \[!Error\]: (?:tpuc-opt|npz_tool\.py) .*", Kind.ERROR),
)


#: What becomes of one tensor when the numbers are compared, and what `tpu_mlir_steps.py` says where they are not.
_COMPARED = compile_pattern(r"^[\r ]*\[(?P<tensor>\S.*)_(?P<op>[A-Za-z]+) *\] +([A-Z_]+) +\[(?:PASSED|FAILED)\]$")
_NOT_COMPARED = compile_pattern(r"^\[onnx-bisect\] (not compared: .*)$")


#: Constants are computed, and the file simplified, before it is converted; the tool goes on where that fails.
_UNFOLDED = compile_pattern(r"WARNING: (?:ConstantFolding|onnxsim opt) failed\.")


def unfolded(log: str) -> tuple[str, ...]:
    """The lines in which it says that it has not computed constants, each once."""
    return tuple(dict.fromkeys(match[0] for match in _UNFOLDED.finditer(log)))


def broke_comparing(log: str) -> bool:
    """Whether a comparison began and came to no result: then nothing was found wrong with the numbers."""
    return log.count("[Running]: npz_tool.py compare") > len(re.findall(r"^npz compare (?:PASSED|FAILED)\.", log, re.M))


def compared(log: str) -> tuple[Table, ...]:
    """How near the numbers of each tensor came to those of onnxruntime, or why they were not compared."""
    rows = [(match["tensor"], match["op"], match[3]) for match in _COMPARED.finditer(log)]
    rows += [("", "", match[1]) for match in _NOT_COMPARED.finditer(log)]
    columns = ("tensor", "op", "numbers")
    return (Table(title="Numbers against onnxruntime's", columns=columns, rows=tuple(rows), counted="numbers"),) * bool(
        rows
    )


def right_tensors(tables: Sequence[Table]) -> tuple[str, ...]:
    """The tensors in what `compared` returns whose numbers are near enough; of more than 400 the tool compares some."""
    rows = (row for table in tables for row in table.rows)
    return tuple(dict.fromkeys(tensor for tensor, _, numbers in rows if tensor and not numbers.startswith("NOT_")))
