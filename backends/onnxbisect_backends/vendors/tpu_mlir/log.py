"""TPU-MLIR's messages, as patterns; texts of 1.8.1 and 1.30.2, nearly all seen in real runs.

The first match gives the kind, so specific patterns come first. Lines starting with `[onnx-bisect]` are from
`tpu_mlir_steps.py`.
"""

import re
from collections.abc import Mapping, Sequence

from onnxbisect.verdict import Kind, Table
from onnxbisect_backends.logs import Pattern, compile_pattern, pattern

#: MLIR's location: the first output of a node, and the node's op.
_PLACE = r'loc\("(?P<tensor>.+?)_(?P<op>[A-Za-z]+)"\)'


#: Errors that say nothing about the model's ops: the probe was folded completely, or is no ONNX file; the wheel does
#: not support the processor.
NO_QUESTION: tuple[Pattern, ...] = (
    pattern(r"error: .*expected non-function type", Kind.INVALID),
    pattern(r"DecodeError: .*", Kind.INVALID),
    # in an unfolded file: an output that is a constant, which only cutting produces
    pattern(
        r"op = self\.getOperand\(_name\)\n(?:.*\n){1,20}?KeyError: 'operand (?P<tensor>.*) not found'", Kind.INVALID
    ),
    pattern(r"can't find symbol: \w+", Kind.ERROR),
)

PATTERNS: tuple[Pattern, ...] = (
    *NO_QUESTION,
    # model_transform: the op list, all that is missing at once, then texts of single converters
    pattern(r"^RuntimeError: Op not support:\{(?P<op>[^}]*)\}"),
    pattern(r"^RuntimeError: (?P<op>\w+) Op not support now"),
    pattern(r"^RuntimeError: Unsupport opset for (?P<op>\w+)"),
    pattern(r"^RuntimeError: (?P<op>\w+) does not test the case of specify the sequence_lens"),
    pattern(r"^\[onnx-bisect\] converting (?P<op>\S+) '(?P<tensor>.*)': .*"),
    pattern(r"^AssertionError: Please check --input_shapes formula or check if there is any dynamic dim"),
    pattern(r"^KeyError: 'operand (?P<tensor>.*) not found'"),
    pattern(r"^KeyError: 'input shapes error:.*'", Kind.ERROR),
    pattern(r"^KeyError: .*"),
    pattern(r"^TypeError: The element type in the input tensor is not defined"),
    pattern(r"^ValueError: Currently, only constant axis is supported"),
    pattern(r"^AssertionError$"),
    pattern(r"^RuntimeError: Error, can't find \['(?P<tensor>.*)'\] in model", Kind.ERROR),
    pattern(r"^ValueError: could not convert string to float: '--.*'", Kind.ERROR),
    # tpuc-opt, in either step; its final message comes after these
    pattern(r"error: type of return operand \d+ \(.*\) doesn't match function result type", Kind.ERROR),
    pattern(rf"error: {_PLACE}: 'top\.\w+' op .*"),
    pattern(rf"error: {_PLACE}: operand #\d+ does not dominate this use", Kind.ERROR),
    pattern(r"error: (?:.*: )?failed to legalize operation '\w+\.\w+'.*"),
    pattern(rf'^[^"\n]*"top\.\w+"\(.*{_PLACE}\n+unimplemented tpu dialect!'),
    pattern(r"^unimplemented tpu dialect!"),
    pattern(r"^can't get scale and zeropoint"),
    pattern(r"^permute shape not support"),
    pattern(r"^ASSERT INFO:.*"),
    pattern(r"^ASSERT executed at.*/Interfaces/(?P<op>\w+)\.cpp:\d+"),
    pattern(r"^\[ERR\] .*: Assertion \".*\" failed\."),
    pattern(r"^tpuc-opt: .*: Assertion `.*' failed\.", Kind.CRASH),
    pattern(r"^Not Implemented$"),
    pattern(r"^UNREACHABLE executed at (?:.*/Interfaces/(?P<op>\w+)\.cpp|.*):\d+!", Kind.CRASH),
    pattern(r"^PLEASE submit a bug report to .*", Kind.CRASH),
    # it compiled and computes wrong numbers
    pattern(r"^ *\[(?P<tensor>\S.*)_(?P<op>[A-Za-z]+) *\] +NOT_\w+ +\[FAILED\]", Kind.NUMERIC),
    pattern(r"^npz compare FAILED\.", Kind.NUMERIC),
    pattern(r"Not Support Resize Cubic !!!! Using Linear Instead !!!!!", Kind.NUMERIC, fails=True),
    pattern(r"^RuntimeError: \[!Error\]: (?:tpuc-opt|npz_tool\.py) .*", Kind.ERROR),
)


