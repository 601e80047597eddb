"""Ops that compute on quantised tensors, and which of their constants distinguish variants.

Scales, weights and biases differ from tensor to tensor and never decide whether a compiler supports an op. A zero point
that is not zero, which makes the quantisation asymmetric, can.
"""

from collections.abc import Container

#: Most elements of a zero point that is read: enough for one per channel, too few for one per block of a large weight.
ZERO_POINTS = 1 << 16

_ONE = (2, 4)  # x, its scale and zero point; those of the output
_TWO = (2, 5, 7)  # a, its scale and zero point; b, likewise; those of the output

#: Input slots of the zero points, by domain and op, of ONNX and onnxruntime 1.31. The other constants of these ops are
#: scales, weights or biases. Ops that quantise only large weights, such as MatMulNBits, are left out: large constants
#: never distinguish variants.
ZERO_POINT_SLOTS: dict[tuple[str, str], Container[int]] = {
    ("", "ConvInteger"): (2, 3),
    ("", "DequantizeLinear"): (2,),
    ("", "MatMulInteger"): (2, 3),
    ("", "QLinearConv"): _TWO,
    ("", "QLinearMatMul"): _TWO,
    ("", "QuantizeLinear"): (2,),
    ("com.microsoft", "DequantizeLinear"): (2,),
    ("com.microsoft", "DequantizeWithOrder"): (),
    ("com.microsoft", "DynamicQuantizeLSTM"): (9, 11),
    ("com.microsoft", "DynamicQuantizeMatMul"): (3,),
    ("com.microsoft", "GemmFloat8"): (),
    ("com.microsoft", "MatMulInteger16"): (),
    ("com.microsoft", "MatMulIntegerToFloat"): (4, 5),
    ("com.microsoft", "MulInteger"): (1, 3),
    ("com.microsoft", "QAttention"): (6, 7),
    ("com.microsoft", "QEmbedLayerNormalization"): range(13, 18),
    ("com.microsoft", "QGemm"): (2, 5, 8),
    ("com.microsoft", "QLinearAdd"): _TWO,
    ("com.microsoft", "QLinearAveragePool"): _ONE,
    ("com.microsoft", "QLinearConcat"): range(1, 1 << 30, 3),  # those of the output; then x, scale and zero point each
    ("com.microsoft", "QLinearConv"): _TWO,
    ("com.microsoft", "QLinearGlobalAveragePool"): _ONE,
    ("com.microsoft", "QLinearLeakyRelu"): _ONE,
    ("com.microsoft", "QLinearMul"): _TWO,
    ("com.microsoft", "QLinearReduceMean"): _ONE,
    ("com.microsoft", "QLinearSigmoid"): _ONE,
    ("com.microsoft", "QLinearSoftmax"): _ONE,
    ("com.microsoft", "QLinearWhere"): (3, 6, 8),
    ("com.microsoft", "QOrderedAttention"): (),
    ("com.microsoft", "QOrderedGelu"): (),
    ("com.microsoft", "QOrderedLayerNormalization"): (),
    ("com.microsoft", "QOrderedLongformerAttention"): (),
    ("com.microsoft", "QOrderedMatMul"): (),
    ("com.microsoft", "QuantizeLinear"): (2,),
    ("com.microsoft", "QuantizeWithOrder"): (),
}
