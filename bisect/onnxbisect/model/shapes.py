"""The concrete type of every tensor and the values that do not depend on the inputs: by running, else by inference."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx
from onnx import helper

from onnxbisect.fingerprint import brief
from onnxbisect.language import english, some
from onnxbisect.model.binding import is_unbound
from onnxbisect.model.facts import dims_of, fixed_dims, peak, size_of, with_sizes_of
from onnxbisect.model.infer import infer
from onnxbisect.model.opaque import opaque_nodes
from onnxbisect.model.run import (
    Beliefs,
    Run,
    RunRequest,
    declared_otherwise,
    known_otherwise,
    run,
    types_of_runtime,
    untyped,
)
from onnxbisect.model.runnable import Sample, StandIns, agrees, assumptions, select, stand_ins, unmarked
from onnxbisect.model.scopes import domain_of, is_constant, qualified, reads
from onnxbisect.model.session import Clock
from onnxbisect.model.shapeops import EXPANDING, Level, constness

#: Largest value, in bytes, that is kept.
_VALUE_LIMIT = 64 << 20


def affordable(sizes: Mapping[str, int], met: Collection[str], budget: int) -> set[str]:
    """The values to keep within `budget` bytes: first those named in `met`, then others, smaller ones first."""
    chosen: set[str] = set()
    for name in sorted(sizes, key=lambda name: (name not in met, sizes[name], name)):
        if sizes[name] <= min(budget, _VALUE_LIMIT):
            budget -= sizes[name]
            chosen.add(name)
    return chosen


def results_of_static(
    graph: onnx.GraphProto, types: Mapping[str, onnx.TypeProto], wanted: Collection[str]
) -> dict[str, np.ndarray]:
    """The `wanted` results of Shape and Size nodes whose input has a static shape, without running the nodes."""
    found: dict[str, np.ndarray] = {}
    for node in graph.node:
        if node.op_type not in ("Shape", "Size") or domain_of(node) or node.output[0] not in wanted:
            continue
        kind = types.get(node.input[0])
        if kind is None or size_of(kind) is None:
            continue
        dims = np.array(dims_of(kind), dtype=np.int64)
        if node.op_type == "Size":
            found[node.output[0]] = np.array(dims.prod(), dtype=np.int64)
        else:
            span = {attribute.name: attribute.i for attribute in node.attribute}
            found[node.output[0]] = dims[span.get("start", 0) : span.get("end")]
    return found


#: Bytes of all known values together, and of one that is computed without knowing its size; less where memory is short.
_VALUES, _VALUES_SHARE = 256 << 20, 4
#: Rounds of "infer, compute what became computable"; each settles one more shape computation behind an unknown one.
_ROUNDS = 12
#: Rounds of running the model with more nodes replaced by what is believed of them.
_BELIEFS = 8
#: Rounds of guessing the dtypes of custom ops that stand behind each other.
_GUESSES = 50


@dataclass(frozen=True, kw_only=True)
class EstablishedTypes:
    """What `Model` keeps of this module's work, under the same names."""

    types: Mapping[str, onnx.TypeProto]
    known: Mapping[str, np.ndarray]
    data_dependent: tuple[str, ...]
    notes: tuple[str, ...]
    costly: tuple[str, ...]


def establish(
    proto: onnx.ModelProto,
    folder: Path,
    declared: Mapping[str, onnx.TypeProto],
    *,
    memory_limit: int,
    seconds: float,
    sample: Sample = MappingProxyType({}),
) -> EstablishedTypes:
    """Types and values for a model whose nodes are sorted and whose inputs are bound as far as they will be.

    `declared` are the types that the file claims; they are believed behind ops without a schema, where a run on made-up
    inputs fails, and where sizes depend on values of inputs. The model runs for at most so many seconds, all its parts
    together; on the `sample` where there is one and it works.
    """
    return _Establish(proto, folder, declared, memory_limit, Clock(seconds), sample).facts()


