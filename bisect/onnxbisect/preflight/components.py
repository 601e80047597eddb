"""The parts of a model by the modules that it was exported from, and what of each depends on the data."""

from collections import Counter
from dataclasses import dataclass

from onnxbisect.preflight.subject import Subject

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
#: Nodes without a scope in their names, and those of components that are too many.
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
    """In model order; empty where the names of nodes tell no modules apart."""
    paths = [_path(node.name) for node in subject.nodes]
    level = _level(paths)
    if level is None:
        return ()
    names = ["/".join(path[: level + 1]) or OTHERS for path in paths]
    kept = {name for name, _ in Counter(names).most_common(_MOST)}
    groups: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        groups.setdefault(name if name in kept else OTHERS, []).append(index)
    return tuple(_component(subject, name, group) for name, group in groups.items())


def _component(subject: Subject, name: str, group: list[int]) -> Component:
    dynamic: Counter[str] = Counter()
    settled: Counter[str] = Counter()
    for index in group:
        node = subject.nodes[index]
        if node.domain in ("", "ai.onnx") and node.op_type in _DYNAMIC:
            # the branch of an If is settled by its condition, though what the branch computes is not
            decides = node.input[:1] if node.op_type == "If" else [name for name in node.output if name]
            (settled if all(name in subject.constants for name in decides) else dynamic)[node.op_type] += 1
    return Component(
        name=name, nodes=len(group), dynamic=tuple(dynamic.most_common()), settled=tuple(settled.most_common())
    )


def _path(name: str) -> tuple[str, ...]:
    """The modules around a node: `/decoder/layers.0/Gather` stands in `decoder`, `layers.0`."""
    return tuple(part for part in name.split("/")[:-1] if part)


def _level(paths: list[tuple[str, ...]]) -> int | None:
    """The outermost level at which there are several modules."""
    for level in range(max(map(len, paths), default=0)):
        if len({path[: level + 1] for path in paths if len(path) > level}) > 1:
            return level
    return None
