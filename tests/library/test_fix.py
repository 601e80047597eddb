"""Repairs from Python, with a compiler that is a function."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnx_bisect
from onnx_bisect import Cancellation, Note, OptionError, ProbeAnswered, Status
from onnx_bisect.backend_choice import CallableBackend
from onnxbisect.model.scopes import walk
from onnxbisect.model.unused import unused
from onnxbisect_backends.contract import Description

MODELS = Path(__file__).parents[1] / "models"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(tmp_path / "cache"))


def saved(tmp_path: Path, *ops: str) -> Path:
    """A chain of these ops."""
    nodes = [helper.make_node(op, [f"t{at}"], [f"t{at + 1}"], name=f"n{at}") for at, op in enumerate(ops)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("t0", f"t{len(ops)}")]
    opsets = [helper.make_opsetid("", 17)]
    path = tmp_path / "model.onnx"
    onnx.save(
        helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:]), ir_version=8, opset_imports=opsets), path
    )
    return path


def refuses(*ops: str) -> onnx_bisect.CompileFunction:
    return lambda path: not {node.op_type for node in onnx.load(path).graph.node} & set(ops)


def test_a_refused_op_is_replaced_and_the_saved_file_compiles(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compiler = refuses("Abs")
    result = onnx_bisect.fix(saved(tmp_path, "Neg", "Abs", "Relu"), backend=compiler)

    assert result.compiles
    assert [change.node for change in result.document.changes] == ["n1"]
    assert compiler(result.save(tmp_path / "repaired.onnx"))
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("needs_static", [True, False])
def test_a_target_of_static_shapes_gets_the_sizes_that_were_bound(tmp_path: Path, needs_static: bool) -> None:
    """The vendor's tool, called with the file alone, would refuse another one."""
    proto = onnx.load(saved(tmp_path, "Neg", "Abs", "Relu"))
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(proto, tmp_path / "model.onnx")

    class Described(CallableBackend):
        def describe(self) -> Description:
            return Description(tool="tool", version="", boundary_known=True, needs_static=needs_static)

    backend = Described(refuses("Abs"))
    result = onnx_bisect.fix(tmp_path / "model.onnx", backend=backend, input_shapes={"t0": [2, 3]})

    graph = onnx.load(result.save(tmp_path / "repaired.onnx")).graph
    sizes = [value.type.tensor_type.shape.dim[0].dim_value for value in (*graph.input, *graph.output)]
    assert sizes == ([2, 2] if needs_static else [0, 0])


def test_what_no_rule_replaces_is_left_and_said(tmp_path: Path) -> None:
    events: list[onnx_bisect.Event] = []
    result = onnx_bisect.fix(
        saved(tmp_path, "Abs", "Erf", "Neg"), backend=refuses("Abs", "Erf", "Exp", "Tanh"), progress=events.append
    )

    assert not result.compiles
    assert result.repaired
    assert [row.nodes for row in result.document.left] == [("n1",)]
    assert any(isinstance(event, Note) for event in events)
    assert sorted(result.write(tmp_path / "out")) == ["repair.json", "repair.md", "repaired.onnx", "report.json"]


def test_a_repair_that_is_cancelled_changes_nothing(tmp_path: Path) -> None:
    cancellation = Cancellation()

    def cancel(event: onnx_bisect.Event) -> None:
        if isinstance(event, ProbeAnswered):
            cancellation.cancel()

    result = onnx_bisect.fix(
        saved(tmp_path, "Neg", "Abs", "Relu"), backend=refuses("Abs"), progress=cancel, cancellation=cancellation
    )

    assert result.document.verdict == Status.FAIL
    assert not result.repaired
    assert result.write(tmp_path / "out") == ["repair.md", "repair.json"]
    with pytest.raises(OptionError, match="no repaired model"):
        result.save(tmp_path / "repaired.onnx")


