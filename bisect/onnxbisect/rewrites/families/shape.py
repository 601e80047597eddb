"""Shape ops as Reshape, copies as Concat, blocks as Transpose."""

from math import prod

import numpy as np

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.forms import concat, reshape, transpose
from onnxbisect.rewrites.rule import pytorch, rule
from onnxbisect.rewrites.site import Site
from onnxbisect.rewrites.sources import AI_HUB, OLIVE, operator, tidl

MOST_CONSTANT = 1 << 24


@pytorch("x.reshape(n, c) instead of x.squeeze(-1)")
@rule("Squeeze Unsqueeze Flatten -> Reshape", Exactness.EXACT, rank=50, source=tidl("unsqueeze.py"))
def squeeze_reshape(at: Site) -> str:
    """A Reshape to the fixed shape of the output."""
    return reshape(at, at.input(0), at.output_shape())


@pytorch("x.reshape(1, 64, 32) instead of x.reshape(x.shape[0], -1, 32)")
@rule("Reshape -> Reshape", Exactness.EXACT, rank=8, source=OLIVE)
def reshape_constant(at: Site) -> str:
    """The shape, computed or with 0 and -1 in it, as fixed numbers."""
    shape = at.output_shape()
    written = at.facts.stored(at.input(1))
    if written is not None:
        at.demand(at.value(1).tolist() != list(shape), "the shape is fixed already")
    return reshape(at, at.input(0), shape)


@pytorch("torch.cat([x, x, x], 1) instead of x.expand(-1, 3, -1)")
@rule("Expand Tile -> Reshape Concat", Exactness.EXACT, rank=25, source=tidl("expand.py"))
def expand_concat(at: Site) -> str:
    """Copies joined along each axis that grows."""
    shape, out = at.shape(0), at.output_shape()
    tensor, dims = at.input(0), [*[1] * (len(out) - len(shape)), *shape]
    at.demand(0 not in out, "a tensor is empty")
    counts = [after // before for before, after in zip(dims, out, strict=True)]
    at.demand(max(counts, default=1) <= 32, "there are more than 32 copies")
    at.demand(any(count > 1 for count in counts), "nothing grows")
    if len(out) != len(shape):
        tensor = reshape(at, tensor, dims)
    for axis, count in enumerate(counts):
        tensor = concat(at, [tensor] * count, axis)
    return tensor


@pytorch("x.repeat(1, 3, 1) instead of x.expand(-1, 3, -1)")
@rule("Expand -> Reshape Tile", Exactness.EXACT, rank=25, source=AI_HUB + "_shared/sam/model_patches.py")
def expand_tile(at: Site) -> str:
    """Tile with the number of copies along each axis."""
    shape, out = at.shape(0), at.output_shape()
    at.demand(0 not in out, "a tensor is empty")
    dims = [*[1] * (len(out) - len(shape)), *shape]
    tensor = at.input(0) if len(out) == len(shape) else reshape(at, at.input(0), dims)
    return at.op("Tile", tensor, at.integers(after // before for before, after in zip(dims, out, strict=True)))


@pytorch("x * torch.ones(n, 3, m) instead of x.expand(n, 3, m)")
@rule("Expand -> Mul", Exactness.EXACT, rank=25, source=operator("Expand"))
def expand_mul(at: Site) -> str:
    """Mul with ones of the shape."""
    out = at.output_shape()
    dtype = at.value_dtype(0)
    at.demand(dtype.kind in "fi" and dtype.itemsize > 2, "the element type is not one that Mul is common for")
    at.demand(prod(out) <= MOST_CONSTANT, "there would be too many ones")
    return at.op("Mul", at.input(0), at.constant(np.ones(out, dtype)))


def _blocks(at: Site) -> tuple[tuple[int, ...], int]:
    shape, block = at.shape(0), int(at.attribute("blocksize", 0))
    at.demand(len(shape) == 4 and block > 0, "the input is no image")
    return shape, block


@pytorch("x.reshape(n, c, r, r, h, w).permute(0, 1, 4, 2, 5, 3).reshape(...) instead of F.pixel_shuffle(x, r)")
@rule("DepthToSpace -> Reshape Transpose", Exactness.EXACT, rank=26, source=tidl("depthtospace.py"))
def depthtospace_transpose(at: Site) -> str:
    """Reshape, Transpose, Reshape; at rank 5 where the batch is 1."""
    (batch, channels, height, width), block = _blocks(at)
    at.demand(channels % (block * block) == 0, "the channels do not make up blocks")
    left = channels // (block * block)
    if at.attribute("mode", "DCR") == "CRD":
        dims, perm = [left, block, block, height, width], [0, 3, 1, 4, 2]
    else:
        dims, perm = [block, block, left, height, width], [2, 3, 0, 4, 1]
    if batch != 1:
        dims, perm = [batch, *dims], [0, *(axis + 1 for axis in perm)]
    return reshape(at, transpose(at, reshape(at, at.input(0), dims), perm), at.output_shape())


@pytorch("x.reshape(n, c, h, r, w, r).permute(0, 3, 5, 1, 2, 4).reshape(...)")
@rule("SpaceToDepth -> Reshape Transpose", Exactness.EXACT, rank=26, source=tidl("depthtospace.py"))
def spacetodepth_transpose(at: Site) -> str:
    """Reshape, Transpose, Reshape; at rank 5 where the batch is 1."""
    (batch, channels, height, width), block = _blocks(at)
    at.demand(height % block == 0 and width % block == 0, "the image does not consist of blocks")
    dims, perm = [channels, height // block, block, width // block, block], [2, 4, 0, 1, 3]
    if batch != 1:
        dims, perm = [batch, *dims], [0, *(axis + 1 for axis in perm)]
    return reshape(at, transpose(at, reshape(at, at.input(0), dims), perm), at.output_shape())


@pytorch("torch.cat([torch.cat([a, b], 1), c], 1) instead of torch.cat([a, b, c], 1)")
@rule("Concat -> Concat", Exactness.EXACT, rank=47, source=tidl("concat.py"))
def concat_pairs(at: Site) -> str:
    """Two tensors at a time."""
    first, *rest = at.inputs()
    at.demand(len(rest) > 1, "there are no more than two inputs")
    for other in rest:
        first = at.op("Concat", first, other, axis=at.attribute("axis", 0))
    return first
