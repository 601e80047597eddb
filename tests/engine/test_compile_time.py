"""What a compile is expected to take, and when it is given up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxbisect.unitset import full, size
from onnxbisect_backends.probing.prober import Compiled, TimeLimit, expected_seconds, time_limit

SECONDS = st.floats(0.0, 3600.0)
COMPILES = st.lists(
    st.builds(Compiled, units=st.integers(1, 2**40 - 1), seconds=SECONDS, passed=st.booleans()), max_size=20
)


def passed(units: int, seconds: float) -> Compiled:
    return Compiled(units=full(units), seconds=seconds, passed=True)


def failed(units: int, seconds: float) -> Compiled:
    return Compiled(units=full(units), seconds=seconds, passed=False)


@given(COMPILES, st.integers(1, 5000), st.integers(1, 5000))
def test_more_units_are_never_expected_to_take_less(compiled: list[Compiled], one: int, other: int) -> None:
    less, more = (expected_seconds(compiled, units) for units in sorted((one, other)))
    if less is None or more is None:
        assert not any(it.passed for it in compiled)
    else:
        assert 0.0 <= less <= more


@given(st.floats(0.0, 60.0), st.floats(0.0, 1.0), st.sets(st.integers(1, 999), min_size=2, max_size=20), st.data())
def test_the_line_is_found_whatever_one_compile_in_five_took(
    start: float, slope: float, sizes: set[int], data: st.DataObject
) -> None:
    compiled = [passed(units, start + slope * units) for units in sizes]
    for place in data.draw(st.sets(st.integers(0, len(compiled) - 1), max_size=len(compiled) // 5)):
        compiled[place] = passed(size(compiled[place].units), data.draw(SECONDS))
    for units in (1, 500, 5000):
        assert expected_seconds(compiled, units) == pytest.approx(start + slope * units, abs=1e-6)


@given(COMPILES, st.integers(1, 2**40 - 1))
def test_a_limit_is_never_below_what_is_known_of_the_probe(compiled: list[Compiled], units: int) -> None:
    limit = time_limit(compiled, units)
    if limit is None:
        return
    assert limit.expected == expected_seconds(compiled, size(units))
    assert limit.seconds >= max(30.0, 4 * limit.expected)
    assert all(limit.seconds >= 4 * it.seconds for it in compiled if size(it.units) >= size(units))
    assert all(limit.seconds >= 4 * it.seconds for it in compiled if it.units & ~units == 0)


def test_while_nothing_has_passed_there_is_no_limit() -> None:
    assert time_limit([], full(3)) is None
    assert time_limit([failed(1000, 2.0)], full(3)) is None


def test_one_compile_says_what_others_of_its_size_take() -> None:
    assert expected_seconds([passed(100, 20.0)], 100) == 20.0
    assert expected_seconds([passed(100, 20.0), passed(200, 30.0)], 400) == pytest.approx(50.0)


def test_quick_refusals_do_not_shorten_what_a_pass_may_take() -> None:
    """The whole model is refused at once; its passing remainder takes a minute."""
    refused = [failed(1000, 1.0), failed(900, 1.0), failed(3, 1.0)]
    assert time_limit([*refused, passed(1, 4.0), passed(2, 4.0)], full(990)) is None
    assert time_limit([*refused, passed(500, 32.0)], full(990)) == TimeLimit(seconds=128.0, expected=32.0)


def test_a_slow_part_may_be_slow_again() -> None:
    slow = Compiled(units=1 << 7, seconds=200.0, passed=True)
    quick = [Compiled(units=1 << unit, seconds=4.0, passed=True) for unit in range(7)]
    limit = time_limit([*quick, slow], (1 << 7) | 1)
    other = time_limit([*quick, slow], (1 << 8) | 1)
    assert limit == TimeLimit(seconds=800.0, expected=4.0)
    assert other == TimeLimit(seconds=30.0, expected=4.0)


def test_a_piece_of_a_model_may_take_four_times_what_the_model_took() -> None:
    limit = time_limit([failed(1500, 63.0), passed(800, 30.0), passed(3, 4.0)], full(1400))
    assert limit is not None
    assert limit.seconds == pytest.approx(4 * 63.0)
