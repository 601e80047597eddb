"""Functions inlined, control flow resolved: names tell where a node came from, the rest is the same bytes."""

from pathlib import Path

import onnx
import pytest

import onnx_bisect
from onnx_bisect import Exactness
from onnxbisect.model.scopes import bodies, captures
from support.file_remedies import Repair, Same, Save

MODELS = Path(__file__).parents[1] / "models"

NESTED = """g (float[3] x, bool c) => (float[3] y, float[3] z) {
    [call] a, same = my.Outer <slope = 0.5> (x)
    y = If (c) < then_branch = t () => (float[3] p) { [inner] p = my.Act(a) },
                 else_branch = e () => (float[3] q) { q = Relu(a) } >
    z = Add(same, x)
}
<domain: "my", opset_import: ["" : 17, "my" : 1]>
Outer <slope> (v) => (w, k) { [copy] k = Identity(v)
    [act] u = my.Act <alpha : float = @slope> (v)  [sum] w = Add(u, v) }
<domain: "my", opset_import: ["" : 17]>
Act <alpha : float = 0.25> (a) => (b) { [leaky] b = LeakyRelu <alpha : float = @alpha> (a) }
"""


def test_nested_calls_attributes_and_branches(save: Save, repair: Repair, same: Same) -> None:
    path = save(NESTED, domains=', "my" : 1')
    candidate = repair(path, "inline-functions")

    assert candidate.sentence == "3 calls of 2 local functions inlined"
    names = {node.name: node for node in candidate.proto.graph.node}
    assert {"call/act/leaky", "call/sum", "call/copy"} <= set(names)
    assert names["call/act/leaky"].attribute[0].f == 0.5
    (branch,) = [a.g for n in candidate.proto.graph.node for a in n.attribute if a.name == "then_branch"]
    assert branch.node[0].name == "inner/leaky"
    assert branch.node[0].attribute[0].f == 0.25
    assert not candidate.proto.functions
    assert [entry.domain for entry in candidate.proto.opset_import] == [""]
    same(path, candidate.proto)


def test_functions_of_an_exporter(repair: Repair, same: Same) -> None:
    path = MODELS / "local_functions.onnx"
    before = onnx.load(path)
    candidate = repair(path, "inline-functions")
    own = {node.name: node for node in before.graph.node if not node.domain}
    assert own
    for node in candidate.proto.graph.node:
        if node.name in own:
            assert node == own[node.name]
        else:
            assert node.name.partition("/")[0] in {call.name for call in before.graph.node}
    assert list(candidate.proto.graph.initializer) == list(before.graph.initializer)
    same(path, candidate.proto)


def test_metadata_of_the_call_and_of_the_function_are_kept(save: Save, repair: Repair) -> None:
    path = save(NESTED, domains=', "my" : 1', ir_version=10)
    proto = onnx.load(path)
    proto.graph.node[0].metadata_props.add(key="namespace", value="net: outer")
    proto.functions[0].node[2].metadata_props.add(key="stack", value="line 7")
    onnx.save(proto, path)
    nodes = {node.name: node for node in repair(path, "inline-functions").proto.graph.node}
    kept = {entry.key: entry.value for entry in nodes["call/sum"].metadata_props}
    assert kept == {"stack": "line 7", "namespace": "net: outer"}


def test_overloads_in_branches(repair: Repair, same: Same) -> None:
    path = MODELS / "overload_in_branch.onnx"
    candidate = repair(path, "inline-functions")
    ops = [
        node.op_type
        for outer in candidate.proto.graph.node
        for attribute in outer.attribute
        for node in attribute.g.node
    ]
    assert ops == ["Tanh", "Sigmoid"]
    same(path, candidate.proto)


def test_a_function_of_another_operator_set_is_refused(save: Save, repair: Repair) -> None:
    path = save(
        """g (float[3] x) => (float[3] y) { y = my.Act(x) }
        <domain: "my", opset_import: ["" : 13]> Act (a) => (b) { b = Tanh(a) }""",
        domains=', "my" : 1',
    )
    assert "written for operator set 13" in repair(path, "inline-functions").declined[0].reason


