"""Tensors of high rank at a lower one: the same numbers, over whole regions."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

import onnx_bisect
from onnxbisect.exactness import Exactness
from onnxbisect.file_remedies import as_said
from onnxbisect.file_remedies.ranks import lowered_ranks
from onnxbisect.file_remedies.remedy import File, RemediedFile
from onnxbisect.model import load
from onnxbisect.preflight import ToolLimits
from onnxbisect.rewrites import NotApplicable
from onnxbisect.verdict import Kind, Status, Verdict
from support.high_ranks import MOVING, high_rank_model

USUAL = 4
HIGH_RANKS = Path(__file__).parents[1] / "models" / "high_ranks"


def file_of(model: onnx.ModelProto) -> File:
    graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    types = {value.name: value.type for value in [*graph.value_info, *graph.input, *graph.output]}
    return File(proto=model, types=types, known={}, folder=Path())


def high(model: onnx.ModelProto) -> int:
    shapes = (file_of(model).facts.shape(name) for node in model.graph.node for name in node.output)
    return sum(len(shape or ()) > USUAL for shape in shapes)


def lowered(model: onnx.ModelProto) -> RemediedFile | None:
    try:
        return lowered_ranks(file_of(model), USUAL)
    except NotApplicable:
        return None


def outputs(model: onnx.ModelProto) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    feeds = {
        value.name: random.standard_normal([dim.dim_value for dim in value.type.tensor_type.shape.dim]).astype("f4")
        for value in model.graph.input
    }
    return list(onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds))


@given(st.integers(0, 1 << 32))
def test_a_random_graph_computes_the_same_with_fewer_dimensions(seed: int) -> None:
    model = high_rank_model(seed)
    change = lowered(model)
    if change is None:
        return
    onnx.checker.check_model(change.proto, full_check=True)
    assert high(change.proto) < high(model)
    for before, after in zip(outputs(model), outputs(change.proto), strict=True):
        if change.exactness is Exactness.EXACT:
            assert before.tobytes() == after.tobytes()
        else:
            assert np.allclose(before, after, rtol=1e-4, atol=1e-4, equal_nan=True)


def test_two_nodes_without_such_a_form_read_the_same_tensor() -> None:
    text = """<ir_version: 8, opset_import: ["": 18]> g (float[4, 1, 6] x) => (float[768] y, float[24] z) <
      int64[8] eight = {2, 4, 1, 3, 1, 1, 1, 1}, int64[8] times = {2, 1, 2, 2, 1, 2, 2, 1}, int64[1] all = {768},
      float[2, 1, 1, 3, 1, 1, 1, 1] right = {1, 1, 3, 1, -3, 3}, int64[1] less = {24}
    > {
      [cut] a = Reshape(x, eight)
      [tiled] b = Tile(a, times)
      [product] c = MatMul(a, right)
      [relu] d = Relu(c)
      [end] y = Reshape(b, all)
      [other] z = Reshape(d, less)
    }"""
    change = lowered(onnx.parser.parse_model(text))
    assert change is not None
    onnx.checker.check_model(change.proto, full_check=True)


@given(st.integers(0, 1 << 32))
def test_what_only_moves_elements_is_the_same_bits(seed: int) -> None:
    change = lowered(high_rank_model(seed, MOVING))
    assert change is None or change.exactness is Exactness.EXACT


#: Windows of an image, as in Swin: six dimensions, turned and merged again.
WINDOWS = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,8,8,6] x) => (float[1,8,8,6] y) <
  int64[6] six = {1, 2, 4, 2, 4, 6}, int64[3] rows = {4, 16, 6}, int64[4] back = {1, 8, 8, 6},
  float[6] bias = {1, 2, 3, 4, 5, 6}
> {
    [cut] a = Reshape(x, six)
    [biased] b = Add(a, bias)
    [turned] c = Transpose <perm = [0, 1, 3, 2, 4, 5]> (b)
    [windows] d = Reshape(c, rows)
    [score] e = Softmax <axis = -1> (d)
    [sixth] f = Reshape(e, six)
    [returned] h = Transpose <perm = [0, 1, 3, 2, 4, 5]> (f)
    [end] y = Reshape(h, back)
}"""


