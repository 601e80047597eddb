"""Sets of units as integers are sets."""

from hypothesis import given
from hypothesis import strategies as st

from onnxbisect.unitset import indices, is_subset, lowest, members, of, size, sort_key

#: Few and many members, in small and in large models: each has a way of its own to be read and written.
SETS = st.one_of(st.sets(st.integers(0, 20_000), max_size=8), st.sets(st.integers(0, 300), min_size=60))


@given(SETS)
def test_members_come_back_in_ascending_order(units: set[int]) -> None:
    assert list(members(of(units))) == indices(of(units)).tolist() == sorted(units)
    assert size(of(units)) == len(units)
    assert sort_key(of(units)) == (len(units), tuple(sorted(units)))


@given(SETS, SETS)
def test_operators_of_integers_are_those_of_sets(one: set[int], other: set[int]) -> None:
    assert of(one) | of(other) == of(one | other)
    assert of(one) & ~of(other) == of(one - other)
    assert is_subset(of(one), of(other)) == (one <= other)
    assert not one or lowest(of(one)) == min(one)
