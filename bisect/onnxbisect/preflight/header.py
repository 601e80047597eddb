"""Checks of versions and names, which tools read before any op."""

import re
from collections import Counter

from onnxbisect.language import count, english, shortened
from onnxbisect.preflight.subject import CheckResult, InspectedModel, unique

#: The oldest opset that pulsar2 documents.
_OLDEST = 11
#: The newest opset and IR version that the onnx inside RKNN and TPU-MLIR knows.
NEWEST_OPSET_IN_GENERAL, NEWEST_IR_IN_GENERAL = 19, 9
_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")


def opset_too_old(subject: InspectedModel) -> CheckResult | None:
    """A default-domain opset below 11."""
    version = subject.opset
    return CheckResult(detail=f"opset {version}") if version is not None and version < _OLDEST else None


def opset_too_new(subject: InspectedModel) -> CheckResult | None:
    """A default-domain opset above 19."""
    version = subject.opset
    return CheckResult(detail=f"opset {version}") if version is not None and version > NEWEST_OPSET_IN_GENERAL else None


def ir_version_too_new(subject: InspectedModel) -> CheckResult | None:
    """An IR version above 9."""
    version = subject.original.ir_version
    return CheckResult(detail=f"IR version {version}") if version > NEWEST_IR_IN_GENERAL else None


def missing_default_domain(subject: InspectedModel) -> CheckResult | None:
    """The model imports no opset for the standard ops."""
    imports = tuple(item.domain for item in subject.original.opset_import)
    return CheckResult(detail=english("imports {some}", some=shortened(imports))) if subject.opset is None else None


def duplicate_node_name(subject: InspectedModel) -> CheckResult | None:
    """Nodes of the file that share a name or have none; `nodes` are the generated names that reports use."""
    given = Counter(node.name for node in subject.original.graph.node)
    twice = unique(name for name, times in given.items() if name and times > 1)
    if not twice and not given[""]:
        return None
    unclear = {n.output[0] for n in subject.original.graph.node if given[n.name] > 1 or not n.name}
    parts = [english("{nodes} without a name", nodes=count(given[""], "node"))] * bool(given[""])
    parts += [english("shared: {some}", some=shortened(twice))] * bool(twice)
    return CheckResult(
        nodes=tuple(n.name for n in subject.graph.node if n.output[0] in unclear), detail="; ".join(parts)
    )


def odd_names(subject: InspectedModel) -> CheckResult | None:
    """Inputs and outputs whose names have characters other than letters, digits, `_`, `.` and `-`."""
    boundary = (*subject.inputs, *(value.name for value in subject.graph.output))
    names = tuple(name for name in boundary if not _PLAIN.fullmatch(name))
    inner = sum(1 for name in subject.activations if not _PLAIN.fullmatch(name))
    texts = tuple(repr(name) for name in names)
    return (
        CheckResult(tensors=names, detail=english("{some}; {inner} tensors in all", some=shortened(texts), inner=inner))
        if names
        else None
    )


CHECKS = {
    "opset-too-old": opset_too_old,
    "opset-too-new": opset_too_new,
    "ir-version-too-new": ir_version_too_new,
    "missing-default-domain": missing_default_domain,
    "duplicate-node-name": duplicate_node_name,
    "odd-names": odd_names,
}
