"""What the shape and the value of a tensor depend on, per op, from the ONNX operator specification (opsets 7 to 28).

The cut must know which boundary tensors are constants: a Reshape whose shape becomes a graph input is rejected by every
NPU compiler, although the model itself may be fine. In doubt a tensor counts as dependent.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import onnx

from onnxbisect.model.binding import is_unbound
from onnxbisect.model.scopes import bodies, captures, constant_names, domain_of, is_constant, walk

#: Input slots whose values, not only shapes, decide the shape of an output, or which shapes a sequence holds. Where an
#: older opset has an attribute instead (as for axes), the node has no such slot.
SHAPE_SLOTS: dict[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "ConstantOfShape": (0,),
    "DFT": (1, 2),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "STFT": (1, 3),
    "SequenceAt": (1,),
    "SequenceErase": (1,),
    "SequenceInsert": (2,),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Squeeze": (1,),
    "Tile": (1, 2),
    "TopK": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
} | dict.fromkeys(
    (
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "ReduceProd",
        "ReduceSum",
        "ReduceSumSquare",
    ),
    (1,),
)

#: Ops whose output can be far larger than their inputs.
EXPANDING = frozenset(
    {
        "AffineGrid",
        "BlackmanWindow",
        "CenterCropPad",
        "Col2Im",
        "ConstantOfShape",
        "Expand",
        "HammingWindow",
        "HannWindow",
        "MaxUnpool",
        "MelWeightMatrix",
        "OneHot",
        "Pad",
        "RandomNormal",
        "RandomUniform",
        "Range",
        "Resize",
        "Tile",
        "Upsample",
    }
)

#: Further input slots whose values change what the op computes, so that they distinguish variants.
SEMANTIC_SLOTS: dict[str, tuple[int, ...]] = {
    "ArrayFeatureExtractor": (1,),
    "Clip": (1, 2),
    "CumSum": (1,),
    "Dropout": (1, 2),
    "Gather": (1,),
    "GatherElements": (1,),
    "GatherND": (1,),
    "NonMaxSuppression": (2, 3, 4),
    "OneHot": (2,),
    "Pad": (2,),
    "ScatterElements": (1,),
    "ScatterND": (1,),
    "Trilu": (1,),
}

#: Ops whose output value depends on nothing but the shape of their input.
VALUE_FROM_SHAPE = frozenset({"Shape", "Size", "EyeLike"})

#: Ops that draw random numbers: the output's shape may be known, its value never is.
RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)

#: Ops whose output shape depends on values in a way that slots cannot express.
DATA_DEPENDENT = frozenset(
    {
        "Compress",
        "NonMaxSuppression",
        "NonZero",
        "SequenceMap",
        "StringSplit",
        "Unique",
    }
)


#: Deepest nesting of function calls that is followed; deeper nesting is treated as (invalid) recursion.
_MAX_DEPTH = 32
#: The com.microsoft ops that quantisation tools put between a weight and the node that reads it.
_QUANTIZERS = frozenset({"QuantizeLinear", "DequantizeLinear"})
#: Further ops of com.microsoft whose outputs' shapes follow from the shapes of their inputs and from attributes.
_SHAPED_BY_SHAPES = frozenset(
    {"Attention", "BiasAdd", "BiasGelu", "BiasSoftmax", "BiasSplitGelu", "DynamicQuantizeLSTM"}
    | {"DynamicQuantizeMatMul", "FastGelu", "FusedConv", "FusedGemm", "FusedMatMul", "Gelu", "GemmFastGelu"}
    | {"GroupNorm", "MatMulInteger16", "MatMulIntegerToFloat", "MatMulNBits", "MultiHeadAttention", "NhwcConv"}
    | {"NhwcFusedConv", "NhwcMaxPool", "QAttention", "QGemm", "QLinearAdd", "QLinearAveragePool"}
    | {"QLinearConcat", "QLinearConv", "QLinearGlobalAveragePool", "QLinearLeakyRelu", "QLinearMul"}
    | {"QLinearSigmoid", "QLinearSoftmax", "QuickGelu", "RotaryEmbedding", "SkipGroupNorm"}
    | {"SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "TransposeMatMul"}
)


class Level(IntEnum):
    """What of a tensor is independent of the inputs; each level includes the previous one."""

    NOTHING = 0
    SHAPE = 1
    VALUE = 2


@dataclass(frozen=True, kw_only=True)
class Constness:
    """Names of the main graph's tensors by level; `values` is a subset of `shapes`."""

    values: frozenset[str]
    shapes: frozenset[str]