def takes_four_dimensions(path: Path) -> bool:
    return high(onnx.load(path)) == 0


def saved(folder: Path, text: str) -> Path:
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def test_window_attention_compiles_for_a_target_of_four_dimensions_after_one_call(tmp_path: Path) -> None:
    path = saved(tmp_path, WINDOWS)
    result = onnx_bisect.fix(path, backend=takes_four_dimensions)
    assert result.compiles
    assert result.document.file_change is not None
    assert result.document.file_change.sentence == "5 tensors of more than 4 dimensions written with fewer"
    assert result.document.repair_calls == 1
    after = onnx.load(result.save(tmp_path / "repaired.onnx"))
    assert [node.op_type for node in after.graph.node].count("Reshape") == 5
    assert {node.name for node in after.graph.node} >= {"biased", "turned", "score", "returned"}


def test_the_report_says_that_a_repair_lowers_the_rank(tmp_path: Path) -> None:
    result = onnx_bisect.diagnose(saved(tmp_path, WINDOWS), backend=takes_four_dimensions)
    rules = {tuple(it["replace_by"]["rules"]) for it in result.report["culprits"] if it["replace_by"]}
    assert rules == {("lower-ranks",)}


def test_what_else_is_refused_is_replaced_in_the_changed_file(tmp_path: Path) -> None:
    def compiles(path: Path) -> bool:
        model = onnx.load(path)
        return takes_four_dimensions(path) and "HardSwish" not in {node.op_type for node in model.graph.node}

    text = WINDOWS.replace(
        "[score] e = Softmax <axis = -1> (d)", "[score] s = Softmax <axis = -1> (d) [hard] e = HardSwish(s)"
    )
    result = onnx_bisect.fix(saved(tmp_path, text), backend=compiles)
    assert result.compiles
    assert result.document.file_change is not None
    assert [change.op for change in result.document.changes] == ["HardSwish"]


@pytest.mark.parametrize("prefix", ["", "rank/", "rank/held/"])
def test_names_of_the_model_that_look_like_new_ones_collide_with_none(prefix: str) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2,12] x) => (float[2,12] y) <int64[6] six = {2, 2, 1, 2, 1, 3}, int64[2] back = {2, 12}> {
        constant_0 = Reshape(x, six)
        Reshape_1 = Relu(constant_0)
        constant_1 = Transpose <perm = [3, 2, 1, 4, 5, 0]> (Reshape_1)
        Transpose_2 = Neg(constant_1)
        Reshape_4 = Softmax <axis = 3> (Transpose_2)
        y = Reshape(Reshape_4, back)
    }"""
    model = onnx.parser.parse_model(text)
    inner = {name for node in model.graph.node for name in node.output} - {"y"}
    for node in model.graph.node:
        node.input[:] = [prefix + name if name in inner else name for name in node.input]
        node.output[:] = [prefix + name if name in inner else name for name in node.output]
    change = lowered_ranks(file_of(model), USUAL)
    onnx.checker.check_model(change.proto, full_check=True)
    assert high(change.proto) == 0
    assert np.allclose(outputs(model)[0], outputs(change.proto)[0])


@pytest.mark.parametrize("most", [4, 5])
def test_an_op_without_such_a_form_keeps_its_shape(most: int) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2,6] x) => (float[2,6] y) <
        int64[6] six = {1, 2, 1, 2, 1, 3}, int64[2] back = {2, 6}
    > {
        a = Reshape(x, six) b = Relu(a) c = CastLike(b, x) d = Neg(c) y = Reshape(d, back)
    }"""
    model = onnx.parser.parse_model(text)
    change = lowered_ranks(file_of(model), most)
    assert [node.op_type for node in change.proto.graph.node] == [
        "Relu",
        "Reshape",
        "CastLike",
        "Reshape",
        "Neg",
        "Reshape",
    ]
    assert [one.tobytes() for one in outputs(model)] == [one.tobytes() for one in outputs(change.proto)]


