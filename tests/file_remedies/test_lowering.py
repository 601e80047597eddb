"""Lower operator sets: nodes in older forms compute the same, and what cannot be said there is refused."""

from collections import Counter
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnx.backend.test.case.test_case import TestCase

from onnxbisect.file_remedies import ChangedCopy, File, repaired
from onnxbisect.model.session import Clock, Session
from onnxbisect.preflight import ToolLimits
from onnxbisect.rewrites import Exactness
from support.file_remedies import Repair, Same, Save

#: What `data.draw` is.
Draw = Callable[[st.SearchStrategy[Any]], Any]
VERSIONS = (11, 12, 13, 15, 17, 19, 21, 26)
#: The newest that onnxruntime runs.
RUNNABLE = 26


def lowered(proto: onnx.ModelProto, to: int) -> ChangedCopy:
    """A model that did not go through intake, with the types that onnx infers."""
    graph = onnx.shape_inference.infer_shapes(proto, data_prop=True).graph
    types = {value.name: value.type for value in (*graph.input, *graph.value_info, *graph.output)}
    file = File(proto=proto, types=types, known={}, folder=Path())
    return repaired(file, ["lower-opset"], ToolLimits(tool="Chipper", newest_opset=to))


def outputs(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return Session(proto, Path()).run([value.name for value in proto.graph.output], feeds, Clock(inf))


def with_stored_settings(case: TestCase) -> tuple[onnx.ModelProto, dict[str, np.ndarray]] | None:
    """A node test of ONNX, its small inputs stored as exporters do; None where an input is no tensor."""
    proto = onnx.ModelProto()
    assert case.model is not None
    assert case.data_sets is not None
    proto.CopyFrom(case.model)
    proto.ir_version = min(proto.ir_version, 13)
    feeds = {}
    for slot, (value, array) in enumerate(zip(case.model.graph.input, case.data_sets[0][0], strict=True)):
        if not isinstance(array, np.ndarray):
            return None
        if slot and array.ndim <= 1 and array.size <= 16 and array.dtype != object:
            proto.graph.initializer.append(numpy_helper.from_array(array, value.name))
            proto.graph.input.remove(value)
        else:
            feeds[value.name] = array
    return proto, feeds


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # numpy's, where onnx computes what its tests expect
@pytest.mark.timeout(900)
def test_the_node_tests_of_onnx_compute_the_same_in_an_older_operator_set() -> None:
    seen: Counter[str] = Counter()
    wrong = []
    for case in collect_testcases(None):
        assert case.model is not None
        assert case.data_sets is not None
        imports = case.model.opset_import
        versions = [to for to in VERSIONS if to < imports[0].version]
        stored = with_stored_settings(case)
        if len(imports) > 1 or not versions or stored is None or "bernoulli" in case.name:
            continue
        proto, feeds = stored
        to = versions[crc32(case.name.encode()) % len(versions)]
        runnable = proto if imports[0].version <= RUNNABLE else lowered(proto, RUNNABLE).proto
        candidate = lowered(proto, to)
        if not candidate.applied:
            assert candidate.declined[0].reason
            seen["refused"] += 1
            continue
        try:
            before = outputs(runnable, feeds)
        except Exception:  # onnxruntime lacks the op or the element type
            seen["not run"] += 1
            continue
        after = outputs(candidate.proto, feeds)
        seen["lowered"] += 1
        exact = candidate.exactness is Exactness.EXACT
        expected = case.data_sets[0][1]
        wrong += [
            case.name
            for one, other, right in zip(before, after, expected, strict=True)
            # where onnxruntime does not compute what ONNX expects, the older form may
            if not (agree(one, other, exact) or agree(right, other, exact))
        ]
    assert not wrong
    assert seen["lowered"] > 800
    assert seen["not run"] < 100


def agree(one: Any, other: Any, exact: bool) -> bool:
    if not isinstance(one, np.ndarray) or one.dtype.kind not in "fc":
        return str(one) == str(other)
    tolerance = 0.0 if exact else 1e-3 if one.dtype == np.float16 else 1e-5
    return one.shape == np.shape(other) and np.allclose(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)


def node(
    op: str, x: np.ndarray, *stored: np.ndarray | None, outputs: int = 1, opset: int = 21, **attributes: Any
) -> onnx.ModelProto:
    names = [f"c{slot}" if array is not None else "" for slot, array in enumerate(stored)]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *names], [f"y{slot}" for slot in range(outputs)], name="n", **attributes)],
        "g",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [helper.make_empty_tensor_value_info(f"y{slot}") for slot in range(outputs)],
        [numpy_helper.from_array(a, name) for a, name in zip(stored, names, strict=True) if a is not None],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def check(proto: onnx.ModelProto, x: np.ndarray, to: int) -> None:
    candidate = lowered(proto, to)
    assert candidate.applied, candidate.declined
    assert candidate.exactness is Exactness.EXACT
    assert {entry.domain: entry.version for entry in candidate.proto.opset_import} == {"": to}
    onnx.checker.check_model(onnx.shape_inference.infer_shapes(candidate.proto, strict_mode=True))
    for one, other in zip(outputs(proto, {"x": x}), outputs(candidate.proto, {"x": x}), strict=True):
        np.testing.assert_array_equal(one, other)


