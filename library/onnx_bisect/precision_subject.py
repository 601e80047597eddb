"""What a search for nodes that must stay precise is about: a model, and the arithmetic of a target that runs it."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from onnxbisect.model.model import Model
from onnxbisect.model.modules import ModulePath, path_of_node
from onnxbisect.model.runnable import Sample
from onnxbisect.precision.low import blamed_first, can_be_low, interleaved, suspicion
from onnxbisect.precision.plan import Space
from onnxbisect.precision.wanted import Low, Wanted
from onnxbisect.split.choose import total, work_of
from onnxbisect.unitset import UnitSet, members, of
from onnxbisect_backends.contract import Backend, Limits, computes_mixed
from onnxbisect_backends.precision.arithmetic import Arithmetic, OrtArithmetic, ReferenceRun
from onnxbisect_backends.precision.targets import HostedTarget, SelfQuantisingTarget, TargetArithmetic, tensors_of_nodes

#: The backend whose arithmetic every search begins with.
SCREEN = "onnxruntime"
#: Nodes of a module on average: of fewer, each is as well asked about alone.
_IN_MODULE = 4


class PrecisionSubject:
    """The model of a search, in full precision, and what is wanted of it."""

    def __init__(self, model: Model, measured: ReferenceRun, low: Low, want: Wanted) -> None:
        self.model, self.measured, self.low, self.want = model, measured, low, want
        self.nodes = [model.proto.graph.node[unit.node] for unit in model.units]
        self.work = work_of(model)

    @property
    def space(self) -> Space:
        """The nodes that can be low, the most suspect first, in groups of one module, or of one variant."""
        units = [unit for unit, node in enumerate(self.nodes) if can_be_low(node, self.low, self.measured.seen)]
        variants: dict[int, list[int]] = {}
        for unit in units:
            variants.setdefault(self.model.universe.variant[unit], []).append(unit)
        return Space(
            order=self.by_suspicion(units),
            groups=(self.modules(units) or tuple(of(group) for group in variants.values()),),
            work={unit: self.share(1 << unit) for unit in units},
        )

    @property
    def candidates(self) -> list[str]:
        """The names of the nodes that can be low, the most suspect first."""
        return [self.nodes[unit].name for unit in self.space.order]

    def modules(self, units: Sequence[int]) -> tuple[UnitSet, ...]:
        """These nodes by the modules of the user's network, as deep as leaves `_IN_MODULE` in one on average.

        Empty where the exporter recorded none.
        """
        paths = {unit: path_of_node(self.nodes[unit]) for unit in units}
        for depth in range(max(map(len, paths.values()), default=0), 0, -1):
            found: dict[ModulePath, list[int]] = {}
            for unit, path in paths.items():
                found.setdefault(path[:depth], []).append(unit)
            if len(found) * _IN_MODULE <= len(units):
                return tuple(of(group) for group in found.values()) if len(found) > 1 else ()
        return ()

    def by_suspicion(self, units: Iterable[int]) -> tuple[int, ...]:
        """These nodes, the most suspect first."""
        seen, weights = self.measured.seen, self.measured.weights
        doubt = {unit: suspicion(self.nodes[unit], self.low, seen, weights) for unit in units}
        return tuple(sorted(doubt, key=lambda unit: (-doubt[unit], unit)))

    def names(self, units: UnitSet) -> frozenset[str]:
        """The names of these nodes."""
        return frozenset(self.nodes[unit].name for unit in members(units))

    def share(self, units: UnitSet) -> float:
        """The share of the model's work that these nodes do."""
        return total(self.work, units) / total(self.work, self.model.universe.everything) if units else 0.0


@dataclass(frozen=True, kw_only=True)
class PrecisionQuestion:
    """What is searched: the model, which reports call `name`, on samples in a folder, in the backend's arithmetic."""

    model: Model
    name: str
    backend: Backend
    samples: Path
    low: Low
    want: Wanted
    limits: Limits
    #: The names of the layers in which a tool saw errors, the worst first.
    blamed: Sequence[Sequence[str]] = ()


@dataclass(frozen=True, kw_only=True)
class MeasuredModel:
    """One model on its target: what runs it with nodes low, and the nodes of which the target can be told.

    `tensors` are those of each node, of a compiler that quantises by itself.
    """

    model: Model
    quantiser: OrtArithmetic
    arithmetic: Arithmetic
    subject: PrecisionSubject
    space: Space
    tensors: Mapping[str, Sequence[str]]


class AskedTarget:
    """Where models are asked about, one and those that compute the same; their processes end with `stack`."""

    def __init__(self, asked: PrecisionQuestion, samples: Sequence[Sample], stack: ExitStack, work: Path) -> None:
        self.low, self.work = asked.low, work
        self._chosen, self._want, self._blamed = asked.backend, asked.want, asked.blamed
        self._limits, self._samples, self._stack = asked.limits, samples, stack

    def on(self, model: Model, name: str = "model", like: PrecisionSubject | None = None) -> MeasuredModel:
        """The model on the target; with `like` the outputs are compared with those of another."""
        folder = self.work / name
        folder.mkdir()
        quantiser = self._stack.enter_context(
            OrtArithmetic(model, self._samples, self.low, folder, self._limits.seconds)
        )
        measured = quantiser.measure()
        if like is not None:
            measured = replace(measured, reference=like.measured.reference)
        subject = PrecisionSubject(model, measured, self.low, self._want)
        space, tensors = subject.space, dict[str, Sequence[str]]()
        arithmetic: Arithmetic = quantiser
        graph = model.proto.graph
        blamed: Sequence[Sequence[str]] = [tuple(tensors_of_nodes(graph, it)) for it in self._blamed]
        if self._chosen.name != SCREEN and space.order:
            if self.low is Low.FLOAT16:
                arithmetic = HostedTarget(quantiser, model, self._chosen, self._limits)
            elif computes_mixed(self._chosen):
                arithmetic = target = SelfQuantisingTarget(quantiser, self._chosen, self._limits)
                target.quantise(graph)
                tensors.update(target.tensors)
                blamed = blamed or target.blamed
                there = [unit for unit, node in enumerate(subject.nodes) if node.name in tensors]
                space = replace(space, order=subject.by_suspicion(there), groups=(subject.modules(there),))
            else:
                arithmetic = TargetArithmetic(quantiser, self._chosen, self._limits)
        if hint := blamed_first(graph, blamed, {subject.nodes[unit].name: unit for unit in space.order}):
            # the worst layers are of many modules, which has the groups of all of them precise
            space = replace(space, order=interleaved(space.order, hint), groups=())
        return MeasuredModel(
            model=model, quantiser=quantiser, arithmetic=arithmetic, subject=subject, space=space, tensors=tensors
        )


def likely(space: Space, keep: UnitSet) -> Space:
    """The space with a set that suffices elsewhere, which is asked about first."""
    order = sorted(space.order, key=lambda unit: not keep >> unit & 1)
    return replace(space, order=tuple(order), guess=keep & space.everything)