def test_computed_branches_and_loops_of_fixed_length_are_written_out() -> None:
    def straight(path: Path) -> bool:
        return not {node.op_type for node in walk(onnx.load(path).graph)} & {"If", "Loop", "Scan"}

    result = onnx_bisect.fix(MODELS / "control_captures.onnx", backend=straight)
    assert result.compiles
    assert result.document.file_change is not None
    assert [change.op for change in result.document.changes] == ["If"]


def test_what_replaces_a_culprit_is_not_asked_about_with_scalars_as_inputs() -> None:
    def compiles(path: Path) -> bool:
        graph = onnx.load(path).graph
        scalars = [value for value in graph.input if not value.type.tensor_type.shape.dim]
        return not scalars and "If" not in {node.op_type for node in graph.node}

    result = onnx_bisect.fix(MODELS / "torch_cond__dynamo18.onnx", backend=compiles)
    assert result.compiles
    assert [rule.id for change in result.document.changes for rule in change.rules] == ["if-where"]


def test_what_is_refused_inside_of_a_loop_is_replaced_and_told(tmp_path: Path) -> None:
    path = tmp_path / "loop.onnx"
    path.write_bytes(
        onnx.parser.parse_model(
            """<ir_version: 8, opset_import: ["": 17]>
            g (int64 n, bool c, float[2,3] x) => (float[2,3] y) {
                [loop] y = Loop <body = b (int64 i, bool ci, float[2,3] v) => (bool co, float[2,3] w) {
                    co = Identity(ci) [abs] a = Abs(v) w = Add(a, x)
                }>(n, c, x)
            }"""
        ).SerializeToString()
    )

    def takes(file: Path) -> bool:
        return all(it.op_type != "Abs" for it in walk(onnx.load(file).graph))

    result = onnx_bisect.fix(path, backend=takes)
    assert result.compiles
    assert takes(result.save(tmp_path / "repaired.onnx"))
    (change,) = result.document.changes
    assert [row.name for row in (*change.removed, change.before)] == ["abs", "loop"]
    assert [row.op for row in change.after] == ["Loop", "Relu", "Mul", "Relu", "Add"]


def calls_of_pairs(tmp_path: Path) -> Path:
    """Six calls of a function whose body is Mul and Abs, with Relu between them."""
    body = [
        helper.make_node("Constant", [], ["two"], value_float=2.0),
        helper.make_node("Mul", ["a", "two"], ["b"]),
        helper.make_node("Abs", ["b"], ["c"]),
    ]
    pair = helper.make_function("my.fn", "Pair", ["a"], ["c"], body, [helper.make_opsetid("", 17)])
    nodes = []
    for at in range(6):
        nodes.append(helper.make_node("Pair", [f"t{at}"], [f"u{at}"], name=f"pair{at}", domain="my.fn"))
        nodes.append(helper.make_node("Relu", [f"u{at}"], [f"t{at + 1}"], name=f"relu{at}"))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("t0", "t6")]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.fn", 1)]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, functions=[pair], ir_version=8, opset_imports=opsets), path)
    return path


def takes_no_pair(*refused: str) -> onnx_bisect.CompileFunction:
    """Refuses calls of functions, Mul before Abs, and these ops."""

    def compiles(path: Path) -> bool:
        nodes = onnx.load(path).graph.node
        scaled = {name for node in nodes if node.op_type == "Mul" for name in node.output}
        pairs = any(node.op_type == "Abs" and scaled & set(node.input) for node in nodes)
        return not (pairs or {node.op_type for node in nodes} & {"Pair", *refused})

    return compiles


CALLS = """<ir_version: 8, opset_import: ["" : 17, "my" : 1, "other" : 1]>
g (float[2,3] x) => (float[2,3] y) { a = my.A(x)  b = my.B(a)  c = Tanh(b)  d = my.A(c)  y = my.B(d) }
<domain: "my", opset_import: ["" : 17, "other" : 1]>
A (v) => (w) { u = Neg(v)  w = other.Inner(u) }
<domain: "other", opset_import: ["" : 17]>
Inner (v) => (w) { w = Abs(v) }
<domain: "my", opset_import: ["" : 17]>
B (v) => (w) { u = Neg(v)  w = Relu(u) }
"""