def constness(
    proto: onnx.ModelProto, settled: Collection[str] = (), *, given: Collection[str] = (), others: Level = Level.NOTHING
) -> Constness:
    """Analyse a model whose nodes are sorted and whose inputs are bound as far as possible.

    `settled` are tensors whose shape is known from elsewhere, such as shape inference, and `given` graph inputs whose
    value is. `others` is the highest level behind ops of which these tables know nothing.
    """
    scope = dict.fromkeys(constant_names(proto.graph), Level.VALUE)
    for value in proto.graph.input:
        tensor = value.type.HasField("tensor_type")
        bound = value.name in settled or (tensor and not is_unbound(value.type))
        scope[value.name] = Level.VALUE if value.name in given else Level.SHAPE if bound else Level.NOTHING
    _Analysis(proto, settled, others).follow(proto.graph.node, scope, 0)
    return Constness(
        values=frozenset(name for name, level in scope.items() if level is Level.VALUE),
        shapes=frozenset(name for name, level in scope.items() if level >= Level.SHAPE),
    )


class _Analysis:
    def __init__(self, proto: onnx.ModelProto, settled: Collection[str], others: Level) -> None:
        self._settled, self._others = settled, others
        self._functions = {(domain_of(f), f.name, f.overload): f for f in proto.functions}

    def follow(self, nodes: Iterable[onnx.NodeProto], scope: dict[str, Level], depth: int) -> None:
        for node in nodes:
            domain = domain_of(node)
            function = self._functions.get((domain, node.op_type, node.overload))
            if function is not None:
                if depth >= _MAX_DEPTH:
                    levels: Sequence[Level] = [Level.NOTHING] * len(node.output)
                else:
                    actual = [scope.get(name, Level.NOTHING) if name else Level.VALUE for name in node.input]
                    # An omitted optional input does not depend on the model's inputs.
                    actual += [Level.VALUE] * (len(function.input) - len(actual))
                    inner = dict(zip(function.input, actual, strict=False))
                    self.follow(function.node, inner, depth + 1)
                    formal = [inner.get(name, Level.NOTHING) for name in function.output]
                    levels = [formal[slot] if slot < len(formal) else Level.NOTHING for slot in range(len(node.output))]
            elif not domain and node.op_type == "If":
                levels = self._branch(node, scope, depth)
            elif not domain and node.op_type in ("Loop", "Scan"):
                levels = self._repeated(node, scope, depth)
            else:
                levels = [self._level(node, domain, scope)] * len(node.output)
            for name, level in zip(node.output, levels, strict=True):
                if name:
                    # Tensors in a function body may have the same names as tensors of the main graph.
                    scope[name] = max(level, Level.SHAPE) if depth == 0 and name in self._settled else level

    def _branch(self, node: onnx.NodeProto, scope: Mapping[str, Level], depth: int) -> Sequence[Level]:
        levels = [Level.VALUE] * len(node.output)
        if not node.input or scope.get(node.input[0]) is not Level.VALUE or depth >= _MAX_DEPTH:
            return [Level.NOTHING] * len(node.output)
        for body in bodies(node):
            inner = dict(scope) | dict.fromkeys(constant_names(body), Level.VALUE)
            self.follow(body.node, inner, depth + 1)
            for slot in range(min(len(levels), len(body.output))):
                levels[slot] = min(levels[slot], inner.get(body.output[slot].name, Level.NOTHING))
        return levels

    def _repeated(self, node: onnx.NodeProto, scope: Mapping[str, Level], depth: int) -> Sequence[Level]:
        """Shapes behind a Loop or Scan are certain where the number of rounds is, and the shapes in each round are."""
        nothing = [Level.NOTHING] * len(node.output)
        held = bodies(node)
        if depth >= _MAX_DEPTH or len(held) != 1:
            return nothing
        if self._level(node, "", scope) is Level.VALUE:
            return [Level.VALUE] * len(node.output)
        body, taken = held[0], [scope.get(name, Level.NOTHING) if name else Level.VALUE for name in node.input]
        if node.op_type == "Loop":  # the limit and the condition decide on the rounds; both have a pair in the body
            first, states, least, counted = 2, len(taken) - 2, Level.VALUE, taken[:2]
        else:  # the sizes of the last inputs do, and what the body has for them
            first, least = 0, Level.SHAPE
            states = len(taken) - next((it.i for it in node.attribute if it.name == "num_scan_inputs"), 0)
            counted = taken[states:]
        outputs, conditions = [value.name for value in body.output], first // 2
        fits = states >= 0 and len(body.input) == len(taken) and len(outputs) - conditions == len(node.output)
        if not fits or len(outputs) < states or min(counted, default=Level.VALUE) < least:
            return nothing
        while True:
            inner = {**scope, **dict.fromkeys(constant_names(body), Level.VALUE)}
            inner |= {value.name: level for value, level in zip(body.input, taken, strict=True)}
            self.follow(body.node, inner, depth + 1)
            made = [inner.get(name, Level.NOTHING) for name in outputs]
            kept = [min(pair) for pair in zip(taken[first:], made[conditions:], strict=False)][:states]
            if kept == taken[first : first + states]:
                break
            taken[first : first + states] = kept
        if min(made[:conditions], default=Level.VALUE) < Level.VALUE:
            return nothing
        return [min(Level.SHAPE, level) for level in (*kept, *made[conditions + states :])]

    def _level(self, node: onnx.NodeProto, domain: str, scope: Mapping[str, Level]) -> Level:
        slots = [scope.get(name, Level.NOTHING) if name else Level.VALUE for name in node.input]
        needed = [*slots, *(scope.get(name, Level.NOTHING) for name in captures(node))]
        lowest = min(needed, default=Level.VALUE)
        if is_constant(node):
            return Level.VALUE
        if domain == "com.microsoft" and node.op_type in _QUANTIZERS:
            return lowest
        if domain == "com.microsoft" and node.op_type in _SHAPED_BY_SHAPES:
            return min(lowest, Level.SHAPE)
        if domain == "ai.onnx.ml":
            return lowest if lowest is Level.VALUE else min(lowest, self._others)
        if domain or not onnx.defs.has(node.op_type):
            return min(lowest, self._others)
        if node.op_type in VALUE_FROM_SHAPE:
            return Level.VALUE if lowest >= Level.SHAPE else Level.NOTHING
        if not self._deterministic(node):
            lowest = min(lowest, Level.SHAPE)
        elif lowest is Level.VALUE:
            return Level.VALUE
        if node.op_type in DATA_DEPENDENT or lowest is Level.NOTHING:
            return Level.NOTHING
        decisive = SHAPE_SLOTS.get(node.op_type, ())
        return (
            Level.SHAPE if all(slots[slot] is Level.VALUE for slot in decisive if slot < len(slots)) else Level.NOTHING
        )

    def _deterministic(self, node: onnx.NodeProto) -> bool:
        if node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]:
            return False  # training_mode is an input: do not trust that it is off
        for inner in walk([node]):
            if inner.op_type in RANDOM:
                return False
            if inner is not node and domain_of(inner):
                return False  # a custom op or a function inside a body: not looked into
        return True
