"""A compiler made of rules: walks over a model as a front end does, and lists what it refuses.

Subgraphs of If, Loop and Scan are walked; a call of a model-local function is judged by the function's body; folded
nodes are not judged.
"""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import onnx
from onnx import TensorProto

from onnxbisect.model.scopes import is_constant, label, named_bodies, opset_versions, qualified
from onnxbisect.verdict import Kind
from onnxbisect_backends.simulator import constraints
from onnxbisect_backends.simulator.profiles import Effect, OpSupport, Profile, Unlisted

#: An op type, or `domain::Op`.
_NAME = re.compile(r"[\w.-]+(?:::[\w.-]+)?")

#: Op names, each of whose nodes feeds one of the next.
Chain = tuple[str, ...]


def parse_chain(text: str, mark: str = ">") -> Chain:
    """`"Div>Erf>Add"` as op names; raises ValueError for a missing or invalid name."""
    chain = tuple(name.strip() for name in text.split(mark))
    if not all(chain):
        raise ValueError(f"{text!r} lacks an op name; write it as A{mark}B{mark}C")
    for name in chain:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{text!r}: {name!r} is no op name; write it as A{mark}B{mark}C")
    return chain


def is_named(node: onnx.NodeProto, name: str) -> bool:
    """Whether `name` matches this node's op."""
    return name in (node.op_type, qualified(node))


@dataclass(frozen=True, kw_only=True, eq=False)
class Flow:
    """The dataflow among the nodes of one graph, without outer graphs and subgraphs."""

    nodes: Sequence[onnx.NodeProto]

    def first_match(self, chain: Chain) -> tuple[int, ...] | None:
        """Indices of the first nodes, in node order, that form the chain; None if there are none."""
        for index, node in enumerate(self.nodes):
            if is_named(node, chain[0]) and (found := self._extend(index, chain[1:], self._consumers)) is not None:
                return (index, *found)
        return None

    def is_part_of(self, index: int, chain: Chain) -> bool:
        """Whether the node at `index` is part of nodes that form the chain."""
        return any(
            is_named(self.nodes[index], name)
            and self._extend(index, chain[position + 1 :], self._consumers) is not None
            and self._extend(index, chain[:position][::-1], self._producers) is not None
            for position, name in enumerate(chain)
        )

    def _extend(self, index: int, names: Chain, step: Mapping[int, Iterable[int]]) -> tuple[int, ...] | None:
        if not names:
            return ()
        for other in step.get(index, ()):
            if is_named(self.nodes[other], names[0]) and (rest := self._extend(other, names[1:], step)) is not None:
                return (other, *rest)
        return None

    @cached_property
    def _producers(self) -> dict[int, list[int]]:
        origin = {name: index for index, node in enumerate(self.nodes) for name in node.output if name}
        return {
            index: list(dict.fromkeys(origin[name] for name in node.input if name in origin))
            for index, node in enumerate(self.nodes)
        }

    @cached_property
    def _consumers(self) -> dict[int, list[int]]:
        after: dict[int, list[int]] = {}
        for index, producers in self._producers.items():
            for producer in producers:
                after.setdefault(producer, []).append(index)
        return after


#: Domain, name and overload of a function.
_Key = tuple[str, str, str]
#: Nesting depth of calls beyond which functions count as recursive, which ONNX forbids.
_MAX_CALLS = 64
#: Bytes of an initializer whose value can decide a shape.
_SMALL = 1024


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The rules of the simulated compiler.

    With `everything_else`, ops that the profile does not list are accepted. `denied` ops are refused whatever the
    profile says. A `chains` entry fails if its ops follow each other along the dataflow, a `together` entry if all its
    ops occur anywhere in the model (twice if listed twice). `contexts` maps an op to the only chains in which it is
    accepted, listed or not. `input_dtypes` are the allowed dtypes of graph inputs, as onnxruntime spells them; None
    allows all.
    """

    profile: Profile
    everything_else: bool = False
    denied: frozenset[str] = frozenset()
    chains: tuple[Chain, ...] = ()
    together: tuple[tuple[str, ...], ...] = ()
    contexts: Mapping[str, tuple[Chain, ...]] = field(default_factory=dict)
    max_nodes: int | None = None
    input_dtypes: frozenset[str] | None = None

    def with_every_file_folded(self) -> "Rules | None":
        """The rules for a file of versions that the tool fully reads; None if they are the same."""
        newest = {"folds_max_opset": None, "folds_max_ir_version": None}
        if not self.profile.folds or not self.profile.model_fields_set & newest.keys():
            return None
        return replace(self, profile=self.profile.model_copy(update=newest))

    def name_of(self, node: onnx.NodeProto) -> str:
        """The node's op as in the profile."""
        return node.op_type if self.profile.ignores_domain else qualified(node)

    def support(self, node: onnx.NodeProto) -> OpSupport | None:
        """The profile's entry for the node's op, None if it is not listed."""
        if self.denies(node):
            return None
        listed = self.profile.ops.get(self.name_of(node))
        if listed is None and (self.everything_else or any(is_named(node, name) for name in self.contexts)):
            return OpSupport()
        return listed

    def unknown(self, node: onnx.NodeProto) -> bool:
        """Whether the node's op is neither supported nor refused."""
        if self.profile.unlisted is Unlisted.REFUSED or self.support(node) is not None or self.denies(node):
            return False
        return self.name_of(node) not in self.profile.refused

    def denies(self, node: onnx.NodeProto) -> bool:
        """Whether the node's op is refused by name."""
        return any(is_named(node, name) for name in self.denied)


