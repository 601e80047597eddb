"""Tensors without elements are left out where others are joined or changed with them."""

import pytest

from support.file_remedies import Repair, Same, Save

_STORED = (
    "int64[1] six = {6}, int64[1] nine = {9}, int64[1] one = {1}, int64[2] parts = {6, 0}, int64[2] none = {0, 6}, "
    "float[2,0] nothing = {}, int64[0,2] nowhere = {}, float[0] no_updates = {}"
)


@pytest.mark.parametrize(
    ("body", "ops", "tensors"),
    [
        # the masks of a detector without masks, as torch.cat joins them
        (
            "a = Relu(x) b = Slice(a, six, nine, one) c = Neg(b) y = Concat <axis = 1> (a, c, a)",
            ["Relu", "Concat"],
            1,
        ),
        (
            "a = Relu(x) b, c = Split <axis = 1> (a, parts) d = Concat <axis = 1> (b, c) y = Neg(d)",
            ["Relu", "Split", "Neg"],
            1,
        ),
        ("a = Relu(x) b = ConstantOfShape(none) c = Concat <axis = 0> (b, a) y = Neg(c)", ["Relu", "Neg"], 1),
        ("a = Relu(x) y = Concat <axis = 1> (nothing, a)", ["Relu", "Identity"], 1),
        ("a = Relu(x) b = ScatterND(a, nowhere, no_updates) y = Neg(b)", ["Relu", "Neg"], 2),
        (
            "a = Slice(x, six, nine, one) b = Concat <axis = 1> (x, a) c = Slice(b, six, nine, one) "
            "d = Concat <axis = 1> (c, b) y = Neg(d)",
            ["Neg"],
            2,
        ),
    ],
)
def test_empty_tensors_are_left_out_with_what_makes_them(
    save: Save, repair: Repair, same: Same, body: str, ops: list[str], tensors: int
) -> None:
    path = save(f"g (float[2,6] x) => (float[n,m] y) <{_STORED}> {{ {body} }}")
    candidate = repair(path, "drop-empty-tensors")
    assert candidate.sentence == f"{tensors} tensor{'s' if tensors > 1 else ''} without elements left out"
    assert [node.op_type for node in candidate.proto.graph.node] == ops
    same(path, candidate.proto)


@pytest.mark.parametrize(
    ("body", "outputs"),
    [
        ("y = Concat <axis = 1> (x, x)", "float[2,12] y"),
        # an empty result is the model's
        ("a = Slice(x, six, nine, one) y = Concat <axis = 1> (a, nothing)", "float[2,0] y"),
        # a sum over nothing is a number
        ("a = Slice(x, six, nine, one) y = ReduceSum(a, one)", "float[2,1] y"),
    ],
)
def test_what_is_not_only_joined_stays(save: Save, repair: Repair, body: str, outputs: str) -> None:
    candidate = repair(save(f"g (float[2,6] x) => ({outputs}) <{_STORED}> {{ {body} }}"), "drop-empty-tensors")
    assert not candidate.applied
    assert candidate.declined[0].reason == "no Concat or scatter reads a tensor without elements beside others"
