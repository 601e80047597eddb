"""Shape ops as Reshape, copies as Concat, blocks as Transpose, Pad by Slice and Concat, high ranks at a lower one;
nodes that no input changes as constants.
"""

from collections.abc import Mapping
from math import prod
from typing import Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.rule import AI_HUB, OLIVE, NotApplicable, executorch, operator, pytorch, rule, tidl
from onnxbisect.rewrites.site import Site, concat, reshape, slice_axis, transpose

MOST_CONSTANT = 1 << 24


@pytorch("Python numbers instead of tensors: x.shape[0], math.sin, range")
@rule("* ->", Exactness.EXACT, rank=8, source="https://github.com/onnx/optimizer")
def fold(at: Site) -> tuple[str, ...]:
    """What the node computes whatever the inputs, as constants."""
    found = []
    for name in at.node.output:
        value = at.known(at.facts.value(name), "it depends on an input, or was not computed") if name else np.zeros(0)
        at.demand(value.size <= MOST_CONSTANT and value.dtype != np.object_, "the constant would be too large")
        found.append(at.constant(value) if name else "")
    return tuple(found)


@pytorch("weight.to_dense()")
@rule("* -> *", Exactness.EXACT, rank=23, source=operator("Constant"))
def dense_constant(at: Site) -> tuple[str, ...]:
    """The node with its sparse constants in dense form."""
    sparse = {name: isinstance(at.facts.stored(name), onnx.SparseTensorProto) for name in at.inputs()}
    at.demand(any(sparse.values()), "it reads no sparse constant")
    node = onnx.NodeProto()
    node.CopyFrom(at.node)
    node.name = at.fresh(node.op_type)
    node.output[:] = [at.fresh(f"output_{slot}") if name else "" for slot, name in enumerate(node.output)]
    node.input[:] = [
        at.constant(value) if sparse.get(name) and (value := at.facts.value(name)) is not None else name
        for name in node.input
    ]
    at.add(node)
    return tuple(node.output)


@pytorch("x.reshape(n, c) instead of x.squeeze(-1)")
@rule("Squeeze Unsqueeze Flatten Identity -> Reshape", Exactness.EXACT, rank=50, source=tidl("unsqueeze.py"))
def squeeze_reshape(at: Site) -> str:
    """A Reshape to the fixed shape of the output; of a copy to its own shape."""
    return reshape(at, at.input(0), at.output_shape())


#: Ops that leave each element as it is, whatever its place, and ops that do so if they read one tensor.
_MOVES, _OF_ONE = ("Concat DepthToSpace Expand Gather Pad Slice SpaceToDepth Tile Transpose", "Max Mean Min Sum")
#: Elements of which is tried where they go.
_MOST_MOVED = 1 << 20