@dataclass(frozen=True, kw_only=True)
class SimulatedRefusal:
    """One reason why the model does not compile.

    `nodes` are nodes of the main graph; for a node in a subgraph or function, the node that contains or calls it.
    `inside` is then the path, outermost first. `reason` is empty if the op is not listed. Kind `unknown` is no refusal:
    the profile does not say.
    """

    kind: Kind
    ops: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class _Place:
    """The place of a node outside the main graph: `holder` is the main graph's node, `inside` the path from there."""

    holder: str
    inside: tuple[str, ...]

    def then(self, step: str) -> "_Place":
        return replace(self, inside=(*self.inside, step))


def refusals(model: onnx.ModelProto, rules: Rules) -> tuple[SimulatedRefusal, ...]:
    """All refusals and unknown ops of this model, in node order."""
    imports = opset_versions(model.opset_import)
    opset = imports.get("", 1)
    profile = rules.profile
    if "" in imports and not (profile.opset_min or opset) <= opset <= (profile.opset_max or opset):
        reason = profile.opset_refusal
        for word, value in (("opset", opset), ("opset_min", profile.opset_min), ("opset_max", profile.opset_max)):
            reason = reason.replace(f"{{{word}}}", str(value))
        return (SimulatedRefusal(kind=Kind.INVALID, reason=reason),)
    too_new = profile.folds_max_opset is not None and opset > profile.folds_max_opset
    too_new |= profile.folds_max_ir_version is not None and model.ir_version > profile.folds_max_ir_version
    walk = _Walk(model=model, rules=rules, folds=profile.folds and not too_new)
    found = [*_input_refusals(model.graph, rules), *walk.graph(model.graph, outer=None, place=None)]
    found += [
        SimulatedRefusal(kind=Kind.ERROR, ops=ops, reason=f"{' and '.join(ops)} cannot both be in one model")
        for ops in rules.together
        if all(walk.seen[op] >= count for op, count in Counter(ops).items())
    ]
    if rules.max_nodes is not None and walk.count > rules.max_nodes and all(it.kind is Kind.UNKNOWN for it in found):
        found.append(
            SimulatedRefusal(kind=Kind.RESOURCE, reason=f"{walk.count} nodes do not fit, {rules.max_nodes} do")
        )
    return tuple(found)


