"""Convolutions in forms that simpler tools have, and what pads and strides stand for, of pools as well."""

from dataclasses import replace
from math import ceil, prod
from typing import Any

import numpy as np
from onnx import TensorProto

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.rule import (
    FINITE,
    OF_PRODUCTS,
    SIGN_OF_ZERO,
    executorch,
    operator,
    pytorch,
    rule,
)
from onnxbisect.rewrites.site import Site, concat, reshape, slice_axis, transpose


def written(at: Site, name: str, spatial: int, default: int) -> list[int]:
    """An attribute with a number for each spatial axis."""
    values = list(at.attribute(name, [default] * spatial))
    at.demand(len(values) == spatial, f"{name} does not fit the rank")
    return values


def written_pads(at: Site, spatial: int) -> list[int]:
    """The pads before each spatial axis, then those behind, not left to auto_pad."""
    at.demand(at.attribute("auto_pad", "NOTSET") == "NOTSET", "the pads are not written out")
    pads = list(at.attribute("pads", [0] * (2 * spatial)))
    at.demand(len(pads) == 2 * spatial, "pads do not fit the rank")
    return pads


@pytorch("F.conv2d(x[:, :, None], weight[:, :, None]).squeeze(2) instead of F.conv1d(x, weight)")
@rule(
    "Conv MaxPool AveragePool -> Reshape Conv MaxPool AveragePool",
    Exactness.ROUNDING,
    replace(OF_PRODUCTS, note="a MaxPool of one axis passes over NaN and never gives -infinity in onnxruntime"),
    rank=18,
    source=executorch("qualcomm/_passes/canonicalize_conv.py"),
)
def conv1d_conv2d(at: Site) -> str:
    """One spatial axis as an image of height 1."""
    at.demand_dtype(TensorProto.FLOAT)
    shape = at.shape(0)
    at.demand(len(shape) == 3, "there is not one spatial axis")
    at.demand(not any(at.node.output[1:]), "a second output is in use")
    start, end = written_pads(at, 1)
    changed: dict[str, Any] = {"pads": [0, start, 0, end]}
    for name in ("kernel_shape", "strides", "dilations"):
        if at.has_attribute(name):
            changed[name] = [1, *written(at, name, 1, 1)]
    image = [reshape(at, at.input(0), [shape[0], shape[1], 1, shape[2]])]
    if at.node.op_type == "Conv":
        kernel = at.shape(1)
        dims = (kernel[0], kernel[1], 1, kernel[2])
        image.append(at.constant(at.value(1).reshape(dims)) if at.is_constant(1) else reshape(at, at.input(1), dims))
        image.extend(at.node.input[2:])
    return reshape(at, at.like(*image, **changed), at.output_shape())


@pytorch("padding=(1, 1) instead of padding='same'")
@rule("Conv MaxPool AveragePool -> Conv MaxPool AveragePool", Exactness.EXACT, rank=18, source=operator("Conv"))
def auto_pad(at: Site) -> str:
    """The pads that auto_pad stands for, written out."""
    mode = at.attribute("auto_pad", "NOTSET")
    at.demand(mode != "NOTSET", "the pads are written out already")
    at.demand(not any(at.node.output[1:]), "a second output is in use")
    shape = at.shape(0)
    spatial = len(shape) - 2
    at.demand(spatial > 0, "there is no spatial axis")
    kernel = at.attribute("kernel_shape", list(at.shape(1)[2:]) if at.node.op_type == "Conv" else [])
    strides, dilations = written(at, "strides", spatial, 1), written(at, "dilations", spatial, 1)
    starts, ends = [], []
    for size, reach, stride, dilation in zip(shape[2:], kernel, strides, dilations, strict=True):
        missing = max((ceil(size / stride) - 1) * stride + (reach - 1) * dilation + 1 - size, 0)
        missing = 0 if mode == "VALID" else missing
        lesser, larger = missing // 2, missing - missing // 2
        starts.append(larger if mode == "SAME_LOWER" else lesser)
        ends.append(lesser if mode == "SAME_LOWER" else larger)
    return at.like(*at.node.input, auto_pad=None, pads=[*starts, *ends])


