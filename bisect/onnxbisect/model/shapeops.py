"""What an op's output shape depends on, per op, from the ONNX operator specification (opsets 7 to 28)."""

#: Input slots whose values, not only shapes, decide the shape of an output. Where an older opset has an attribute
#: instead (as for axes), the node has no such slot.
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
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
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
    "SequenceAt": (1,),
    "SequenceErase": (1,),
    "SequenceInsert": (2,),
    "SplitToSequence": (1,),
    "Trilu": (1,),
}

#: Ops whose output value depends on nothing but the shape of their input.
VALUE_FROM_SHAPE = frozenset({"Shape", "Size", "EyeLike"})

#: Ops that draw random numbers: the output's shape may be known, its value never is.
RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)

#: Ops whose output shape depends on values in a way that slots cannot express, or whose output has no shape.
DATA_DEPENDENT = frozenset(
    {
        "Compress",
        "ConcatFromSequence",
        "Loop",
        "NonMaxSuppression",
        "NonZero",
        "Optional",
        "OptionalGetElement",
        "Scan",
        "SequenceAt",
        "SequenceConstruct",
        "SequenceEmpty",
        "SequenceErase",
        "SequenceInsert",
        "SequenceMap",
        "SplitToSequence",
        "StringSplit",
        "Unique",
    }
)