DIMS = st.lists(st.integers(1, 4), min_size=1, max_size=4)
TO = st.sampled_from([11, 12, 13, 15, 17, 18])


def drawn(draw: Draw) -> np.ndarray:
    return np.asarray(np.random.default_rng(draw(st.integers(0, 1000))).normal(size=draw(DIMS)), np.float32)


def some_axes(draw: Draw, rank: int) -> list[int]:
    axes = draw(st.lists(st.integers(0, rank - 1), unique=True, max_size=rank))
    return [axis - rank if draw(st.booleans()) else axis for axis in axes]


@given(st.data())
def test_reductions(data: st.DataObject) -> None:
    x = drawn(data.draw)
    op = data.draw(st.sampled_from(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceProd"]))
    axes = some_axes(data.draw, x.ndim) if data.draw(st.booleans()) else None
    stored = [] if axes is None else [np.array(axes, np.int64)]
    attributes = {"keepdims": data.draw(st.integers(0, 1)), "noop_with_empty_axes": data.draw(st.integers(0, 1))}
    if op == "ReduceL2" and not axes and attributes["noop_with_empty_axes"]:
        assert not lowered(node(op, x, *stored, **attributes), 17).applied  # it makes magnitudes of the elements
    else:
        check(node(op, x, *stored, **attributes), x, data.draw(TO))


@given(st.data())
def test_pads_of_some_axes(data: st.DataObject) -> None:
    x = drawn(data.draw)
    axes = some_axes(data.draw, x.ndim)
    pads = np.array(data.draw(st.lists(st.integers(0, 2), min_size=2 * len(axes), max_size=2 * len(axes))), np.int64)
    value = np.array(data.draw(st.sampled_from([0.0, 3.5])), np.float32) if data.draw(st.booleans()) else None
    proto = node("Pad", x, pads, value, np.array(axes, np.int64))
    check(proto, x, data.draw(TO))


@given(st.data())
def test_splits(data: st.DataObject) -> None:
    x = drawn(data.draw)
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    parts = data.draw(st.integers(1, x.shape[axis]))
    if data.draw(st.booleans()):
        size = -(-x.shape[axis] // parts)
        if size * (parts - 1) >= x.shape[axis]:  # onnxruntime refuses an empty part
            return
        proto = node("Split", x, outputs=parts, axis=axis, num_outputs=parts)
    else:
        sizes = [1] * (parts - 1) + [x.shape[axis] - parts + 1]
        proto = node("Split", x, np.array(sizes, np.int64), outputs=parts, axis=axis)
    check(proto, x, data.draw(TO))


@given(st.data())
def test_softmax_along_any_axis(data: st.DataObject) -> None:
    x = drawn(data.draw)
    op = data.draw(st.sampled_from(["Softmax", "LogSoftmax", "Hardmax"]))
    axis = {"axis": data.draw(st.integers(-x.ndim, x.ndim - 1))} if data.draw(st.booleans()) else {}
    check(node(op, x, **axis), x, data.draw(TO))


@given(st.data())
def test_parts_of_a_shape(data: st.DataObject) -> None:
    x = drawn(data.draw)
    ends = {name: data.draw(st.integers(-5, 5)) for name in ("start", "end") if data.draw(st.booleans())}
    check(node("Shape", x, **ends), x, data.draw(TO))


@given(st.data())
def test_resizes(data: st.DataObject) -> None:
    x = np.random.default_rng(0).normal(size=(1, 2, 3, 4)).astype(np.float32)
    axes = data.draw(st.sampled_from([[2, 3], [-1], [3, 2], None]))
    count = 4 if axes is None else len(axes)
    mode: dict[str, Any] = {
        "mode": data.draw(st.sampled_from(["nearest", "linear"])),
        **({} if axes is None else {"axes": axes}),
    }
    if axes is None:
        factors = [1, 1, *data.draw(st.lists(st.integers(1, 3), min_size=2, max_size=2))]
    else:
        factors = data.draw(st.lists(st.integers(1, 3), min_size=count, max_size=count))
    if data.draw(st.booleans()):
        proto = node("Resize", x, None, np.array(factors, np.float32), **mode)
    else:
        whole = range(4) if axes is None else [axis % 4 for axis in axes]
        sizes = [x.shape[axis] * factor for axis, factor in zip(whole, factors, strict=True)]
        proto = node("Resize", x, None, None, np.array(sizes, np.int64), **mode)
    check(proto, x, data.draw(TO))


def test_nodes_that_mean_the_same_are_the_same_bytes(save: Save, repair: Repair, same: Same) -> None:
    path = save(
        "g (float[2,4] x) => (float[2] y) <int64[1] axes = {1}> "
        "{ [one] a = Relu(x)  [two] m = ReduceMean <keepdims = 0> (a, axes)  [three] y = Sin(m) }",
        opset=18,
    )
    proto = onnx.load(path)
    proto.graph.node[1].metadata_props.add(key="namespace", value="net: mean")
    onnx.save(proto, path)

    candidate = repair(path, "lower-opset")

    assert candidate.sentence == "operator set 18 → 17, written in older forms: 1 ReduceMean"
    one, two, three = candidate.proto.graph.node
    assert (one, three) == (proto.graph.node[0], proto.graph.node[2])
    assert (two.name, list(two.input), list(two.output)) == ("two", ["a"], ["m"])
    assert two.metadata_props[0].value == "net: mean"
    assert not candidate.proto.graph.initializer
    same(path, candidate.proto)


def test_newer_operators_are_written_by_their_parts(save: Save, repair: Repair, same: Same) -> None:
    path = save(
        "g (float[2,4] x, float[4] w) => (float[2,4] y) "
        "{ a = LayerNormalization(x, w)  b = Gelu(a)  y = HardSwish(b) }",
        opset=20,
    )
    candidate = repair(path, "lower-opset", reader=ToolLimits(tool="Chipper", newest_opset=13))

    ops = {node.op_type for node in candidate.proto.graph.node}
    assert "HardSwish" not in {op for op in ops if not onnx.defs.has(op, 13)}
    assert all(onnx.defs.has(op, 13) for op in ops)
    assert candidate.exactness is Exactness.ROUNDING
    same(path, candidate.proto, tolerance=1e-5, edges=False)


def test_bodies_and_functions_are_lowered_too(save: Save, repair: Repair, same: Same) -> None:
    path = save(
        """g (float[2,4] x, bool c) => (float[2] y) <int64[1] axes = {1}> {
            a = If (c) <
                then_branch = t () => (float[2] p) { p = ReduceMean <keepdims = 0> (x, axes) },
                else_branch = e () => (float[2] q) <int64[1] own = {1}> { q = ReduceMax <keepdims = 0> (x, own) }
            >
            y = my.Sum(a)
        }
        <domain: "my", opset_import: ["" : 18]> Sum (v) => (w) {
            i = Constant <value = int64[1] {0}> ()  s = ReduceMin (v, i)  w = Add(v, s)
        }""",
        opset=18,
        domains=', "my" : 1',
    )
    candidate = repair(path, "lower-opset")

    assert [entry.version for entry in candidate.proto.functions[0].opset_import] == [17]
    same(path, candidate.proto)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("y = BitwiseNot(x)", "has no BitwiseNot"),
        ("p = Constant <value = int64[4] {0, 4, 0, 0}> ()  y = Pad <mode = 'wrap'> (x, p)", "mode=wrap"),
    ],
)
def test_what_older_operator_sets_cannot_say_is_refused_with_the_reason(
    body: str, reason: str, save: Save, repair: Repair
) -> None:
    dtype = "int32" if "Bitwise" in body else "float"
    text = f"g ({dtype}[2,3] x) => ({dtype}[a,b] y) {{ {body} }}".replace("'wrap'", '"wrap"')
    candidate = repair(save(text, opset=19), "lower-opset")
    assert not candidate.applied
    assert reason in candidate.declined[0].reason


def test_computed_axes_are_refused(save: Save, repair: Repair) -> None:
    path = save("g (float[2,3] x, int64[1] a) => (float[m,n] y) { y = ReduceMean(x, a) }", opset=18)
    assert "not a constant" in repair(path, "lower-opset").declined[0].reason


def test_nodes_that_share_a_name_bring_in_tensors_of_different_ones(save: Save, repair: Repair, same: Same) -> None:
    path = save(
        "g (float[2,3] x) => (float[2,3] y, int64[n] s, int64[m] t) "
        "{ [n] s = Shape <start = 1> (x)  [n] t = Shape <end = 1> (x)  [m] a = Gelu(x)  [m] y = Gelu(a) }",
        opset=20,
    )
    candidate = repair(path, "lower-opset", reader=ToolLimits(tool="Chipper", newest_opset=13))
    onnx.checker.check_model(candidate.proto)
    for node in candidate.proto.graph.node:  # the file's own, of which onnxruntime wants each once
        node.ClearField("name")
    same(path, candidate.proto, tolerance=1e-6, edges=False)


def test_parts_in_a_branch_know_what_the_branch_stores(save: Save, repair: Repair, same: Same) -> None:
    path = save(
        """g (float[2,4] x, bool c) => (float[2,4] y) <float[4] w = {1, 2, 3, 4}> {
            y = If (c) <
                then_branch = t () => (float[2,4] p) <float[4] b = {4, 3, 2, 1}> { p = LayerNormalization(x, w, b) },
                else_branch = e () => (float[2,4] q) { q = HardSwish(x) }
            >
        }"""
    )
    candidate = repair(path, "lower-opset", reader=ToolLimits(tool="Chipper", newest_opset=13))
    assert candidate.exactness is Exactness.ROUNDING
    same(path, candidate.proto, tolerance=1e-5, edges=False)
