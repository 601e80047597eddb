"""Group a model's nodes by exported module, and count the ops in each that depend on input values."""

from collections import Counter
from dataclasses import dataclass

from onnxbisect.model.modules import parts, path_of_node
from onnxbisect.preflight.subject import InspectedModel
from onnxbisect.unitset import UnitSet, members, size

#: Ops that exporters use for what may change between runs: sizes, branches, iterations, reads at an index.
_DYNAMIC = frozenset(
    {
        "Compress",
        "ConstantOfShape",
        "If",
        "Loop",
        "NonMaxSuppression",
        "NonZero",
        "Range",
        "Scan",
        "Shape",
        "Size",
        "Unique",
    }
)
#: Most components that are shown.
_MOST = 12
#: Name of the group of nodes that are in no module, or in a module beyond the limit.
OTHERS = "(others)"


@dataclass(frozen=True, kw_only=True)
class ModelModule:
    """One module of the model.

    `dynamic` counts dynamic ops whose results depend on input values or unbound sizes; `settled` counts those whose
    results are constant.
    """

    name: str
    nodes: int
    dynamic: tuple[tuple[str, int], ...]
    settled: tuple[tuple[str, int], ...]


def components(subject: InspectedModel) -> tuple[ModelModule, ...]:
    """The components in model order; empty where node names and exporter metadata distinguish no modules."""
    found = parts({index: path_of_node(node) for index, node in enumerate(subject.nodes)})
    kept = sorted(found, key=lambda path: size(found[path]), reverse=True)[:_MOST]
    groups: dict[str, UnitSet] = {}
    for path, nodes in found.items():
        name = "/".join(path) if path and path in kept else OTHERS
        groups[name] = groups.get(name, 0) | nodes
    return tuple(_component(subject, name, nodes) for name, nodes in groups.items())


def _component(subject: InspectedModel, name: str, nodes: UnitSet) -> ModelModule:
    dynamic: Counter[str] = Counter()
    settled: Counter[str] = Counter()
    for index in members(nodes):
        node = subject.nodes[index]
        if node.domain in ("", "ai.onnx") and node.op_type in _DYNAMIC:
            # An If is settled if its condition is constant, although what the branch computes may not be.
            decides = node.input[:1] if node.op_type == "If" else [name for name in node.output if name]
            (settled if all(name in subject.constants for name in decides) else dynamic)[node.op_type] += 1
    return ModelModule(
        name=name, nodes=size(nodes), dynamic=tuple(dynamic.most_common()), settled=tuple(settled.most_common())
    )
