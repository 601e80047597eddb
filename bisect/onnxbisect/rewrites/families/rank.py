"""Tensors of high rank at a lower one."""

from math import prod

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.forms import reshape, transpose
from onnxbisect.rewrites.rule import pytorch, rule
from onnxbisect.rewrites.site import Site
from onnxbisect.rewrites.sources import executorch, tidl

#: Ops that work on each element alone, whatever the shape, and keep it.
_ELEMENTWISE = (
    "Abs Cast Ceil Clip Elu Erf Exp Floor Gelu HardSigmoid HardSwish Identity IsNaN LeakyRelu Log Mish Neg Not "
    "Reciprocal Relu Round Selu Sigmoid Sign Sin Softplus Softsign Sqrt Tanh"
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