@dataclass(kw_only=True)
class _Walk:
    """One pass over a model. `seen` counts the judged nodes by op type and by `domain::Op`."""

    model: onnx.ModelProto
    rules: Rules
    folds: bool
    seen: Counter[str] = field(default_factory=Counter)
    count: int = 0

    def __post_init__(self) -> None:
        self._functions = {(f.domain, f.name, f.overload): f for f in self.model.functions}
        self._calling: set[_Key] = set()
        self._answers: dict[Hashable, tuple[tuple[SimulatedRefusal, ...], Counter[str], int]] = {}

    def graph(
        self, graph: onnx.GraphProto, *, outer: constraints.GraphScope | None, place: _Place | None
    ) -> Iterator[SimulatedRefusal]:
        opsets = outer.opsets if outer else opset_versions(self.model.opset_import)
        scope = constraints.enter(graph, opsets=opsets, outer=outer)
        if outer is None:
            scope.infer = lambda: _inferred(self.model)
        return self._nodes(graph.node, scope, place)

    def _nodes(
        self, nodes: Iterable[onnx.NodeProto], scope: constraints.GraphScope, place: _Place | None
    ) -> Iterator[SimulatedRefusal]:
        judged = []
        for node in nodes:
            constant = scope.fold(node)
            # a Constant node is read before folding, so its own limits apply
            if constant and self.folds and not is_constant(node):
                continue
            judged.append(node)
        flow = Flow(nodes=judged)
        for index, node in enumerate(judged):
            owner = _Place(holder=node.name, inside=()) if place is None else place.then(label(node))
            folded = self.folds and is_constant(node)
            self.count += not folded
            self.seen.update({node.op_type, qualified(node)})
            key = (node.domain, node.op_type, node.overload)
            if key in self._functions and not self.rules.denies(node):
                yield from self._call(key, node, scope, owner)
            else:
                yield from self._judge(node, scope, owner, folded=folded)
                for name, body in named_bodies(node):
                    yield from self.graph(body, outer=scope, place=owner.then(name))
            for name, chains in self.rules.contexts.items():
                if is_named(node, name) and not any(flow.is_part_of(index, chain) for chain in chains):
                    yield SimulatedRefusal(kind=Kind.UNSUPPORTED, ops=(qualified(node),), nodes=(owner.holder,))
        for chain in self.rules.chains:
            if (match := flow.first_match(chain)) is not None:
                yield SimulatedRefusal(
                    kind=Kind.ERROR,
                    ops=chain,
                    nodes=tuple(dict.fromkeys(place.holder if place else judged[index].name for index in match)),
                    reason=f"cannot lower {' > '.join(chain)}",
                )

    def _judge(
        self, node: onnx.NodeProto, scope: constraints.GraphScope, owner: _Place, *, folded: bool
    ) -> Iterator[SimulatedRefusal]:
        support = self.rules.support(node)
        refusal = SimulatedRefusal(
            kind=Kind.UNSUPPORTED, ops=(qualified(node),), nodes=(owner.holder,), inside=owner.inside
        )
        if support is None:
            if not folded or self.rules.denies(node):
                kind = Kind.UNKNOWN if self.rules.unknown(node) else Kind.UNSUPPORTED
                yield replace(refusal, kind=kind)
            return
        broken = [
            (it.effect, reason) for it in support.constraints if (reason := constraints.violation(it, node, scope))
        ]
        refused = [reason for effect, reason in broken if effect is Effect.ERROR]
        if support.refuses and not refused:
            spellings = {constraints.spelled(node, scope, exact=exact) for exact in (False, True)}
            refused = [it.message for it in support.refuses if it.variant in spellings]
        if refused:
            yield replace(refusal, reason=refused[0])
        elif broken:
            yield replace(refusal, kind=Kind.UNKNOWN, reason=broken[0][1])

    def _call(
        self, key: _Key, node: onnx.NodeProto, scope: constraints.GraphScope, owner: _Place
    ) -> Iterator[SimulatedRefusal]:
        if key in self._calling or len(self._calling) >= _MAX_CALLS:
            yield SimulatedRefusal(kind=Kind.ERROR, nodes=(owner.holder,), reason="functions call each other too deep")
            return
        function = self._functions[key]
        formal = list(zip(function.input, node.input, strict=False))
        inner = constraints.GraphScope(
            opsets=opset_versions(function.opset_import),
            types={name: known for name, given in formal if (known := scope.type_of(given)) is not None},
            constant={name for name, given in formal if given and scope.is_constant(given)},
            tensors={name: value for name, given in formal if (value := scope.tensor(given)) is not None},
            attributes={
                **{a.name: a for a in function.attribute_proto},
                **{a.name: said for a in node.attribute if (said := scope.attribute(node, a.name)) is not None},
            },
        )
        # All that affects the body in a call: equal calls are judged once, because nested calls multiply.
        question = (
            key,
            (
                tuple(sorted(inner.types.items())),
                tuple(sorted(inner.constant)),
                tuple(sorted((name, repr(constraints.small_values(tensor))) for name, tensor in inner.tensors.items())),
                tuple(sorted((name, a.SerializeToString(deterministic=True)) for name, a in inner.attributes.items())),
            ),
        )
        inner.types.update(constraints.types_in(function.value_info))
        if question not in self._answers:
            before = self.seen, self.count
            self.seen, self.count = Counter(), 0
            self._calling.add(key)
            place = _Place(holder="", inside=(f"function {key[1]}",))
            once: dict[SimulatedRefusal, SimulatedRefusal] = {}
            for refusal in self._nodes(self._functions[key].node, inner, place):
                once.setdefault(replace(refusal, inside=()), refusal)
            found = tuple(once.values())
            self._calling.discard(key)
            seen, count = self.seen, self.count
            self.seen, self.count = before
            self._answers[question] = found, seen, count
        found, seen, count = self._answers[question]
        self.seen.update(seen)
        self.count += count
        for refusal in found:
            yield replace(refusal, nodes=(owner.holder,), inside=(*owner.inside, *refusal.inside))


def _input_refusals(graph: onnx.GraphProto, rules: Rules) -> Iterator[SimulatedRefusal]:
    if rules.input_dtypes is None:
        return
    weights = {tensor.name for tensor in graph.initializer}
    for name, known in constraints.types_in(graph.input).items():
        is_known = known.dtype in TensorProto.DataType.values()
        dtype = str(TensorProto.DataType.Name(known.dtype)).lower() if is_known else str(known.dtype)
        if name not in weights and dtype not in rules.input_dtypes:
            yield SimulatedRefusal(kind=Kind.ERROR, tensors=(name,), reason=f"graph input of dtype {dtype}")


def _inferred(model: onnx.ModelProto) -> Mapping[str, constraints.TensorType]:
    # with the values of small initializers only, because inference reads shapes and copies its input
    light = onnx.ModelProto(ir_version=model.ir_version)
    light.opset_import.extend(model.opset_import)
    light.functions.extend(model.functions)
    for name in ("node", "input", "output", "value_info"):
        getattr(light.graph, name).extend(getattr(model.graph, name))
    for tensor in model.graph.initializer:
        if tensor.ByteSize() <= _SMALL:
            light.graph.initializer.append(tensor)
        else:
            light.graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    try:
        graph = onnx.shape_inference.infer_shapes(light).graph
    except Exception:  # inference of a hostile model may raise anything; then nothing is known
        return {}
    return constraints.types_in([*graph.value_info, *graph.output])
