"""Boundaries in a form that a target takes: another rank or dtype, a shorter name, and the same values behind them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from onnxbisect.cut import Cutter
from onnxbisect.cut.required_producers import runtime_dtype
from onnxbisect.model import Model
from onnxbisect.model.values import TensorValues
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.unitset import full
from onnxbisect_backends.samples import samples_of, write_samples
from support.engine.cut_models import all_tensors, input_names, output_names, read, save, session
from support.examples import examples

#: A scalar and a flag at every cut, and a branch that captures both.
SCALARS = """<ir_version: 8, opset_import: ["": 17]>
scalars (float[2,3] x, int64 sr) => (float[2,3] y, float s3)
<float c = {0.5}, int64 rate = {16000}>
{
  s = ReduceMax<keepdims = 0>(x)
  same = Equal(sr, rate)
  s1 = Mul(s, c)
  s2 = Where(same, s1, c)
  y = If(same) <
    then_branch = yes () => (float[2,3] t) { t = Mul(x, s2) },
    else_branch = no () => (float[2,3] e) { n = Not(same)  k = Cast<to = 1>(n)  q = Add(s1, k)  e = Add(x, q) }
  >
  s3 = Neg(s2)
}"""

#: What a strict target takes.
STRICT = ProbeFormat(
    input_dtypes=frozenset({"float", "int32"}),
    output_dtypes=frozenset({"float", "int32"}),
    min_input_rank=1,
    min_output_rank=1,
    longest_name=12,
)


def violations(proto: onnx.ModelProto, wanted: ProbeFormat) -> Iterator[str]:
    """What the boundary of a file has that the target does not take."""
    for values, dtypes, rank, most in (
        (proto.graph.input, wanted.input_dtypes, wanted.min_input_rank, wanted.max_input_rank),
        (proto.graph.output, wanted.output_dtypes, wanted.min_output_rank, wanted.max_output_rank),
    ):
        for value in values:
            if most is not None and len(value.type.tensor_type.shape.dim) > most:
                yield f"{value.name} has rank {len(value.type.tensor_type.shape.dim)}"
            if dtypes is not None and runtime_dtype(value.type) not in dtypes:
                yield f"{value.name} is {runtime_dtype(value.type)}"
            if len(value.type.tensor_type.shape.dim) < rank:
                yield f"{value.name} has rank {len(value.type.tensor_type.shape.dim)}"
            if wanted.longest_name is not None and len(value.name.encode()) > wanted.longest_name:
                yield f"{value.name} is too long"


def assert_neutral(model: Model, units: int, wanted: ProbeFormat) -> None:
    """The piece computes the model's values, in the forms of its own boundary."""
    piece = Cutter(model).cut(units, wanted)
    onnx.checker.check_model(piece.proto, full_check=True)
    assert not list(violations(piece.proto, wanted))
    values = all_tensors(model)
    feeds = {
        value.name: np.asarray(values[piece.original(value.name)])
        .reshape([dim.dim_value for dim in value.type.tensor_type.shape.dim])
        .astype(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
        for value in piece.proto.graph.input
    }
    found = session(piece.proto.SerializeToString()).run(None, feeds)
    for value, array in zip(piece.proto.graph.output, found, strict=True):
        expected = np.asarray(values[piece.original(value.name)])
        assert array.reshape(expected.shape).astype(expected.dtype).tobytes() == expected.tobytes()
    added = {node.name for node in piece.proto.graph.node} - set(model.unit_of_node)
    tensors = {name for unit in range(len(model.units)) for name in model.universe.tensors[unit]}
    own = {value.name for value in model.proto.graph.input}
    assert {piece.original(name) for name in added} <= tensors | own


@pytest.mark.parametrize("opset", [12, 17])
def test_every_piece_computes_the_same_behind_a_strict_boundary(tmp_path: Path, opset: int) -> None:
    model = read(tmp_path, SCALARS.replace('"": 17', f'"": {opset}'))
    for units in range(1, full(len(model.units)) + 1):
        assert_neutral(model, units, STRICT)


def test_a_boundary_that_the_target_takes_is_left_alone(tmp_path: Path) -> None:
    model = read(tmp_path, SCALARS)
    takes_it = ProbeFormat(
        input_dtypes=frozenset({"float", "bool", "int64"}), output_dtypes=frozenset({"float", "bool"}), longest_name=99
    )
    for units in range(1, full(len(model.units)) + 1):
        assert Cutter(model).cut(units, takes_it).proto == Cutter(model).cut(units).proto


def test_leading_dimensions_are_added_up_to_any_rank(tmp_path: Path) -> None:
    model = read(tmp_path, SCALARS)
    wanted = ProbeFormat(min_input_rank=4, min_output_rank=3)
    for units in range(1, full(len(model.units)) + 1):
        assert_neutral(model, units, wanted)


#: Ranks of 5 and 6 at every cut, leading dimensions of 1 among them.
HIGH = """<ir_version: 8, opset_import: ["": 17]>
high (float[2,3,1,2,2] x, float[1,1,3,2,2] z) => (float[2,9,4] y, float[1,2,3,3,2,2] s)
<int64[1] axis = {0}, int64[3] dims = {2, 9, 4}>
{
  a = Add(x, z)
  g = Greater(a, x)
  w = Where(g, a, z)
  s = Unsqueeze(w, axis)
  r = ReduceSum<keepdims = 0>(s, axis)
  n = Neg(r)
  y = Reshape(n, dims)
}"""


@pytest.mark.parametrize(
    "wanted",
    [
        ProbeFormat(max_input_rank=4, max_output_rank=5),
        ProbeFormat(max_input_rank=3, max_output_rank=1, input_dtypes=frozenset({"float"})),
        ProbeFormat(max_output_rank=4, output_dtypes=frozenset({"float"}), min_output_rank=4),
    ],
)
def test_leading_dimensions_are_joined_where_there_are_too_many(tmp_path: Path, wanted: ProbeFormat) -> None:
    model = read(tmp_path, HIGH)
    for units in range(1, full(len(model.units)) + 1):
        assert_neutral(model, units, wanted)


def test_high_ranks_of_old_models_are_restored(tmp_path: Path) -> None:
    text = """<ir_version: 3, opset_import: ["": 4]> g (float[2,1,2,1,2] x) => (float[2,1,2,1,2] y) { y = Relu(x) }"""
    piece = Cutter(read(tmp_path, text)).cut(1, ProbeFormat(max_input_rank=4, max_output_rank=4)).proto
    assert [node.op_type for node in piece.graph.node] == ["Reshape", "Relu", "Reshape"]
    onnx.checker.check_model(piece, full_check=True)


@given(names=st.lists(st.text("ab/中ü;", min_size=1, max_size=40), min_size=6, max_size=6, unique=True))
@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
def test_long_names_are_shortened_and_stay_apart(tmp_path_factory: pytest.TempPathFactory, names: list[str]) -> None:
    """Bytes count, not characters, and what remains of several names may be the same."""
    prefix = "p" * 30
    given_, made = [prefix + name for name in names[:3]], [prefix + name for name in names[3:]]
    nodes = [helper.make_node("Relu", [one], [other]) for one, other in zip(given_, made, strict=True)]
    float_ = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, float_, [2]) for name in given_],
        [helper.make_tensor_value_info(name, float_, [2]) for name in made],
    )
    folder = tmp_path_factory.mktemp("names")
    model = read(folder, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    for safe in (False, True):
        piece = Cutter(model).cut(full(3), ProbeFormat(longest_name=31, safe_names=safe))
        boundary = [*input_names(piece.proto), *output_names(piece.proto)]
        assert len(set(boundary)) == 6
        assert all(len(name.encode()) <= 31 for name in boundary)
        assert {piece.original(name) for name in boundary} == {*given_, *made}
        onnx.checker.check_model(piece.proto)


def test_a_weight_that_is_listed_as_an_input_keeps_its_form(tmp_path: Path) -> None:
    text = """<ir_version: 3, opset_import: ["": 7]> g (float[2] x, float w) => (float[2] y) <float w = {2}>
        { y = Mul(x, w) }"""
    piece = Cutter(read(tmp_path, text)).cut(1, ProbeFormat(min_input_rank=1)).proto
    assert [node.op_type for node in piece.graph.node] == ["Mul"]


def test_what_only_dequantize_linear_reads_keeps_its_dtype(tmp_path: Path) -> None:
    """Seen with RKNN-Toolkit2: a Cast to int8 crashes it, an input of int8 that DequantizeLinear reads is fine."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y) <float s = {0.1}, int8 z = {0}> {
        q = QuantizeLinear(x, s, z)
        y = DequantizeLinear(q, s, z)
    }"""
    strict = ProbeFormat(input_dtypes=frozenset({"float", "int64"}))
    assert [node.op_type for node in Cutter(read(tmp_path, text)).cut(0b10, strict).proto.graph.node] == [
        "DequantizeLinear"
    ]
    negated = text.replace("float[4] y", "int8[4] y").replace("y = DequantizeLinear(q, s, z)", "y = Neg(q)")
    assert [node.op_type for node in Cutter(read(tmp_path, negated)).cut(0b10, strict).proto.graph.node] == [
        "Cast",
        "Neg",
    ]


def test_what_has_no_other_form_stays(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (seq(float) l, string s, int64 i) => (float t, string u) {
        t = SequenceAt(l, i)
        u = Identity(s)
    }"""
    strict = ProbeFormat(input_dtypes=frozenset({"float", "int64"}), output_dtypes=frozenset({"float"}))
    piece = Cutter(read(tmp_path, text)).cut(0b11, strict).proto
    assert {node.op_type for node in piece.graph.node} == {"SequenceAt", "Identity"}


def test_samples_have_the_form_of_the_probe(tmp_path: Path) -> None:
    model = read(tmp_path, SCALARS)
    (behind_flag,) = (unit for unit, op in enumerate(model.universe.op) if op == "Where")
    piece = Cutter(model).cut(1 << behind_flag, STRICT)
    probe = save(tmp_path, piece.proto, "probe.onnx")

    write_samples(probe, piece.renamed, TensorValues(model, count=2))

    plain = list(
        TensorValues(model, count=2).samples([onnx.ValueInfoProto(name=n, type=model.types[n]) for n in ("s1", "same")])
    )
    for path, expected in zip(samples_of(probe), plain, strict=True):
        with np.load(path) as sample:
            found = {piece.original(name): sample[name] for name in input_names(piece.proto)}
        assert {name: (it.dtype.name, it.shape) for name, it in found.items()} == {
            "same": ("int32", (1,)),
            "s1": ("float32", (1,)),
        }
        assert all(float(found[name][0]) == float(expected[name]) for name in found)


def test_samples_have_fewer_dimensions_where_the_probe_has(tmp_path: Path) -> None:
    model = read(tmp_path, HIGH)
    (last,) = (unit for unit, op in enumerate(model.universe.op) if op == "Neg")
    piece = Cutter(model).cut(1 << last, ProbeFormat(max_input_rank=3))
    probe = save(tmp_path, piece.proto, "probe.onnx")

    write_samples(probe, piece.renamed, TensorValues(model, count=1))

    (plain,) = TensorValues(model, count=1).samples([onnx.ValueInfoProto(name="r", type=model.types["r"])])
    with np.load(next(iter(samples_of(probe)))) as sample:
        (found,) = sample.values()
    assert found.shape == (18, 2, 2)
    assert found.tobytes() == plain["r"].tobytes()


@pytest.mark.parametrize("opset", [12, 17])
def test_a_piece_with_joined_inputs_and_outputs_computes_the_same(tmp_path: Path, opset: int) -> None:
    """Those of one dtype become one; samples are theirs in a row."""
    model = read(tmp_path, SCALARS.replace('"": 17', f'"": {opset}'))
    wanted, joined = replace(STRICT, max_inputs=1, max_outputs=1), 0
    for units in range(1, full(len(model.units))):
        alone, cut = (Cutter(model).cut(units, it) for it in (STRICT, wanted))
        for ends, more in (
            (cut.proto.graph.input, alone.proto.graph.input),
            (cut.proto.graph.output, alone.proto.graph.output),
        ):
            assert len(ends) == len({it.type.tensor_type.elem_type for it in more})
            joined += len(ends) < len(more)
        onnx.checker.check_model(cut.proto, full_check=True)
        folder = tmp_path / str(units)
        folder.mkdir()
        probes = []
        for name, it in (("alone", alone), ("joined", cut)):
            probes.append(save(folder, it.proto, f"{name}.onnx"))
            write_samples(probes[-1], it.renamed, TensorValues(model, count=1))
        one, other = (outputs_of(probe) for probe in probes)
        assert sorted(one) == sorted(other)
    assert joined


def outputs_of(probe: Path) -> list[float]:
    """What a probe computes on its first sample, as numbers."""
    with np.load(samples_of(probe)[0]) as sample:
        found = session(probe.read_bytes()).run(None, dict(sample))
    return [float(number) for array in found for number in np.asarray(array).ravel()]
