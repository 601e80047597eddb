"""Pooling in steps."""

from onnx import TensorProto

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.exactness import NO_NAN, OF_PRODUCTS, SIGN_OF_ZERO
from onnxbisect.rewrites.families.convolution import written, written_pads
from onnxbisect.rewrites.rule import pytorch, rule
from onnxbisect.rewrites.site import Site
from onnxbisect.rewrites.sources import tidl


@pytorch("F.max_pool2d(F.max_pool2d(x, 3, 1, 1), 3, 1, 1) instead of F.max_pool2d(x, 5, 1, 2)")
@rule("MaxPool -> MaxPool", Exactness.DOMAIN, SIGN_OF_ZERO, domain=NO_NAN, rank=3, source=tidl("maxpool.py"))
def maxpool_cascade(at: Site) -> str:
    """A square window of odd size that moves by 1: windows of 3x3, one behind the other."""
    kernel = at.attribute("kernel_shape", [0])
    at.demand(not any(at.node.output[1:]), "a second output is in use")
    at.demand(len(kernel) == 2 and kernel[0] == kernel[1] and kernel[0] % 2 == 1, "the window is not square and odd")
    half = kernel[0] // 2
    at.demand(1 < half <= 16, "the window is no larger than 3, or too large")
    plain = written(at, "strides", 2, 1) == [1, 1] and written(at, "dilations", 2, 1) == [1, 1]
    at.demand(
        plain and written_pads(at, 2) == [half] * 4, "it has strides, dilations or other pads than half of its size"
    )
    tensor = at.input(0)
    for _ in range(half):
        tensor = at.op("MaxPool", tensor, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1])
    return tensor


@pytorch("F.avg_pool2d(F.avg_pool2d(x, 4), 4) instead of F.avg_pool2d(x, 16)")
@rule("AveragePool -> AveragePool", Exactness.ROUNDING, OF_PRODUCTS, rank=3, source="https://gitee.com/ascend/msit")
def averagepool_cascade(at: Site) -> str:
    """A window that moves by its own size, as two windows whose sizes make up its size."""
    at.demand_dtype(TensorProto.FLOAT)
    kernel = list(at.attribute("kernel_shape", [0]))
    spatial = len(kernel)
    at.demand(
        written(at, "strides", spatial, 1) == kernel and not any(written_pads(at, spatial)), "it has pads or overlaps"
    )
    at.demand(written(at, "dilations", spatial, 1) == [1] * spatial, "it has dilations")
    at.demand(at.attribute("ceil_mode", 0) == 0, "the last window may be cut")
    first = [max(part for part in range(1, int(size**0.5) + 1) if size % part == 0) for size in kernel]
    at.demand(any(part > 1 for part in first), "the size of the window is prime")
    second = [size // part for size, part in zip(kernel, first, strict=True)]
    once = at.op("AveragePool", at.input(0), kernel_shape=first, strides=first)
    return at.op("AveragePool", once, kernel_shape=second, strides=second)
