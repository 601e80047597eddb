"""The parts of a model by the modules that it was exported from, and what of each depends on the data."""

from collections import Counter
from dataclasses import dataclass

from onnxbisect.model.modules import parts, path_of_node
from onnxbisect.preflight.subject import Subject
from onnxbisect.unitset import UnitSet, members, size

#: Ops by which an exporter writes what may change from run to run: sizes, branches, rounds, reads at an index.
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
#: So many components are shown; more than that are no overview.
_MOST = 12
#: Nodes in no module, and those of components that are too many.
OTHERS = "(others)"


@dataclass(frozen=True, kw_only=True)
class Component:
    """One module of the model. `dynamic` counts ops whose results depend on the inputs' values or unbound sizes,
    `settled` those of the same ops that compute the same whatever the inputs.
    """

    name: str
    nodes: int
    dynamic: tuple[tuple[str, int], ...]
    settled: tuple[tuple[str, int], ...]


def components(subject: Subject) -> tuple[Component, ...]:
    """In model order; empty where the exporter's metadata and the names of nodes tell no modules apart."""
    found = parts({index: path_of_node(node) for index, node in enumerate(subject.nodes)})
    kept = sorted(found, key=lambda path: size(found[path]), reverse=True)[:_MOST]
    groups: dict[str, UnitSet] = {}
    for path, nodes in found.items():
        name = "/".join(path) if path and path in kept else OTHERS
        groups[name] = groups.get(name, 0) | nodes
    return tuple(_component(subject, name, nodes) for name, nodes in groups.items())


def _component(subject: Subject, name: str, nodes: UnitSet) -> Component:
    dynamic: Counter[str] = Counter()
    settled: Counter[str] = Counter()
    for index in members(nodes):
        node = subject.nodes[index]
        if node.domain in ("", "ai.onnx") and node.op_type in _DYNAMIC:
            # the branch of an If is settled by its condition, though what the branch computes is not
            decides = node.input[:1] if node.op_type == "If" else [name for name in node.output if name]
            (settled if all(name in subject.constants for name in decides) else dynamic)[node.op_type] += 1
    return Component(
        name=name, nodes=size(nodes), dynamic=tuple(dynamic.most_common()), settled=tuple(settled.most_common())
    )
