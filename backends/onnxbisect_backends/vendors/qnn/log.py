"""QNN's refusal messages, as patterns; `trace.py` reads its messages for single nodes."""

import re

from onnxbisect.verdict import Kind
from onnxbisect_backends.logs import Pattern, compile_pattern


def _pattern(regex: str, kind: Kind = Kind.UNSUPPORTED) -> Pattern:
    return Pattern(regex=compile_pattern(regex), kind=kind)


#: Texts of onnxruntime-qnn 2.7.0, for traces without nodes; the first match gives the kind. `MEM_ALLOC` is misleading:
#: QNN also reports it for plain ops that the chip does not support, so it is no evidence of size.
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

#: Unknown chips and full disks, for which there is no verdict.
NO_ANSWER = (
    _pattern(r"QNN SetupBackend failed Failed to create device\. Error: \w+", Kind.ERROR),
    _pattern(r"Failed to (?:open|write) context cache file\.", Kind.ERROR),
)

#: The prefix of QNN's and onnxruntime's messages.
PREAMBLE = re.compile(
    r"^\w+: \[ONNXRuntimeError\] : \d+ : [A-Z_]+ : (?:Load model from \S+ failed:)?(?:Fatal error: )?"
    r"|^\[[EW]:[^\]]*\] "
)
