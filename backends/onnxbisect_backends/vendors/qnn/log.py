"""What QNN says of a model that it refuses, as patterns; `trace.py` reads what it says of each node."""

import re

from onnxbisect.verdict import Kind
from onnxbisect_backends.logs import Pattern, compile_pattern


def _pattern(regex: str, kind: Kind = Kind.UNSUPPORTED) -> Pattern:
    return Pattern(regex=compile_pattern(regex), kind=kind)


#: Texts of onnxruntime-qnn 2.7.0, for where its trace names nothing; the first that matches gives the kind. That of
#: `MEM_ALLOC` lies: QNN says so of plain ops that the chip cannot do, so it is for the search to say what is too large.
PATTERNS = (
    _pattern(r"Failed to (?:finalize|compose) (?:QNN|Qnn) graph\.(?: Error: .*)?", Kind.ERROR),
    _pattern(r"Failed to initialize qnn_model_wrapper\.", Kind.ERROR),
    _pattern(r"(?<![\w.])(?P<op>[\w.]+:\w+)\(-?\d+\) is not a registered function/op"),
    _pattern(r"No Op registered for (?P<op>\w+) with domain_version of \d+"),
    _pattern(r"\{ name: (?P<node>.*?), type: (?P<op>\w+) \}"),
    _pattern(
        r"Node '(?P<node>.*?)' OpType:(?P<op>\w+) with domain:\S+ was inserted using the NHWC format as requested"
    ),
    _pattern(r"This session contains graph nodes that are assigned to the default CPU EP, but fallback to CPU EP"),
    _pattern(r"In Node, \(\"(?P<node>.*?)\", (?P<op>\w+), .*Error Nodes in a graph must be topologically", Kind.ERROR),
    _pattern(r"Failed to generate EP context model since the file .* exists already", Kind.ERROR),
)

#: Where the chip's number is none that QNN knows, or the disk is full: the model was not judged.
NO_ANSWER = (
    _pattern(r"QNN SetupBackend failed Failed to create device\. Error: \w+", Kind.ERROR),
    _pattern(r"Failed to (?:open|write) context cache file\.", Kind.ERROR),
)

#: What stands before the words of QNN or of onnxruntime and says nothing about the refusal.
PREAMBLE = re.compile(
    r"^\w+: \[ONNXRuntimeError\] : \d+ : [A-Z_]+ : (?:Load model from \S+ failed:)?(?:Fatal error: )?"
    r"|^\[[EW]:[^\]]*\] "
)