def test_the_branch_that_is_taken_takes_the_place_of_an_if_in_an_if(save: Save, repair: Repair, same: Same) -> None:
    path = save(
        """g (float[2,3] x) => (float[2,3] y) <int64 two = {2}, int64 zero = {0}> {
            s = Shape(x)  d = Gather(s, zero)  c = Equal(d, two)
            [outer] a = If (c) <
                then_branch = t () => (float[2,3] p) {
                    r = Shape(x)  i = Gather(r, zero)  k = Greater(i, two)
                    [nested] p = If (k) < then_branch = tt () => (float[2,3] o) { o = Neg(x) },
                                          else_branch = te () => (float[2,3] o2) { [taken] o2 = Sin(x) } >
                },
                else_branch = e () => (float[2,3] q) { q = Abs(x) }
            >
            [last] y = Relu(a)
        }"""
    )
    candidate = repair(path, "resolve-control-flow")
    assert [node.op_type for node in candidate.proto.graph.node if node.op_type in ("If", "Neg", "Sin", "Abs")] == [
        "Sin"
    ]
    assert candidate.proto.graph.node[-1] == onnx.load(path).graph.node[-1]
    same(path, candidate.proto)


LOOP = """g (float[2] x) => (float[2] y, float[a,b] all) <int64 n = {3}, bool go = {1}, float step = {0.5}> {
    [loop] y, all = Loop (n, go, x) <body = b (int64 i, bool cond, float[2] v) => (bool out, float[2] w, float[2] s) {
        CONDITION
        f = Cast <to = 1> (i)  t = Mul(f, step)  [add] w = Add(v, t)  s = Relu(w)
    }>
}"""
GOES_ON = LOOP.replace("CONDITION", "out = Identity(cond)")

#: A body without nodes.
PASSING = """g (float[2] x) => (float[2] y) <int64 n = {1000000}, bool go = {1}> {
    y = Loop (n, go, x) <body = b (int64 i, bool cond, float[2] v) => (bool cond, float[2] v) { }>
}"""
SCAN = """g (float[1,3,2] x) => (float[1,3,2] y) {
    y = Scan <num_scan_inputs = 1, body = b (float[2] v) => (float[2] w) { w = Neg(v) }> (, x)
}"""


#: As `while` is exported: a counter is carried, and the condition is computed from it.
WHILE = """g (float[2] x) => (float[2] y) <int64 most = {9223372036854775807}, bool go = {1}, int32 start = {START}> {
    n, r, y = Loop (MOST, go, start, start, x) <
        body = b (int64 i, bool cond, int32 n, int32 r, float[2] v) => (bool out, int32 m, int32 s, float[2] w) {
            STEP  t = Cast <to = 1> (m)  w = Add(v, t)
        }>
}"""
COUNTING = (
    "one = Constant <value = int32 {1}> ()  five = Constant <value = int32 {5}> ()  m = Add(n, one)  s = Sub(r, one)"
)


def counting(condition: str, start: int = 0, most: str = "most") -> str:
    steps = f"{COUNTING}  {condition}"
    return WHILE.replace("STEP", steps).replace("START", str(start)).replace("MOST", most)


#: It would take four terabytes.
HUGE = "d = Constant <value = int64[1] {1000000000000}> ()  c = ConstantOfShape <value = int32[1] {5}> (d)"
ENDLESS = counting("zero = Constant <value = int32 {-1}> ()  out = Less(zero, m)")


@pytest.mark.parametrize(
    ("condition", "start", "most", "rounds"),
    [
        ("out = Less(m, five)", 0, "most", 5),
        ("out = Less(m, five)", 0, "", 5),
        ("out = Less(m, five)", 4, "most", 1),
        ("out = Less(n, five)", 0, "most", 6),
        ("out = Less(m, five)", 9, "most", 1),
        ("d = Add(m, s)  e = Mul(d, m)  out = Less(e, five)", 1, "most", 2),
        ("c = Cast <to = 6> (i)  out = Less(c, five)", 0, "most", 6),
        ("q = Sub(five, m)  zero = Constant <value = int32 {0}> ()  out = Less(zero, q)", 1, "most", 4),
    ],
)
def test_a_loop_that_counts_to_a_number_is_written_out(
    save: Save, repair: Repair, same: Same, condition: str, start: int, most: str, rounds: int
) -> None:
    path = save(counting(condition, start, most))
    candidate = repair(path, "resolve-control-flow")
    assert candidate.sentence == "1 Loop written out"
    ops = [node.op_type for node in candidate.proto.graph.node]
    assert (ops.count("Loop"), ops.count("Cast")) == (0, rounds + rounds * ("Cast" in condition))
    same(path, candidate.proto)


@pytest.mark.parametrize("most", [0, 2, 5, 7])
def test_a_counting_loop_ends_at_its_most_rounds_too(save: Save, repair: Repair, same: Same, most: int) -> None:
    path = save(counting("out = Less(m, five)").replace("9223372036854775807", str(most)))
    candidate = repair(path, "resolve-control-flow")
    assert [node.op_type for node in candidate.proto.graph.node].count("Cast") == min(most, 5)
    same(path, candidate.proto)


