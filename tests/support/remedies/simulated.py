"""A compiler that refuses certain ops at certain ranks, asked as a repair asks; and the graphs that it is shown."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxbisect.cut import Cutter, units_of_nodes, write
from onnxbisect.diagnosis import CompletedDiagnosis, Diagnosis, ProbeRecord, Stats, Target
from onnxbisect.key import Keyer
from onnxbisect.model import Model, load
from onnxbisect.model.facts import TensorFacts
from onnxbisect.model.runnable import Sample
from onnxbisect.model.scopes import qualified, walk
from onnxbisect.proof import edge_feeds, random_feeds
from onnxbisect.remedies import LowPrecision, OrtProver, Repair, Samples, SearchedModel, repair
from onnxbisect.rewrites import Exactness, Rule, installed
from onnxbisect.search import next_asks, plan
from onnxbisect.unitset import UnitSet, members
from onnxbisect.verdict import Kind, Status, Verdict

#: Whether a compiler refuses a node of this op whose first input has this rank.
Refuses = Callable[[str, int], bool]


@dataclass(kw_only=True)
class SimulatedCompiler:
    """Refuses a model for any node that `refuses`, in bodies as well, and for two neighbours whose ops are in `chains`.
    Silent.

    `calls` are the compiles of `base`, which keeps verdicts by the structure of a probe, for all models together.
    `asked` are the ops of pieces that were asked before a whole repaired model was; `diagnosed` counts these.
    """

    folder: Path
    refuses: Refuses
    chains: Collection[tuple[str, str]] = ()
    calls: int = 0
    models: int = 0
    diagnosed: int = 0
    asked: list[list[str]] = field(default_factory=list)
    base: dict[str, Verdict] = field(default_factory=dict)

    def diagnose(self, model: onnx.ModelProto, refused: Collection[str] = (), *, brief: bool = False) -> SearchedModel:
        self.diagnosed += brief
        return replace(self.search(_doubting(self.read(model), refused), brief=brief), brief=brief)

    def whole(self, model: onnx.ModelProto) -> SearchedModel:
        return self.search(self.read(model), most=1)

    def ask(
        self, model: onnx.ModelProto, nodes: Collection[str], doubted: Collection[str] = (), *, whole: bool = False
    ) -> SearchedModel:
        read = self.read(model)
        piece = Cutter(read).cut(units_of_nodes(read, list(nodes)))
        self.asked.append([node.op_type for node in piece.proto.graph.node])
        path = self._path()
        write(piece, read, path)
        found = self.search(_doubting(load(path), doubted), most=1 if whole else None, brief=True)
        return replace(found, names=piece.renamed)

    def inside(self, model: onnx.ModelProto) -> "SimulatedCompiler":
        return self

    def read(self, model: onnx.ModelProto) -> Model:
        path = self._path()
        onnx.save(model, path)
        return load(path)

    def search(self, model: Model, most: int | None = None, *, brief: bool = False) -> SearchedModel:
        keyer = Keyer(model)
        verdicts: dict[UnitSet, list[Verdict]] = {}
        records: list[ProbeRecord] = []
        while True:
            asks = next_asks(model.universe, verdicts, brief=brief)
            if not asks or (most is not None and len(records) >= most):
                return SearchedModel(job=_job(model, plan(model.universe, verdicts, brief=brief).diagnosis, records))
            for ask in asks[:1]:
                key = keyer.key(ask.units)
                if key not in self.base:
                    self.calls += 1
                    self.base[key] = self._compile(model, ask.units)
                verdicts.setdefault(ask.units, []).append(self.base[key])
                records.append(ProbeRecord(key=key, units=ask.units, verdict=self.base[key], why=ask.why, round=0))

    def _compile(self, model: Model, units: UnitSet) -> Verdict:
        facts = TensorFacts.of(model)
        nodes = {unit: model.proto.graph.node[model.units[unit].node] for unit in members(units)}
        refused = [node.op_type for node in walk(list(nodes.values())) if is_refused(self.refuses, node, facts)]
        failed = bool(refused) or any(
            (node.op_type, nodes[after].op_type) in self.chains
            for unit, node in nodes.items()
            for after in members(model.universe.successors[unit] & units)
        )
        # the words differ: a compiler that refuses four ops in the same words, and takes nothing, counts as broken
        words = refused[0] if refused else ""
        return (
            Verdict(status=Status.FAIL, kind=Kind.ERROR, fingerprint=words) if failed else Verdict(status=Status.PASS)
        )

    def _path(self) -> Path:
        self.models += 1
        return self.folder / f"model{self.models}.onnx"


def _doubting(model: Model, nodes: Collection[str]) -> Model:
    units = units_of_nodes(model, list(nodes)) if nodes else 0
    return replace(model, universe=replace(model.universe, doubted=units))


def _job(model: Model, diagnosis: Diagnosis, records: Sequence[ProbeRecord]) -> CompletedDiagnosis:
    stats = Stats(compiler_calls=len(records), cached=0, rounds=0, compile_seconds=0, engine_seconds=0, wall_seconds=0)
    target = Target(backend="simulated", tool="simulated", version="1", options={})
    return CompletedDiagnosis(
        model=model, target=target, diagnosis=diagnosis, probes=tuple(records), preflight=(), stats=stats
    )


def is_refused(refuses: Refuses, node: onnx.NodeProto, facts: TensorFacts) -> bool:
    shape = facts.shape(node.input[0]) if node.input else ()
    return refuses(qualified(node), len(shape or ()))


def refusing(*ops: str) -> Refuses:
    return lambda op, _: op in ops


def repaired(
    model: onnx.ModelProto,
    compiler: SimulatedCompiler,
    *,
    rules: Sequence[Rule] = (),
    most: Exactness = Exactness.ROUNDING,
    samples: Sequence[Sample] = (),
    edge: Sequence[Sample] = (),
    low: int | None = None,
) -> Repair:
    """Repair a model with all rules, or with these, proven on samples of the model's inputs; for a target that holds
    float32 tensors in the type `low`, where it is not None.
    """
    before = compiler.search(compiler.read(model))
    inputs = before.model.proto.graph.input
    usual = list(samples) or list(random_feeds(inputs, 2))
    feeds = Samples(usual=usual, edge=edge if samples else list(edge_feeds(inputs, 2)))
    rounding = None if low is None else LowPrecision(dtype=low)
    prover = OrtProver(model, TensorFacts.of(before.model), lambda: feeds, folder=compiler.folder, low=rounding)
    return repair(before, model, compiler, prover, rules or installed().rules, most=most)


#: Ops of one float input and as many output elements.
UNARY = ("Abs", "HardSigmoid", "HardSwish", "LeakyRelu", "Neg", "Elu", "Relu", "Softplus", "Sigmoid", "Celu", "Mish")


def graph(steps: Sequence[tuple[str, int, int]], opset: int = 18) -> onnx.ModelProto:
    """A model of these steps: an op, and from which earlier tensors it takes its inputs. What nothing reads leaves."""
    shapes: dict[str, tuple[int, ...]] = {"x": (2, 3, 4)}
    nodes: list[onnx.NodeProto] = []
    stored = []
    for number, (op, one, other) in enumerate(steps):
        names = list(shapes)
        first = names[one % len(names)]
        out, name = f"t{number}", f"{op}_{number}"
        if op == "Gather" and shapes[first]:
            stored.append(numpy_helper.from_array(np.array(1, np.int64), f"{name}_index"))
            nodes.append(helper.make_node("Gather", [first, f"{name}_index"], [out], name=name, axis=0))
            shapes[out] = shapes[first][1:]
        elif op in ("Add", "Mul", "Sub", "Max", "Min"):
            alike = [it for it in names if shapes[it] == shapes[first]]
            nodes.append(helper.make_node(op, [first, alike[other % len(alike)]], [out], name=name))
            shapes[out] = shapes[first]
        else:
            nodes.append(helper.make_node(op if op in UNARY else "Relu", [first], [out], name=name))
            shapes[out] = shapes[first]
    read = {name for node in nodes for name in node.input}
    outputs = [name for name in shapes if name not in read and name != "x"]
    made = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shapes["x"])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name]) for name in outputs],
        stored,
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