def test_functions_that_nothing_calls_any_more_go_with_the_calls_that_are_replaced(tmp_path: Path) -> None:
    """B is taken as a call only, so the file with all functions written out is refused, and A alone is replaced."""
    calls = 0

    def compiler(path: Path) -> bool:
        nonlocal calls
        calls += 1
        model = onnx.load(path)
        return not unused(model) and not {"A", "Relu"} & {node.op_type for node in model.graph.node}

    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(CALLS), path)
    result = onnx_bisect.fix(path, backend=compiler)
    assert result.compiles
    repaired = onnx.load(result.save(tmp_path / "repaired.onnx"))
    assert [function.name for function in repaired.functions] == ["B"]
    assert [entry.domain for entry in repaired.opset_import] == ["", "my"]
    assert calls <= 20


def test_a_repair_that_takes_too_many_calls_ends_with_what_it_found(tmp_path: Path) -> None:
    """No whole file with a replacement in it compiles, though each part of it does."""
    ops = ("Neg", "Abs", "Relu", "Tanh", "Sigmoid", "Exp", "Softplus", "Erf", "Elu", "Selu") * 2

    def compiler(path: Path) -> bool:
        nodes = onnx.load(path).graph.node
        return "Abs" not in {it.op_type for it in nodes} and (
            len(nodes) <= len(ops) or not any("/" in it.name for it in nodes)
        )

    result = onnx_bisect.fix(saved(tmp_path, *ops), backend=compiler)
    document = result.document
    assert not result.compiles
    assert not document.complete
    assert document.repair_calls == 60
    assert "was ended after 60 compiler calls" in result.headline
    assert {change.op for change in document.changes} == {"Abs"}
    assert sorted(result.write(tmp_path / "out")) == ["repair.json", "repair.md", "repaired.onnx", "report.json"]