@pytorch("stride=1 instead of no stride")
@rule(
    "Conv ConvTranspose MaxPool AveragePool LpPool -> Conv ConvTranspose MaxPool AveragePool LpPool",
    Exactness.EXACT,
    rank=18,
    source=operator("MaxPool"),
)
def strides_written(at: Site) -> str:
    """Strides of 1, written out: converters have been seen to take none for the size of the window."""
    at.demand(not at.has_attribute("strides"), "the strides are written out already")
    at.demand(not any(at.node.output[1:]), "a second output is in use")
    spatial = at.rank(0) - 2
    at.demand(spatial > 0, "there is no spatial axis")
    return at.like(*at.node.input, strides=[1] * spatial)


@pytorch("F.conv2d(x, weight)[:, :, ::2, ::2] instead of F.conv2d(x, weight, stride=2)")
@rule("Conv -> Conv Slice", Exactness.ROUNDING, OF_PRODUCTS, rank=18, source=operator("Conv"))
def conv_strides(at: Site) -> str:
    """A convolution with strides of 1, of whose results a Slice keeps those that the strides meet."""
    spatial = at.rank(0) - 2
    strides = written(at, "strides", spatial, 1)
    at.demand(max(strides, default=1) > 1, "the strides are 1")
    at.demand(at.attribute("auto_pad", "NOTSET") in ("NOTSET", "VALID"), "the pads depend on the strides")
    tensor = at.like(*at.node.input, strides=[1] * spatial)
    for axis, (step, count) in enumerate(zip(strides, at.output_shape()[2:], strict=True), 2):
        if step > 1:
            tensor = slice_axis(at, tensor, axis, 0, (count - 1) * step + 1, step)
    return tensor


@pytorch("F.pixel_shuffle(F.conv2d(x, weight_1x1), r) instead of F.conv_transpose2d(x, weight, stride=r)")
@rule(
    "ConvTranspose -> Conv Reshape Transpose Add",
    Exactness.ROUNDING,
    OF_PRODUCTS,
    rank=18,
    source=operator("ConvTranspose"),
)
def convtranspose_conv(at: Site) -> str:
    """A kernel as large as its stride: a convolution of 1x1, then the pixels of each block put side by side."""
    at.demand_dtype(TensorProto.FLOAT)
    shape, kernel = at.shape(0), at.value(1)
    at.demand(len(shape) == 4 and kernel.ndim == 4, "the input is no image")
    strides = written(at, "strides", 2, 1)
    plain = not any(written_pads(at, 2)) and not any(written(at, "output_padding", 2, 0))
    at.demand(plain and not at.has_attribute("output_shape"), "there are pads")
    at.demand(at.attribute("group", 1) == 1 and written(at, "dilations", 2, 1) == [1, 1], "it has groups or dilations")
    at.demand(list(kernel.shape[2:]) == strides, "the kernel is not as large as its stride")
    batch, depth, height, width = shape
    _, channels, tall, wide = kernel.shape
    flat = np.moveaxis(kernel, 0, -1).reshape(channels * tall * wide, depth, 1, 1)
    blocks = at.op("Conv", at.input(0), at.constant(flat))
    parts = reshape(at, blocks, [batch, channels, tall, wide, height, width])
    image = reshape(at, transpose(at, parts, [0, 1, 4, 2, 5, 3]), [batch, channels, height * tall, width * wide])
    return at.op("Add", image, reshape(at, at.input(2), [1, channels, 1, 1])) if at.has(2) else image