#: The result of comparing one tensor, and the line of `tpu_mlir_steps.py` if nothing was compared.
_COMPARED = compile_pattern(r"^[\r ]*\[(?P<tensor>\S.*)_(?P<op>[A-Za-z]+) *\] +([A-Z_]+) +\[(?:PASSED|FAILED)\]$")
_NOT_COMPARED = compile_pattern(r"^\[onnx-bisect\] (not compared: .*)$")


#: The lines of `tpu_mlir_tool.py` about a rejected tensor, and about another sample.
_APART = compile_pattern(
    r"^\[onnx-bisect\] \[(?P<tensor>\S.*)_(?P<op>[A-Za-z]+)\] (differs by at most .*?)(, too small to count)?$"
)
#: A comparison after which another sample was compared.
_ON_THE_FIRST = re.compile(
    r"^\[Running\]: npz_tool\.py compare"
    r"(?:.*\n)+?\[onnx-bisect\] other numbers on made-up input: comparing on another sample$",
    re.MULTILINE,
)

#: Warnings that constant folding or simplification failed; the tool continues without.
_UNFOLDED = compile_pattern(r"WARNING: (?:ConstantFolding|onnxsim opt) failed\.")


def unfolded(log: str) -> tuple[str, ...]:
    """The lines which say that constants were not folded, each once."""
    return tuple(dict.fromkeys(match[0] for match in _UNFOLDED.finditer(log)))


def broke_comparing(log: str) -> bool:
    """Whether a comparison started and did not finish, so the outputs were not found to be wrong."""
    return log.count("[Running]: npz_tool.py compare") > len(re.findall(r"^npz compare (?:PASSED|FAILED)\.", log, re.M))


def compared(log: str) -> tuple[Table, ...]:
    """How close each tensor is to onnxruntime's, or why it was not compared."""
    tiny = tiny_tensors(log)
    found = [(match["tensor"], match["op"], match[3]) for match in _COMPARED.finditer(log)]
    rows = [(tensor, op, "TINY" if tensor in tiny else numbers) for tensor, op, numbers in found]
    rows += [("", "", match[1]) for match in _NOT_COMPARED.finditer(log)]
    if not rows:
        return ()
    columns = ("tensor", "op", "numbers")
    return (Table(title="Numbers against onnxruntime's", columns=columns, rows=tuple(rows), counted="numbers"),)


#: A layer in what `run_qtable` writes (full_loss_table.txt), and one in what `npz_tool compare -vv` prints.
_LAYER_ERROR = re.compile(
    r"No\.\d+ *: Layer: (?P<layer>\S.*?)\s+Cos: (?P<alone>-?[\d.]+)$"
    r"|^[\r ]*\[(?P<tensor>\S.*?) *\] +\w*SIMILAR +\[\w+\]\n.*\n +cosine_similarity += (?P<cosine>-?[\d.]+)$",
    re.MULTILINE,
)


def layer_errors(table: str) -> tuple[tuple[str, float], ...]:
    """The ops of a table of errors, each with the cosine of its output and the exact one."""
    return tuple(
        (match["layer"] or match["tensor"], float(match["alone"] or match["cosine"]))
        for match in _LAYER_ERROR.finditer(table)
    )


def last_comparison(log: str) -> str:
    """The log without what was compared before, where numbers were other on one made-up sample and another one was
    tried.
    """
    return _ON_THE_FIRST.sub("", log)


def distances(log: str) -> Mapping[str, str]:
    """How far each rejected tensor is from onnxruntime's: `differs by at most 0.5, in numbers up to 3`."""
    return {match["tensor"]: match[3] for match in _APART.finditer(log)}


def tiny_tensors(log: str) -> frozenset[str]:
    """The rejected tensors whose differences are too small to count."""
    return frozenset(match["tensor"] for match in _APART.finditer(log) if match[4])


def right_tensors(tables: Sequence[Table]) -> tuple[str, ...]:
    """The tensors from `compared` that are close enough; of more than 400 the tool compares only some."""
    rows = (row for table in tables for row in table.rows)
    return tuple(dict.fromkeys(tensor for tensor, _, numbers in rows if tensor and not numbers.startswith("NOT_")))