class _Establish:
    def __init__(
        self,
        proto: onnx.ModelProto,
        folder: Path,
        declared: Mapping[str, onnx.TypeProto],
        memory_limit: int,
        clock: Clock,
        sample: Sample,
    ) -> None:
        self._clock, self._sample = clock, sample
        self._values = min(_VALUES, memory_limit // _VALUES_SHARE)
        self._costly: set[int] = set()
        self._proto, self._folder, self._memory_limit = proto, folder, memory_limit
        self._nodes = proto.graph.node
        self._notes: list[str] = []
        self._opaque = opaque_nodes(proto)
        self._claimed = declared
        self._declared = {
            name: declared[name]
            for index in self._opaque
            for name in self._nodes[index].output
            if name in declared and declared[name].WhichOneof("value")
        }
        self._types = infer(proto, {}, {})
        self._produced = [name for node in self._nodes if not is_constant(node) for name in node.output if name]
        self._static: set[str] = set()
        self._levels = constness(proto)
        self._prove_static(self._types)
        self._exact: dict[str, onnx.TypeProto] = {}
        self._known: dict[str, np.ndarray] = {}

    def facts(self) -> EstablishedTypes:
        everything = frozenset(range(len(self._nodes)))
        # The settled part is small, and with its values inference can tell how large the rest is.
        ran = (
            self._settle(frozenset())
            if any(name not in self._types or is_unbound(self._types[name]) for name in self._produced)
            else frozenset()
        )
        needed = peak(self._proto.graph, self._types)
        if needed > self._memory_limit:
            self._notes.append(
                english(
                    "Running the model would take {needed} MB, more than the limit of {limit} MB: shapes "
                    "come from shape inference.",
                    needed=needed >> 20,
                    limit=self._memory_limit >> 20,
                )
            )
        else:
            ran |= self._run_all(everything)
        if ran != everything or self._fetchable() - self._known.keys():
            self._guess(self._settle(ran))
        kept = affordable({name: array.nbytes for name, array in self._known.items()}, *self._allowance())
        wanted = self._levels.values - self._unshaped()
        dropped = [
            name
            for name in self._produced
            if name not in kept and name in wanted and (name in self._known or name in self._exact)
        ]
        if dropped:
            self._notes.append(
                english("Constant values too large to be kept, treated as computed: {names}.", names=some(dropped))
            )
        opened = self._opened()
        return EstablishedTypes(
            types={**self._types, **opened},
            known={name: self._known[name] for name in self._produced if name in kept},
            data_dependent=tuple(opened),
            notes=tuple(self._notes),
            costly=tuple(self._nodes[index].name for index in sorted(self._costly)),
        )

    def _prove_static(self, types: Mapping[str, onnx.TypeProto]) -> None:
        """Take shapes that no input value can change, found without looking at a run on made-up inputs."""
        static = {name for name, kind in types.items() if kind.HasField("tensor_type") and not is_unbound(kind)}
        if not static <= self._static:
            self._static |= static
            self._levels = constness(self._proto, self._static)

    def _missing(self) -> set[str]:
        """Graph inputs that cannot be fed: no tensors, or with a dimension that nobody has bound."""
        return {
            value.name
            for value in self._proto.graph.input
            if not value.type.HasField("tensor_type") or is_unbound(value.type)
        }

    def _run_all(self, everything: frozenset[int]) -> frozenset[int]:
        substitutes = stand_ins(self._proto.graph, self._opaque, self._types, self._declared)
        missing = self._missing()
        if substitutes and not missing:
            outcome, beliefs = self._run_believing(everything, substitutes)
            if not outcome.refused and agrees(self._proto.graph.output, outcome.shapes):
                used = {index: kinds for index, kinds in substitutes.items() if index in outcome.ran}
                self._notes += assumptions(self._proto.graph, used)
                # What is assumed of a custom op's shape is assumed of all that is computed from the shape.
                self._accept(outcome, {**used, **beliefs.nodes})
                self._notes += beliefs.notes(self._proto.graph)
                return outcome.ran
        outcome, beliefs = self._run_believing(everything, {})
        self._accept(outcome, beliefs.nodes)
        self._notes += beliefs.notes(self._proto.graph)
        if outcome.refused:
            ops = dict.fromkeys(qualified(self._nodes[index]) for index in outcome.refused)
            words = brief(unmarked(next(iter(outcome.refused.values())), self._proto.graph))
            self._notes.append(
                english(
                    "onnxruntime does not run {names} ({words}): types behind them come from shape inference.",
                    names=some(list(ops)),
                    words=words,
                )
            )
        unfed = [value.name for value in self._proto.graph.input if value.name in missing]
        if unfed:
            self._notes.append(
                english(
                    "Nodes that depend on {names} were not run, because of unbound dimensions or inputs "
                    "that are no tensors: their types come from shape inference.",
                    names=some(unfed),
                )
            )
        return outcome.ran

    def _run_believing(self, everything: frozenset[int], substitutes: StandIns) -> tuple[Run, Beliefs]:
        """Run all nodes, with `substitutes` in place of custom ops.

        Types that are believed take the place of nodes that do not run on made-up inputs, or whose sizes depend on the
        values of these. The run's `refused` are those for which there is nothing to believe.
        """
        graph = self._proto.graph
        nodes = everything - (self._opaque.keys() - substitutes.keys())
        beliefs = Beliefs()
        outcome = self._run(nodes, substitutes)
        for _ in range(_BELIEFS):
            refused = {index: words for index, words in outcome.refused.items() if index not in beliefs.nodes}
            sources = [self._types, self._claimed]
            if unknown := untyped(graph, refused, sources):
                runnable = select(graph, nodes, self._missing(), self._known)
                sources.append(types_of_runtime(self._proto, self._folder, runnable, self._known, unknown))
            typed = known_otherwise(graph, refused, sources)
            certain = self._certain_shapes(beliefs.tensors(graph))
            sized = declared_otherwise(graph, outcome, self._types, self._claimed, certain)
            if not typed and not sized:
                break
            beliefs = beliefs.with_more(typed, sized, refused)
            outcome = self._run(nodes, {**substitutes, **beliefs.nodes})
        return replace(
            outcome, refused={it: said for it, said in outcome.refused.items() if it not in beliefs.nodes}
        ), beliefs

    def _accept(self, outcome: Run, assumed: Collection[int]) -> None:
        """Learn from a run, and take for certain what was assumed of these nodes."""
        self._learn(outcome)
        names = [name for index in assumed for name in self._nodes[index].output if name in self._exact]
        self._declared |= {name: self._exact[name] for name in names}
        if names:
            self._prove_static(self._declared)

    def _run(self, nodes: Collection[int], substitutes: StandIns) -> Run:
        request = RunRequest(
            proto=self._proto,
            folder=self._folder,
            nodes=set(nodes) - (self._costly - substitutes.keys()),
            missing=self._missing(),
            given=self._known,
            values=self._fetchable(),
            dtypes={n: t.tensor_type.elem_type for n, t in self._types.items() if t.HasField("tensor_type")},
            unshaped=self._unshaped(),
            substitutes=substitutes,
            sample=self._sample,
        )
        outcome = run(request, self._clock)
        self._costly |= outcome.costly
        return outcome

    def _unshaped(self) -> set[str]:
        return {name for name, kind in self._types.items() if not kind.HasField("tensor_type")}

    def _learn(self, outcome: Run) -> None:
        for name, shape in outcome.shapes.items():
            kind = self._types.get(name)
            dtype = kind.tensor_type.elem_type if kind is not None else outcome.dtypes.get(name, 0)
            if dtype:
                self._exact[name] = helper.make_tensor_type_proto(dtype, shape)
        self._known |= outcome.values
        self._types = self._types | self._exact

    def _settle(self, ran: frozenset[int]) -> frozenset[int]:
        """Alternate inference with running the value-known nodes that it made computable; returns all that ran."""
        for _ in range(_ROUNDS):
            before = len(self._known), len(self._exact)
            sure = {name: kind for name, kind in self._exact.items() if name in self._levels.shapes}
            proven = infer(self._proto, sure | self._declared, self._known)
            self._prove_static(proven)
            self._types = proven | self._exact
            self._known |= results_of_static(self._proto.graph, self._types, self._levels.values - self._known.keys())
            # Nodes all of whose outputs are value-known, and of which it is certain that they make nothing huge.
            settled = {
                index
                for index, node in enumerate(self._nodes)
                if index not in self._opaque
                and self._levels.values.issuperset(filter(None, node.output))
                and not any(
                    node.op_type in EXPANDING if size is None else size > self._values
                    for size in (size_of(self._types.get(name)) for name in node.output if name)
                )
            }
            runnable = select(self._proto.graph, settled, self._missing(), self._known)
            wanted = self._fetchable() - self._known.keys()
            if not ran.issuperset(runnable) or any(wanted.intersection(self._nodes[n].output) for n in runnable):
                outcome = self._run(runnable, {})
                ran |= outcome.ran
                self._learn(outcome)
            if (len(self._known), len(self._exact)) == before:
                break
        self._types = infer(self._proto, self._exact | self._declared, self._known) | self._exact
        return ran

    def _allowance(self) -> tuple[set[str], int]:
        """Which known tensors every cut meets, as a computed node reads them, and how many bytes all may have."""
        met = {
            name
            for node in self._nodes
            if not self._levels.values.issuperset(filter(None, node.output))
            for name in reads(node)
        }
        return met, self._values

    def _fetchable(self) -> set[str]:
        """Value-known tensors whose size is known and not too large."""
        sizes = {name: size_of(self._types.get(name)) for name in self._produced if name in self._levels.values}
        return affordable({name: size for name, size in sizes.items() if size is not None}, *self._allowance())

    def _guess(self, ran: frozenset[int]) -> None:
        """Give the outputs of custom ops, where nothing is known of them, the dtype of the op's first input."""
        believed = [name for name in self._declared if name not in self._exact]
        guessed: dict[str, onnx.TypeProto] = {}
        for _ in range(_GUESSES):
            fresh = {}
            for index in self._opaque:
                node = self._nodes[index]
                source = next((self._types[name] for name in node.input if name in self._types), None)
                if source is not None and source.HasField("tensor_type"):
                    kind = helper.make_tensor_type_proto(source.tensor_type.elem_type, None)
                    fresh.update({name: kind for name in node.output if name and name not in self._types})
            if not fresh:
                break
            guessed |= fresh
            self._types = infer(self._proto, self._exact | self._declared | guessed, self._known)
        if believed:
            self._notes.append(
                english("Behind custom ops, types are those that the file declares: {names}.", names=some(believed))
            )
        if guessed:
            self._declared |= guessed
            self._settle(ran)
            self._notes.append(
                english(
                    "Nothing declares the type of {names}, behind custom ops. It is assumed to have the "
                    "dtype of the op's first input, and an unknown shape.",
                    names=some(list(guessed)),
                )
            )
        untyped = [name for name in self._produced if name not in self._types]
        if untyped:
            self._notes.append(english("No type could be established for {names}.", names=some(untyped)))

    def _certain_shapes(self, settled: Collection[str]) -> frozenset[str]:
        """Tensors whose shape no value of an input is known to change; unbound inputs and custom ops do not count.

        Short lists of integers in the user's sample are taken for the sizes that the user wants.
        """
        given = [name for name, array in self._sample.items() if array.ndim <= 1 and array.dtype.kind in "iu"]
        settled = {*self._static, *self._missing(), *settled}
        return constness(self._proto, settled, given=given, others=Level.SHAPE).shapes

    def _opened(self) -> dict[str, onnx.TypeProto]:
        """The types of tensors whose size may depend on input values, with those numbers that follow for all inputs."""
        certain = self._certain_shapes(())
        agreed = [name for name in self._produced if name not in certain and self._is_declared_as_seen(name)]
        certain = self._certain_shapes(agreed)
        open_ = (self._types.keys() - certain - self._static - self._unshaped()).intersection(self._produced)
        names = [name for name in self._produced if name in open_]
        if not names:
            return {}
        if any(name in self._exact for name in names):
            self._notes.append(english("Sizes that may depend on input values stay open: {names}.", names=some(names)))
        sure = {name: kind for name, kind in self._types.items() if name not in open_}
        proven = infer(self._proto, sure, self._known)
        return {name: with_sizes_of(proven.get(name), self._types[name]) for name in names}

    def _is_declared_as_seen(self, name: str) -> bool:
        claimed, seen = self._claimed.get(name), self._types.get(name)
        if claimed is None or seen is None or not claimed.HasField("tensor_type"):
            return False
        return not is_unbound(claimed) and fixed_dims(claimed) == fixed_dims(seen)
