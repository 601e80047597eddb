"""A compiler's own table of errors orders the asks of a search for nodes that must stay precise."""

import onnx.parser
from hypothesis import given
from hypothesis import strategies as st

from onnxbisect.precision.low import blamed_first, interleaved

GRAPH = onnx.parser.parse_graph("""
    g (float[4] x) => (float[4] y) {
        [first] a = Relu(x)
        [second] b = Sigmoid(a)
        [third] c = Tanh(b)
        [beside] d = Neg(x)
        [last] y = Add(c, d)
    }""")
KNOWN = {"first": 0, "second": 1, "third": 2, "beside": 3, "last": 4}


def test_of_a_layer_its_nodes_come_first_and_then_those_that_make_what_it_reads() -> None:
    assert blamed_first(GRAPH, [["last"], ["second"]], KNOWN) == (4, 2, 3, 1, 0)
    assert blamed_first(GRAPH, [["third", "last"]], KNOWN) == (2, 4, 1, 3)


def test_in_place_of_a_node_that_cannot_be_kept_there_is_the_one_before() -> None:
    assert blamed_first(GRAPH, [["last"]], {"first": 0, "last": 4}) == (4, 0)


def test_names_that_the_model_does_not_have_are_left_out() -> None:
    assert blamed_first(GRAPH, [["none"], []], KNOWN) == ()


@given(st.permutations(range(12)), st.lists(st.integers(0, 15), unique=True))
def test_the_hint_and_the_order_take_turns(order: list[int], hint: list[int]) -> None:
    both = interleaved(order, hint)
    assert sorted(both) == sorted(order)
    for mixed in (order, [unit for unit in hint if unit in order]):
        assert all(both.index(unit) <= 2 * place + 1 for place, unit in enumerate(mixed))