@pytorch("groups=1 and a weight with zeros between the groups")
@rule(
    "Conv -> Conv",
    Exactness.DOMAIN,
    OF_PRODUCTS,
    domain=FINITE,
    rank=18,
    source=executorch("arm/_passes/decompose_grouped_conv_pass.py"),
)
def conv_dense(at: Site) -> str:
    """Groups as one convolution, the weights of other groups 0."""
    at.demand_dtype(TensorProto.FLOAT)
    groups, kernel = at.attribute("group", 1), at.value(1)
    at.demand(groups > 1, "there is one group")
    outer, inner = kernel.shape[:2]
    at.demand(outer % groups == 0 and kernel.size * groups <= 1 << 24, "the weights would be too large")
    dense = np.zeros((outer, inner * groups, *kernel.shape[2:]), kernel.dtype)
    each = outer // groups
    for group in range(groups):
        dense[group * each : (group + 1) * each, group * inner : (group + 1) * inner] = kernel[
            group * each : (group + 1) * each
        ]
    return at.like(at.input(0), at.constant(dense), *at.node.input[2:], group=1)


#: Groups that are written out.
_MOST_GROUPS = 16


@pytorch("torch.cat([F.conv2d(*pair) for pair in zip(x.chunk(g, 1), weight.chunk(g))], 1) instead of groups=g")
@rule(
    "Conv ConvTranspose -> Conv ConvTranspose Slice Concat",
    Exactness.ROUNDING,
    OF_PRODUCTS,
    rank=19,
    source=executorch("arm/_passes/decompose_grouped_conv_pass.py"),
)
def conv_groups(at: Site) -> str:
    """A convolution for each group, also where the weights are computed."""
    at.demand_dtype(TensorProto.FLOAT)
    groups, shape, kernel = at.attribute("group", 1), at.shape(0), at.shape(1)
    at.demand(1 < groups <= _MOST_GROUPS, f"there are {groups} groups")
    at.demand(shape[1] % groups == 0 and kernel[0] % groups == 0, "the channels are not divided evenly")
    at.demand(0 not in (*shape, *kernel), "a tensor is empty")

    def part(slot: int, axis: int, number: int) -> str:
        size = at.shape(slot)[axis] // groups
        return slice_axis(at, at.input(slot), axis, number * size, (number + 1) * size)

    made = []
    for number in range(groups):
        bias = [part(2, 0, number)] if at.has(2) else []
        made.append(at.like(part(0, 1, number), part(1, 0, number), *bias, group=1))
    return concat(at, made, 1)


#: Frames of a kernel that are written out.
_MOST_FRAMES = 16


@pytorch("the sum of F.conv2d over the frames of the kernel, frames as a batch, instead of F.conv3d")
@rule(
    "Conv -> Slice Transpose Reshape Conv Add Concat",
    Exactness.ROUNDING,
    OF_PRODUCTS,
    rank=18,
    source=operator("Conv"),
)
def conv3d_conv2d(at: Site) -> str:
    """Three spatial axes: for each frame of the kernel a convolution of the frames that it meets, added up."""
    at.demand_dtype(TensorProto.FLOAT)
    shape, kernel = at.shape(0), at.value(1)
    at.demand(len(shape) == 5, "there are not three spatial axes")
    at.demand(
        kernel.shape[2] <= _MOST_FRAMES and 0 not in shape, "the kernel has too many frames, or a tensor is empty"
    )
    strides, dilations, pads = (
        written(at, "strides", 3, 1),
        written(at, "dilations", 3, 1),
        written_pads(at, 3),
    )
    batch, channels, frames, height, width = shape
    _, outer, count, tall, wide = at.output_shape()
    image = at.input(0)
    before, after = (
        at.constant(np.zeros((batch, channels, more, height, width), np.float32)) if more else ""
        for more in (pads[0], pads[3])
    )
    image = concat(at, [it for it in (before, image, after) if it], 2)
    total = ""
    for number in range(kernel.shape[2]):
        start, step = number * dilations[0], strides[0]
        end = min(start + (count - 1) * step + 1, pads[0] + frames + pads[3])
        met = transpose(at, slice_axis(at, image, 2, start, end, step), [0, 2, 1, 3, 4])
        flat = reshape(at, met, [batch * count, channels, height, width])
        bias = list(at.node.input[2:]) if not number else []
        (part,) = at.ops(
            "Conv",
            [flat, at.constant(np.ascontiguousarray(kernel[:, :, number])), *bias],
            1,
            group=at.attribute("group", 1),
            strides=strides[1:],
            dilations=dilations[1:],
            pads=[*pads[1:3], *pads[4:]],
        )
        total = at.op("Add", total, part) if total else part
    return transpose(at, reshape(at, total, [batch, count, outer, tall, wide]), [0, 2, 1, 3, 4])