def test_a_loop_is_written_out(save: Save, repair: Repair, same: Same) -> None:
    path = save(GOES_ON)
    candidate = repair(path, "resolve-control-flow")
    assert candidate.sentence == "1 Loop written out"
    ops = [node.op_type for node in candidate.proto.graph.node]
    assert (ops.count("Add"), ops.count("Loop"), ops.count("Concat")) == (3, 0, 1)
    same(path, candidate.proto)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (LOOP.replace("CONDITION", "l = ReduceMax(v)  out = Less(l, step)"), "is computed from inputs"),
        (LOOP.replace("CONDITION", "l = ReduceMax(x)  out = Less(l, step)"), "is computed from inputs"),
        (ENDLESS, "more than 512 rounds"),
        (counting(f"{HUGE}  z = ReduceMax <keepdims = 0> (c)  out = Less(m, z)"), "is computed by ReduceMax"),
        (counting("c = Constant <value = int32[2] {5, 5}> ()  out = Less(m, c)"), "tensors of several numbers"),
        (counting("c = Constant <value = bool {1}> ()  out = Less(m, c)"), "cannot be computed"),
        (GOES_ON.replace("n = {3}", "n = {900}"), "4500 nodes"),
        (GOES_ON.replace("n = {3}", "n = {0}"), "zero rounds"),
        (PASSING, "1000000 nodes"),
        (SCAN, "operator set 8 works on batches"),
    ],
)
def test_loops_that_stay(text: str, reason: str, save: Save, repair: Repair) -> None:
    candidate = repair(save(text, opset=8 if text == SCAN else 17), "resolve-control-flow")
    assert not candidate.applied
    assert reason in candidate.declined[0].reason


def test_loop_and_scan_of_a_file_with_captures(repair: Repair, same: Same) -> None:
    path = MODELS / "control_captures.onnx"
    candidate = repair(path, "resolve-control-flow")
    assert {node.op_type for node in candidate.proto.graph.node}.isdisjoint(("Loop", "Scan"))
    same(path, candidate.proto)


BRANCHES = """g (float[3] x, bool c) => (float[3] y) <float[3] w = {1, 2, 3}, float[3] v = {4, 5, 6}, int64 two = {2}> {
    [shared] s = Mul(x, w)
    [outer] a = If (c) <
        then_branch = t () => (float[3] p) { i_ = Constant <value = float[3] {7, 8, 9}> () i = Add(i_, s)
            p = If (c) < then_branch = d () => (float[3] k) { k = Add(i, w) },
                         else_branch = f () => (float[3] m) { m = Add(v, i_) } > },
        else_branch = e () => (float[3] q) { q = Mul(x, s) } >
    [loop] y = Loop (two, c, a) <
        body = l (int64 n, bool go, float[3] z) => (bool on, float[3] r) { on = Identity(go) r = Mul(z, v) } >
}"""


def test_bodies_get_copies_of_the_weights_that_they_read(save: Save, repair: Repair, same: Same) -> None:
    """Also an inner If, of the graph around it and of the branch that it is in."""
    path = save(BRANCHES)
    candidate = repair(path, "weights-into-bodies")
    assert candidate.sentence == "4 weights copied into the bodies that read them"
    same(path, candidate.proto)
    outer, loop = candidate.proto.graph.node[1:]
    (inner,) = [node for node in outer.attribute[0].g.node if node.op_type == "If"]
    stored = [[it.name for it in attribute.g.initializer] for attribute in inner.attribute]
    assert stored == [["w_inside"], ["v_inside", "i__inside"]]
    assert [it.name for it in loop.attribute[0].g.initializer] == ["v_inside_"]
    assert not outer.attribute[1].g.initializer
    assert [it.name for it in candidate.proto.graph.initializer] == ["w", "two"]  # the others are read nowhere now


def test_a_tool_that_names_a_weight_of_a_body_gets_it_inside_before_a_search(save: Save) -> None:
    path, asked = save(BRANCHES), []

    def takes_no_weights_from_outside(piece: Path) -> onnx_bisect.Verdict:
        graph = onnx.load(piece).graph
        asked.append(graph)
        stored = {it.name for it in graph.initializer}
        read = [name for node in graph.node if bodies(node) for name in captures(node) if name in stored]
        status = onnx_bisect.Status.FAIL if read else onnx_bisect.Status.PASS
        return onnx_bisect.Verdict(status=status, message=f"implicit input `{read[0]}` is outside" if read else "")

    result = onnx_bisect.fix(path, backend=takes_no_weights_from_outside, allow=Exactness.EXACT)
    assert result.compiles
    assert result.document.file_change is not None
    assert result.document.file_change.exactness is Exactness.EXACT
    assert [graph.name for graph in asked].count("g") == 2
