"""The network of a model: what a picture shows is what the model has, and what is around a unit is what is near it."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from onnxbisect.drawing.graph import network_of
from onnxbisect.drawing.network import Network, drawing, dumped, network_bytes, read_drawing, read_network
from onnxbisect.model import load
from onnxbisect.model.unit_properties import UnitProperties
from onnxbisect.unitset import chosen, count_of, indices_of, members, of, spell, units_in
from support.engine.report_factory import HOSTILE, chain, model_of
from support.examples import examples

MODELS = Path(__file__).parent.parent / "models"
READABLE = [
    "computed_shape",
    "constants_everywhere",
    "control_captures",
    "custom_domain_unknown",
    "duplicate_names",
    "empty_optional_inputs",
    "initializers_as_inputs",
    "interleaved",
    "local_functions",
    "names_weird",
    "quantized",
    "sam_part1_prompt__ts11",
    "sequence_ops",
    "sparse_initializer",
    "unsorted_nodes",
]


def of_links(count: int, links: Sequence[tuple[int, int]]) -> Network:
    """Names and facts do not matter."""
    return Network(
        name="",
        names=[f"n{unit}" for unit in range(count)],
        ops=["Op"] * count,
        tensors=[(f"t{number}", "") for number in range(len(links))],
        links=[(source, target, number) for number, (source, target) in enumerate(links)],
        inputs=[],
        outputs=[],
        read=[[] for _ in range(count)],
        made=[[] for _ in range(count)],
        facts=[[]],
        facts_of=[0] * count,
    )


@pytest.mark.parametrize("name", READABLE)
def test_every_model_is_drawn_with_all_that_it_has(name: str) -> None:
    model = load(MODELS / f"{name}.onnx", input_shapes={})
    network = network_of(model)
    whole = drawing(network, range(len(network)))
    assert whole["units"] == list(range(len(model.units)))
    assert whole["ops"] == list(model.universe.op)
    linked = {(source, target) for source, target, _, _ in whole["edges"]}
    assert linked == {(unit, after) for unit, units in enumerate(model.universe.successors) for after in members(units)}
    weights = {tensor.name for tensor in model.proto.graph.initializer}
    assert len(whole["inputs"]) == len([value for value in model.proto.graph.input if value.name not in weights])
    assert len(whole["outputs"]) == len(model.proto.graph.output)
    facts = UnitProperties(model)
    for unit in range(len(network)):
        told = network.unit(unit)
        assert len(told["facts"]) == len(facts.of(unit, shapes=True))
        assert {it["from"] for it in told["inputs"]} - {None} == {source for source, target in linked if target == unit}
        assert {target for it in told["outputs"] for target in it["to"]} == {
            target for source, target in linked if source == unit
        }
    stored = network_bytes(network)
    again = read_network(io.BytesIO(stored))
    assert network_bytes(again) == stored
    assert read_drawing(io.BytesIO(stored)) == dumped(whole)


def test_what_a_unit_reads_from_weights_and_inputs_comes_from_nobody() -> None:
    node = helper.make_node("Gather", ["x", "table"], ["y"], name="look", axis=1)
    table = helper.make_tensor("table", TensorProto.INT64, [2], [0, 1])
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2])],
        [table],
    )
    network = network_of(model_of(helper.make_model(graph)))
    assert network.unit(0) == {
        "unit": 0,
        "name": "look",
        "op": "Gather",
        "facts": {"attribute axis": "1", "input 0": "float[1,4]", "input 1": "constant int64[2] = [0, 1]"},
        "inputs": [
            {"tensor": "x", "type": "float[1,4]", "from": None},
            {"tensor": "table", "type": "", "from": None},
        ],
        "outputs": [{"tensor": "y", "type": "float[1,2]", "to": []}],
    }
    assert drawing(network, [0])["inputs"][0][:3] == ["x", "float[1,4]", [0]]


def test_an_output_that_nothing_makes_stands_alone() -> None:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], name="r")], "g", [value], [value])
    whole = drawing(network_of(model_of(helper.make_model(graph))), [0])
    assert [end[:3] for end in whole["outputs"]] == [["x", "float[1]", []]]


@given(
    st.integers(1, 25).flatmap(
        lambda count: st.tuples(
            st.just(count),
            st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=40),
            st.sets(st.integers(0, count - 1), min_size=1, max_size=4),
            st.integers(0, 6),
        )
    )
)
@settings(max_examples=examples(200))
def test_around_is_what_so_many_links_lead_to(case: tuple[int, list[tuple[int, int]], set[int], int]) -> None:
    count, pairs, units, hops = case
    links = [(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]]
    distance = {(one, other): 0 if one == other else 99 for one in range(count) for other in range(count)}
    for source, target in links:
        distance[source, target] = distance[target, source] = 1
    for middle in range(count):
        for one in range(count):
            for other in range(count):
                distance[one, other] = min(distance[one, other], distance[one, middle] + distance[middle, other])
    near = [unit for unit in range(count) if min(distance[unit, other] for other in units) <= hops]
    network = of_links(count, links)
    assert network.around(units, hops) == near
    part = drawing(network, near)
    expected = [(part["units"].index(a), part["units"].index(b)) for a, b in links if a in near and b in near]
    assert [tuple(edge[:2]) for edge in part["edges"]] == expected
    assert [part["tensors"][edge[2]][0] for edge in part["edges"]] == [
        f"t{number}" for number, (a, b) in enumerate(links) if a in near and b in near
    ]


def test_hostile_and_endless_names_are_shown_safely() -> None:
    model = chain(["Relu", helper.make_node("Odd", [], [], note=HOSTILE * 100)], {0: HOSTILE, 1: "a/" * 4000 + "end"})
    stored = network_bytes(network_of(model))
    text = stored.decode()
    assert text.replace("\n", "").isprintable()
    assert "a/end" in text
    assert len(text) < 5000


def test_a_node_of_a_thousand_attributes_has_the_rest_counted() -> None:
    attributes: dict[str, Any] = {f"a{number}": number for number in range(1000)}
    node = helper.make_node("Odd", [], [], **attributes)
    facts = network_of(chain([node])).unit(0)["facts"]
    assert len(facts) == 201
    assert facts["…"] == "801 more"


@given(st.sets(st.integers(0, 60), max_size=20), st.integers(0, 70))
def test_a_strangers_ranges(units: set[int], count: int) -> None:
    text = spell(of(units))
    assert chosen(text, count) == [unit for unit in indices_of(text) if unit < count]
    assert chosen(",".join([text, text, "5-3"]), count) == chosen(text, count)
    assert units_in(",".join([text, text, "5-3"]), count) == of(chosen(text, count))
    assert count_of(text + ",5-3") == len(list(indices_of(text)))


def test_the_format_is_one_object_on_each_of_two_lines() -> None:
    whole, rest, nothing = network_bytes(network_of(chain(["Relu"]))).split(b"\n")
    assert (whole[:1], rest[:1], nothing) == (b"{", b"{", b"")