@pytorch(
    "x.reshape(n, c, kh, kw, h, w).permute(0, 1, 4, 2, 5, 3).reshape(…) instead of F.fold, whose blocks do not overlap"
)
@rule(
    "Col2Im -> Reshape Transpose",
    Exactness.ROUNDING,
    SIGN_OF_ZERO,
    rank=39,
    source="https://github.com/huggingface/diffusers/pull/12787",
)
def col2im_transpose(at: Site) -> str:
    """Blocks that lie side by side: the pixels of each put behind one another along rows and columns."""
    batch, channels, block, image, places = _blocks(at)
    plain = written(at, "strides", 2, 1) == block and written(at, "dilations", 2, 1) == [1, 1]
    at.demand(plain and not any(written_pads(at, 2)), "the blocks overlap, or have gaps")
    at.demand([size * count for size, count in zip(block, places, strict=True)] == image, "the blocks leave a rim")
    apart = transpose(at, reshape(at, at.input(0), [batch, channels, *block, *places]), [0, 1, 4, 2, 5, 3])
    return reshape(at, apart, at.output_shape())


@pytorch(
    "F.conv_transpose2d(x, a 1 for each pixel of the block, stride=stride, groups=channels) instead of F.fold(x, …)"
)
@rule(
    "Col2Im -> Reshape ConvTranspose",
    Exactness.DOMAIN,
    OF_PRODUCTS,
    domain=FINITE,
    rank=39,
    source=operator("Col2Im"),
)
def col2im_convtranspose(at: Site) -> str:
    """Blocks that may overlap: each pixel of a block put to its place by a kernel that is 1 there, and added up."""
    batch, channels, block, image, places = _blocks(at)
    strides, dilations, pads = written(at, "strides", 2, 1), written(at, "dilations", 2, 1), written_pads(at, 2)
    reach = [
        (count - 1) * stride + dilation * (size - 1) + 1 - before - behind
        for count, stride, dilation, size, before, behind in zip(
            places, strides, dilations, block, pads[:2], pads[2:], strict=True
        )
    ]
    kernel = np.tile(np.eye(prod(block), dtype=np.float32), (channels, 1)).reshape(-1, 1, *block)
    return at.op(
        "ConvTranspose",
        reshape(at, at.input(0), [batch, channels * prod(block), *places]),
        at.constant(kernel),
        kernel_shape=block,
        strides=strides,
        dilations=dilations,
        pads=pads,
        group=channels,
        output_padding=[size - reached for size, reached in zip(image, reach, strict=True)],
    )


def _blocks(at: Site) -> tuple[int, int, list[int], list[int], list[int]]:
    """Of a Col2Im of images: batch, channels, the sizes of block and image, and how many blocks along each axis."""
    at.demand_dtype(TensorProto.FLOAT)
    image, block = ([int(size) for size in at.value(slot)] for slot in (1, 2))
    at.demand(len(image) == 2, "there are not two spatial axes")
    strides, dilations, pads = written(at, "strides", 2, 1), written(at, "dilations", 2, 1), written_pads(at, 2)
    places = [
        (image[axis] + pads[axis] + pads[axis + 2] - dilations[axis] * (block[axis] - 1) - 1) // strides[axis] + 1
        for axis in (0, 1)
    ]
    batch, rows, _ = at.shape(0)
    return batch, rows // prod(block), block, image, places
