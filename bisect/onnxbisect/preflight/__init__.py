"""What can be said of a model before any compiler is called.

A finding is a property that compilers are known to object to, with its reason and its remedy; the texts are in
`checks.toml`, one function for each in the module of what it looks at. Findings are adapted to the target that will
read the file (`target`), and nothing here decides a verdict. Start with `run`.
"""

from onnxbisect.finding import Finding, Severity
from onnxbisect.preflight.ops import LAST_WITH_AXES_ATTRIBUTES
from onnxbisect.preflight.run import (
    Inspection,
    ModelModule,
    OpUse,
    PreflightCheck,
    Tensor,
    checks,
    inspect,
    inspection_document,
    preflight,
)
from onnxbisect.preflight.structure import NEWEST_IR_IN_GENERAL, NEWEST_OPSET_IN_GENERAL, contradict, invalid_nodes
from onnxbisect.preflight.subject import type_text
from onnxbisect.preflight.target import (
    DISPUTED,
    NEWER_THAN_TOOL,
    REFUSED_AT_BOUNDARY,
    OpIssue,
    OpRecord,
    ToolLimits,
    after_pass,
    settled_by,
)

__all__ = [
    "DISPUTED",
    "LAST_WITH_AXES_ATTRIBUTES",
    "NEWER_THAN_TOOL",
    "NEWEST_IR_IN_GENERAL",
    "NEWEST_OPSET_IN_GENERAL",
    "REFUSED_AT_BOUNDARY",
    "Finding",
    "Inspection",
    "ModelModule",
    "OpIssue",
    "OpRecord",
    "OpUse",
    "PreflightCheck",
    "Severity",
    "Tensor",
    "ToolLimits",
    "after_pass",
    "checks",
    "contradict",
    "inspect",
    "inspection_document",
    "invalid_nodes",
    "preflight",
    "settled_by",
    "type_text",
]