def test_the_operator_set_of_ops_that_were_taken_apart_goes_with_them(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[2, 3] x) => (float[2, 3] y) { a = Relu(x)  y = com.microsoft.QuickGelu <alpha = 1.5> (a) }"""
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    result = onnx_bisect.fix(path, backend=lambda path: len(onnx.load(path).opset_import) == 1)
    assert result.compiles
    assert [entry.domain for entry in onnx.load(result.save(tmp_path / "repaired.onnx")).opset_import] == [""]


@pytest.mark.parametrize(("refused", "left"), [((), 0), (("Add", "Max", "Min"), 6)])
def test_a_changed_file_is_searched_in_full_only_where_something_is_left(
    tmp_path: Path, refused: tuple[str, ...], left: int
) -> None:
    """Each of six pairs can be broken in two ways: a report asks about them, a repair that ends well about one."""
    ways: list[ProbeAnswered] = []

    def keep(event: onnx_bisect.Event) -> None:
        if isinstance(event, ProbeAnswered) and event.units == 12 and "more unit" in event.why and not event.cached:
            ways.append(event)

    path, compiler = calls_of_pairs(tmp_path), takes_no_pair(*refused)
    result = onnx_bisect.fix(path, backend=compiler, cache=False, progress=keep)

    assert result.document.file_change is not None
    assert result.compiles is not bool(left)
    assert len(result.document.left) == left
    assert (len(ways) > 1) is bool(left)


@pytest.mark.parametrize("op", ["Mish", "HardSwish", "CumProd"])
def test_an_op_that_the_declared_operator_set_lacks_is_replaced_and_proven(tmp_path: Path, op: str) -> None:
    """What it computes is clear, although onnxruntime does not run the file as it is."""
    path = saved(tmp_path, "Neg", op, "Relu")
    proto = onnx.load(path)
    proto.opset_import[0].version = 13
    if op == "CumProd":
        proto.graph.node[1].input.append("axis")
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(1, np.int64), "axis"))
    onnx.save(proto, path)
    result = onnx_bisect.fix(path, backend=refuses(op))
    assert result.compiles
    assert [change.node for change in result.document.changes] == ["n1"]


def test_a_loop_that_stays_says_why(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[2] x) => (float[2] y) <int64 most = {9}, bool go = {1}, float small = {0.5}> {
        a = Neg (x)
        [loop] y = Loop (most, go, a) <body = b (int64 i, bool cond, float[2] v) => (bool out, float[2] w) {
            w = Mul (v, small)  largest = ReduceMax <keepdims = 0> (w)  out = Less (small, largest)
        }>
    }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    result = onnx_bisect.fix(tmp_path / "model.onnx", backend=refuses("Loop"))
    assert not result.compiles
    assert [it.reasons for it in result.document.left] == [
        ("it cannot be written out: its condition is computed from inputs",)
    ]


def test_an_op_keeps_its_kind_where_a_form_of_it_is_refused(tmp_path: Path) -> None:
    """Lengths of sequences are refused, and a GRU is not, of which steps that are written out would have none."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float[9,1,2] x, float[1,9,2] w, float[1,9,3] r, int32[1] n) => (float[9,1,1,3] y) {
        [gru] y = GRU <hidden_size = 3> (x, w, r, , n)
    }""")
    onnx.save(model, tmp_path / "model.onnx")

    def takes(path: Path) -> bool:
        return not any(node.op_type == "GRU" and any(node.input[4:5]) for node in onnx.load(path).graph.node)

    repair = onnx_bisect.fix(tmp_path / "model.onnx", backend=takes)
    assert repair.compiles
    repair.write(tmp_path / "repair")
    ops = [node.op_type for node in onnx.load(tmp_path / "repair" / "repaired.onnx").graph.node]
    assert ops.count("GRU") == 1


#: The channels of a Conv that the next one reads, taken by a Slice; `{also}` and `{between}` are other nodes.
CHANNELS = """<ir_version: 8, opset_import: ["": 18]>
g (float[1,2,4,4] x) => (float[1,1,4,4] y) <
    float[6,2,1,1] v = {{1, -2, 3, 4, -5, 6, 7, 8, -9, 10, 11, -12}}, float[1,2,1,1] w = {{2, -3}},
    int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] three = {{3}}, float factor = {{1}}
> {{
    [conv] c = Conv<kernel_shape = [1, 1]>(x, v)
    {also}
    [slice] s = Slice({read}, one, {end}, one)
    [next] y = Conv<kernel_shape = [1, 1]>(s, w)
}}"""


def takes_no_channels(path: Path) -> bool:
    """A compiler that refuses a Slice of a Conv in front of a Conv, and looks past nodes that compute nothing."""
    graph = onnx.load(path).graph
    makers = {name: node for node in graph.node for name in node.output}

    def maker(name: str) -> onnx.NodeProto:
        found = makers.get(name, onnx.NodeProto())
        return maker(found.input[0]) if found.op_type in ("Identity", "Mul") else found

    slices = [maker(node.input[0]) for node in graph.node if node.op_type == "Conv"]
    return not any(it.op_type == "Slice" and maker(it.input[0]).op_type == "Conv" for it in slices)


@pytest.mark.parametrize(
    ("also", "read", "end"),
    [
        ("[shape] h = Shape<start = 1, end = 2>(c) [half] e = Div(h, two)", "c", "e"),
        ("[product] i = Mul(c, factor)", "i", "three"),
    ],
)
def test_a_pattern_that_shows_in_a_file_without_what_computes_nothing_is_replaced_there(
    tmp_path: Path, also: str, read: str, end: str
) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(CHANNELS.format(also=also, read=read, end=end)), path)
    result = onnx_bisect.fix(path, backend=takes_no_channels)
    assert result.compiles
    assert result.document.file_change is not None
    assert [rule.id for change in result.document.changes for rule in change.rules] == ["slice-conv"]
    assert takes_no_channels(result.save(tmp_path / "repaired.onnx"))