@pytorch("x instead of F.pad(x, (0, 0)), x[:], x.tile(1) and the like")
@rule(f"{_MOVES} {_OF_ONE} -> Identity", Exactness.EXACT, rank=49, source=operator("Identity"))
def copy_identity(at: Site) -> str:
    """A node that leaves each element at its place, as a copy."""
    if at.node.op_type in _OF_ONE.split():
        at.demand(len(at.inputs()) == 1, "it has several inputs")
        return at.op("Identity", at.input(0))
    shape = at.shape(0)
    at.demand(at.output_shape() == shape and 0 < prod(shape) <= _MOST_MOVED, "it changes the shape, or is too large")
    numbers = np.arange(prod(shape)).reshape(shape)
    constants = {
        at.input(slot): at.value(slot) if at.value(slot).dtype.kind == "i" else np.array(0)
        for slot in range(1, len(at.node.input))
        if at.has(slot)
    }
    graph = helper.make_graph(
        [at.node],
        "moves",
        [helper.make_tensor_value_info(at.input(0), TensorProto.INT64, shape)],
        [helper.make_empty_tensor_value_info(at.node.output[0])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    alone = helper.make_model(graph, opset_imports=[helper.make_opsetid("", at.opset)])
    try:
        (moved,) = ReferenceEvaluator(alone).run(None, {at.input(0): numbers})
    except Exception as error:  # it does not compute every form, and raises anything then
        raise NotApplicable(f"onnx's reference does not compute it: {error}") from error
    at.demand(np.array_equal(moved, numbers), "it moves elements")
    return at.op("Identity", at.input(0))


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


@pytorch("torch.cat([zeros, x, zeros], -1) instead of F.pad(x, (a, b))")
@rule("Pad -> Slice Concat", Exactness.EXACT, rank=48, source=executorch("qualcomm/_passes/decompose_pad.py"))
def pad_slices(at: Site) -> str:
    """Borders as constants, or as Slices of the tensor for the modes reflect, edge and wrap, joined; a Slice where pads
    are negative.
    """
    shape, mode = list(at.shape(0)), at.attribute("mode", "constant")
    at.demand(mode in ("constant", *_REPEATING), f"the mode is {mode}")
    tensor = at.input(0)
    for axis, (before, after) in _pads(at, len(shape)):
        size = shape[axis]
        at.demand(size > 0 and size + min(before, 0) + min(after, 0) > 0, "nothing is left")
        if before < 0 or after < 0:
            tensor = slice_axis(at, tensor, axis, max(-before, 0), size - max(-after, 0))
            size += min(before, 0) + min(after, 0)
        ends = [
            _border(at, tensor, axis, [*shape[:axis], size, *shape[axis + 1 :]], count, mode, front=front)
            for count, front in ((max(before, 0), True), (max(after, 0), False))
        ]
        tensor = concat(at, [*ends[0], tensor, *ends[1]], axis)
        shape[axis] = size + max(before, 0) + max(after, 0)
    at.demand(tensor != at.input(0), "nothing is padded")
    return tensor


#: Border elements along one axis above which slices of one element each become too many nodes.
_FEW_BORDERS = 4
#: The modes of Pad that repeat elements, as numpy calls them.
_REPEATING: Mapping[str, Literal["reflect", "edge", "wrap"]] = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}


@pytorch("x[..., index] with a constant index instead of F.pad(x, (a, b), mode='reflect')")
@rule("Pad -> Gather", Exactness.EXACT, rank=48, source=operator("Pad"))
def pad_gather(at: Site) -> str:
    """Borders of the modes reflect, edge and wrap as a Gather along each axis, where they are wide."""
    shape, mode = at.shape(0), at.attribute("mode", "constant")
    at.demand(mode in _REPEATING, f"the mode is {mode}")
    pads = [(axis, *counts) for axis, counts in _pads(at, len(shape)) if any(counts)]
    at.demand(any(before + after > _FEW_BORDERS for _, before, after in pads), "the borders are narrow")
    tensor = at.input(0)
    for axis, before, after in pads:
        most = shape[axis] - 1 if mode == "reflect" else shape[axis]
        at.demand(shape[axis] > 0 and min(before, after) >= 0, "an axis is empty or gets smaller")
        at.demand(mode == "edge" or max(before, after) <= most, "the border is wider than what it repeats")
        places = np.pad(np.arange(shape[axis]), (before, after), _REPEATING[mode])
        tensor = at.op("Gather", tensor, at.integers(places.tolist()), axis=axis)
    return tensor


def _pads(at: Site, rank: int) -> list[tuple[int, tuple[int, int]]]:
    """Each axis with what is added before and after it."""
    pads = at.attribute("pads", [0]) if at.opset < 11 else at.value(1).tolist()
    axes = [int(axis) % rank for axis in at.value(3)] if at.has(3) else list(range(rank))
    at.demand(len(pads) == 2 * len(axes), "there are not two pads for each axis")
    return [(axis, (int(pads[n]), int(pads[n + len(axes)]))) for n, axis in enumerate(axes)]


def _border(at: Site, tensor: str, axis: int, shape: list[int], count: int, mode: str, *, front: bool) -> list[str]:
    """What stands before or behind a tensor along one axis, in order."""
    if not count:
        return []
    if mode == "constant":
        fill = at.attribute("value", 0.0) if at.opset < 11 else at.value(2).ravel()[0] if at.has(2) else 0
        dims = [*shape[:axis], count, *shape[axis + 1 :]]
        at.demand(prod(dims) <= MOST_CONSTANT, "the border is too large")
        return [at.constant(np.full(dims, fill, at.value_dtype(0)))]
    size = shape[axis]
    if mode == "edge":
        place = 0 if front else size - 1
        return [slice_axis(at, tensor, axis, place, place + 1)] * count
    if mode == "wrap":
        at.demand(count <= size, "more is repeated than there is")
        return [slice_axis(at, tensor, axis, size - count, size) if front else slice_axis(at, tensor, axis, 0, count)]
    at.demand(count < size, "more is reflected than there is")
    places = range(count, 0, -1) if front else range(size - 2, size - 2 - count, -1)
    return [slice_axis(at, tensor, axis, place, place + 1) for place in places]


#: Ops that work on each element alone, whatever the shape, and keep it.
_ELEMENTWISE = (
    "Abs Acos Acosh Asin Asinh Atan Atanh Cast Ceil Celu Clip Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish "
    "Identity IsInf IsNaN LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Sigmoid Sign Sin Sinh Softplus "
    "Softsign Sqrt Tan Tanh"
)
#: The highest rank that nearly every compiler takes.
_USUAL_RANK = 4
#: Axes that a merged Transpose may still have.
_MOST_AXES = 5


@pytorch("x.reshape(b, h, w * c).permute(1, 0, 2).reshape(...) instead of x.permute(1, 0, 2, 3)")
@rule("Transpose -> Reshape Transpose", Exactness.EXACT, rank=4, source=tidl("reshp_tr_reshp.py"))
def transpose_merge(at: Site) -> str:
    """Axes of size 1 left out and those that stay together merged, so that the permutation has fewer."""
    shape = at.shape(0)
    perm = at.attribute("perm", list(range(len(shape)))[::-1])
    at.demand(sorted(perm) == list(range(len(shape))), "the permutation is none")
    runs: list[list[int]] = []
    for axis in (axis for axis in perm if shape[axis] != 1):
        if runs and all(shape[between] == 1 for between in range(runs[-1][-1] + 1, axis)) and axis > runs[-1][-1]:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    at.demand(len(runs) < len(shape), "no axes stay together")
    before = sorted(runs)
    merged = reshape(at, at.input(0), [prod(shape[axis] for axis in run) for run in before] or [1])
    turned = transpose(at, merged, [before.index(run) for run in runs])
    return reshape(at, turned, at.output_shape())


@pytorch("two permutations of fewer axes instead of x.permute(0, 2, 4, 1, 3, 5)")
@rule(
    "Transpose -> Reshape Transpose",
    Exactness.EXACT,
    rank=4,
    source=executorch("arm/_passes/rewrite_high_rank_singleton_permute_pass.py"),
)
def transpose_twice(at: Site) -> str:
    """The axes moved to the front one at a time, each with three axes: those before, the axis, those behind."""
    shape = list(at.shape(0))
    perm = at.attribute("perm", list(range(len(shape)))[::-1])
    at.demand(sorted(perm) == list(range(len(shape))), "the permutation is none")
    at.demand(len(shape) > _MOST_AXES, f"the rank is no higher than {_MOST_AXES}")
    tensor, order = at.input(0), list(range(len(shape)))
    for place, axis in enumerate(perm):
        now = order.index(axis)
        if now == place:
            continue
        dims = [shape[other] for other in order]
        kept, passed = prod(dims[:place]), prod(dims[place:now])
        parts = reshape(at, tensor, [kept, passed, dims[now], prod(dims[now + 1 :])])
        tensor = at.op("Transpose", parts, perm=[0, 2, 1, 3])
        order.insert(place, order.pop(now))
    at.demand(tensor != at.input(0), "the permutation changes nothing")
    return reshape(at, tensor, at.output_shape())


@pytorch("torch.sigmoid(x.flatten(1)).reshape(x.shape) instead of x.sigmoid(), x of rank 5 or more")
@rule(f"{_ELEMENTWISE} -> Reshape {_ELEMENTWISE}", Exactness.EXACT, rank=4, source=executorch("arm/_passes"))
def elementwise_flat(at: Site) -> str:
    """An op of each element alone, on a tensor of rank 5 or more: the axes behind the third merged meanwhile."""
    shape = at.shape(0)
    at.demand(len(shape) > _USUAL_RANK, f"the rank is no higher than {_USUAL_RANK}")
    flat = reshape(at, at.input(0), [*shape[:3], prod(shape[3:])])
    return reshape(at, at.like(flat, *at.node.input[1:]), shape)