@pytest.mark.parametrize(
    ("message", "limits"),
    [
        ("error: unsupported tensor rank 6 at Reshape", [5, 4]),
        ("Only 4D tensors are supported, but got 6D", [4]),
        ("Reshape: rank must be <= 5, got 6", [5, 4]),
        ("max dims 4 exceeded", [4]),
        ("failed to legalize operation 'Softmax'", []),
        ("rank of process 0: out of memory", []),
        ("dimension 4096 is too large", []),
    ],
)
def test_a_message_about_ranks_says_which_to_try(message: str, limits: list[int], tmp_path: Path) -> None:
    model = load(saved(tmp_path, WINDOWS))
    tried = list(as_said(model, ToolLimits(tool="t"), message, ()))
    assert [it.sentence.rpartition("more than ")[2][:1] for it in tried] == [str(limit) for limit in limits]


@pytest.mark.parametrize(
    ("nodes", "limits"),
    [(["turned"], [5, 4]), (["turned", "returned"], [5, 4]), (["score"], []), (["turned", "score"], [])],
)
def test_nodes_of_high_rank_say_so_where_a_tool_names_no_other(
    nodes: list[str], limits: list[int], tmp_path: Path
) -> None:
    model = load(saved(tmp_path, WINDOWS))
    tried = list(as_said(model, ToolLimits(tool="t"), "these failed", nodes))
    assert [it.sentence.rpartition("more than ")[2][:1] for it in tried] == [str(limit) for limit in limits]


class NamesRanks:
    """Takes four dimensions and says what it refuses; `refused` are ops that it refuses besides.

    `whole` counts calls about more than what measures the compiler's boundaries.
    """

    def __init__(self, *refused: str) -> None:
        self.refused, self.whole = set(refused), 0

    def __call__(self, path: Path) -> Verdict:
        model = onnx.load(path)
        self.whole += "score" in {node.name for node in model.graph.node}
        facts = file_of(model).facts
        rank = max(len(facts.shape(name) or ()) for node in model.graph.node for name in node.output)
        ops = sorted(self.refused.intersection(node.op_type for node in model.graph.node))
        if rank <= USUAL and not ops:
            return Verdict(status=Status.PASS)
        message = f"unsupported tensor rank {rank}" if rank > USUAL else f"unsupported op {ops[0]}"
        return Verdict(status=Status.FAIL, kind=Kind.UNSUPPORTED, message=message)


def test_a_repair_asks_about_lower_ranks_before_a_search_where_the_tool_names_them(tmp_path: Path) -> None:
    path, compiler = saved(tmp_path, WINDOWS), NamesRanks()
    result = onnx_bisect.fix(path, backend=compiler)
    assert result.compiles
    assert result.document.file_change is not None
    assert result.document.file_change.sentence == "5 tensors of more than 5 dimensions written with fewer"
    assert compiler.whole == 2


def test_what_lower_ranks_reveal_is_searched_in_that_file(tmp_path: Path) -> None:
    text = WINDOWS.replace(
        "[score] e = Softmax <axis = -1> (d)", "[score] s = Softmax <axis = -1> (d) [hard] e = HardSwish(s)"
    )
    path, compiler = saved(tmp_path, text), NamesRanks("HardSwish")
    result = onnx_bisect.fix(path, backend=compiler)
    assert result.compiles
    assert [change.op for change in result.document.changes] == ["HardSwish"]
    assert result.document.file_change is not None
    assert [named.ops for named in result.repair.before.culprits] == [("HardSwish",)]


def test_a_tool_that_dies_and_names_nothing_gets_few_dimensions_before_a_search(tmp_path: Path) -> None:
    names_ranks = NamesRanks()

    def dies(path: Path) -> Verdict:
        died = Verdict(status=Status.FAIL, kind=Kind.CRASH, message="the compiler died by SIGSEGV")
        return names_ranks(path) if names_ranks(path).passed else died

    result = onnx_bisect.fix(saved(tmp_path, WINDOWS), backend=dies)
    assert result.compiles
    assert result.document.diagnosis_calls < 10  # most of them measure what it takes at a boundary
    assert result.document.file_change is not None
    assert result.document.file_change.sentence == "5 tensors of more than 4 dimensions written with fewer"


