"""onnxruntime's refusal messages, as patterns."""

import re

from onnxbisect.verdict import Kind
from onnxbisect_backends.logs import Pattern, compile_pattern


def _pattern(regex: str, kind: Kind = Kind.UNSUPPORTED) -> Pattern:
    return Pattern(regex=compile_pattern(regex), kind=kind)


#: Texts of onnxruntime 1.31.1, each seen in a real run; the first match gives the kind.
PATTERNS = (
    _pattern(r"(?<![\w.])(?P<op>[\w.]+:\w+)\(-?\d+\) is not a registered function/op"),
    _pattern(r"Could not find an implementation for (?P<op>\w+)\(\d+\) node with name '(?P<node>.*)'"),
    _pattern(r"No Op registered for (?P<op>\w+) with domain_version of \d+"),
    _pattern(r"of input parameter \((?P<tensor>.*?)\) of operator \((?P<op>\w+)\) in node \((?P<node>.*)\) is invalid"),
    _pattern(r"Unrecognized attribute: \w+ for operator (?P<op>\w+)"),
    _pattern(r"Node \((?P<node>.*)\) Op \((?P<op>\w+)\) \[\w+\]", Kind.ERROR),
    _pattern(r"Node ?\((?P<node>.*?)\) with schema\([^)]*\) has (?:in|out)put size", Kind.ERROR),
    _pattern(r"In Node, \(\"(?P<node>.*?)\", (?P<op>\w+), ", Kind.ERROR),
)


#: The prefix of every message.
PREAMBLE = re.compile(
    r"^\w+: \[ONNXRuntimeError\] : \d+ : [A-Z_]+ : (?:Load model from \S+ failed:)?"
    r"(?:Fatal error: |This is an invalid model\. )?"
)
