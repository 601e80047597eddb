"""Fourier transforms as products with constant sines and cosines."""

import numpy as np
from onnx import TensorProto

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.rule import FINITE, OF_PRODUCTS, pytorch, rule
from onnxbisect.rewrites.site import Site, reshape, transpose

#: Elements of the waves that a Fourier transform is written with.
_MOST_WAVES = 1 << 24


@pytorch("F.conv1d(x[:, None], waves * window, stride=hop), waves of sines and cosines, instead of torch.stft(x, …)")
@rule(
    "STFT -> Reshape Conv Transpose",
    Exactness.DOMAIN,
    OF_PRODUCTS,
    domain=FINITE,
    rank=18,
    source="https://github.com/pytorch/pytorch/issues/31317",
)
def stft_conv(at: Site) -> str:
    """Products of real frames with the window's waves, a cosine and a sine for each frequency."""
    at.demand_dtype(TensorProto.FLOAT)
    shape = at.shape(0)
    at.demand(len(shape) == 2 or shape[2:] == (1,), "the signal is complex")
    window = at.value(2).astype(np.float64) if at.has(2) else np.ones(int(at.value(3).reshape(())))
    size, hop = len(window), int(at.value(1).reshape(()))
    bins = size // 2 + 1 if at.attribute("onesided", 1) else size
    at.demand(2 * bins * size <= _MOST_WAVES, "the window is too long")
    angles = -2 * np.pi / size * (np.outer(np.arange(bins), np.arange(size)) % size)
    waves = np.stack([np.cos(angles), np.sin(angles)], axis=1) * window
    kernel = at.constant(waves.reshape(2 * bins, 1, size).astype(np.float32))
    signal = reshape(at, at.input(0), [shape[0], 1, shape[1]])
    batch, frames = at.output_shape()[:2]
    made = at.op("Conv", signal, kernel, strides=[hop])
    return transpose(at, reshape(at, made, [batch, bins, 2, frames]), [0, 3, 1, 2])


@pytorch("x.movedim(dim, -1) @ waves, waves a matrix of cosines and sines, instead of torch.fft.fft(x, dim=dim)")
@rule(
    "DFT -> Reshape Transpose MatMul",
    Exactness.DOMAIN,
    OF_PRODUCTS,
    domain=FINITE,
    rank=39,
    source="https://github.com/onnx/onnx/issues/3573",
)
def dft_matmul(at: Site) -> str:
    """A product with the waves of all frequencies along an axis, real and imaginary part side by side."""
    at.demand_dtype(TensorProto.FLOAT)
    shape, rank = at.shape(0), at.rank(0)
    parts = shape[-1]
    axis = int(at.value(2).reshape(())) if at.has(2) else at.attribute("axis", 1 if at.opset < 20 else -2)
    at.demand(-rank <= axis < rank and axis % rank < rank - 1, f"axis {axis} is none of the signal's")
    axis, inverse = axis % rank, bool(at.attribute("inverse", 0))
    count = shape[axis]
    length = int(at.value(1).reshape(())) if at.has(1) else count
    bins = at.output_shape()[axis]
    at.demand(not (inverse and at.attribute("onesided", 0)), "half of a spectrum is turned back into a real signal")
    at.demand(4 * bins * count <= _MOST_WAVES and bins > 0, "the signal is too long")
    angles = (2 if inverse else -2) * np.pi / length * (np.outer(np.arange(count), np.arange(bins)) % length)
    used = (np.arange(count) < length)[:, None] / (length if inverse else 1)  # a longer signal is cut off
    cosines, sines = np.cos(angles) * used, np.sin(angles) * used
    waves = np.stack([np.stack([cosines, sines], -1), np.stack([-sines, cosines], -1)][:parts], 1)
    order = [*(it for it in range(rank - 1) if it != axis), axis]
    outer = [shape[it] for it in order[:-1]]
    rows = reshape(at, transpose(at, at.input(0), [*order, rank - 1]), [*outer, count * parts])
    made = at.op("MatMul", rows, at.constant(waves.reshape(count * parts, bins * 2).astype(np.float32)))
    back = [order.index(it) for it in range(rank - 1)]
    return transpose(at, reshape(at, made, [*outer, bins, 2]), [*back, rank - 1])