def test_every_culprit_is_found_where_the_tool_names_the_rank(tmp_path: Path) -> None:
    result = onnx_bisect.diagnose(saved(tmp_path, WINDOWS), backend=NamesRanks())
    assert {op for culprit in result.culprits for op in culprit.ops} == {"Reshape", "Add", "Transpose"}


def test_an_elementwise_op_keeps_as_many_axes_as_are_allowed() -> None:
    """As in V-Net: Qualcomm's tool did not end in ten minutes on vectors of a million elements."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> g (float[1,4,8,8,8] x) => (float[1,4,8,8,8] y) {
            a = Elu (x)
            b = Sigmoid (a)
            y = Add (b, a)
        }"""
    )
    change = lowered(model)
    assert change is not None
    facts = file_of(change.proto).facts
    shapes = [facts.shape(node.output[0]) for node in change.proto.graph.node if node.op_type in ("Elu", "Sigmoid")]
    assert shapes == [(1, 4, 8, 64)] * 2


def test_a_constant_node_of_high_rank_goes_with_its_reader() -> None:
    text = WINDOWS.replace(
        "[biased] b = Add(a, bias)", "k = Constant <value = float[1,2,1,1,1,1] {1, 2}> () [biased] b = Add(a, k)"
    )
    change = lowered(onnx.parser.parse_model(text))
    assert change is not None
    assert "Constant" not in {node.op_type for node in change.proto.graph.node}
    assert high(change.proto) == 0


def test_a_changed_file_gets_the_form_that_its_parts_have(tmp_path: Path) -> None:
    names_ranks = NamesRanks()

    def compiles(path: Path) -> Verdict:
        found = names_ranks(path)
        graph = onnx.load(path).graph
        declared = {value.name for value in (*graph.value_info, *graph.output)}
        undeclared = any(name not in declared for node in graph.node for name in node.output)
        broke = Verdict(status=Status.FAIL, kind=Kind.ERROR, message="it broke")
        return broke if found.passed and undeclared else found

    path = saved(tmp_path, WINDOWS)
    result = onnx_bisect.fix(path, backend=compiles)
    assert result.compiles
    assert result.document.file_change is not None
    assert result.document.file_change.sentence.startswith("5 tensors of more than 5 dimensions written with fewer; ")
    after = onnx.load(result.save(tmp_path / "repaired.onnx"))
    assert compiles(tmp_path / "repaired.onnx").passed
    assert outputs(onnx.load(path))[0].tobytes() == outputs(after)[0].tobytes()


@pytest.mark.long
@pytest.mark.parametrize("name", ["swin_block__ts17", "yolo_head__ts17"])
def test_what_timm_and_yolo_write_compiles_for_a_target_of_four_dimensions(name: str, tmp_path: Path) -> None:
    """Windows, plain and shifted, of Swin, in six dimensions; the boxes of each anchor, in five."""
    path = HIGH_RANKS / f"{name}.onnx"
    assert not takes_four_dimensions(path)
    result = onnx_bisect.fix(path, backend=takes_four_dimensions)
    assert result.compiles, result.headline
    assert result.document.diagnosis_calls + result.document.repair_calls < 20  # a search takes 49 and 66
    assert all(it.agrees for it in result.document.outputs)
    assert takes_four_dimensions(result.save(tmp_path / "repaired.onnx"))


def reads_declared_shapes(path: Path) -> bool:
    graph = onnx.load(path).graph
    made = {name for node in graph.node for name in node.output}
    declared = {value.name for value in (*graph.value_info, *graph.output)}
    return made <= declared and takes_four_dimensions(path)


def test_the_form_of_a_file_of_fewer_dimensions_is_changed_where_only_that_is_to_blame(tmp_path: Path) -> None:
    result = onnx_bisect.fix(saved(tmp_path, WINDOWS), backend=reads_declared_shapes)
    assert result.compiles, result.headline
    assert result.document.file_change is not None
    assert "written with fewer; shapes declared of" in result.document.file_change.sentence
    assert reads_declared_shapes(result.save(tmp_path / "repaired.onnx"))
