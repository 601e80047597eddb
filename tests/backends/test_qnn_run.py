"""`onnx-bisect run` with Qualcomm's compiler, where it is installed: models whose truth is known, diagnosed whole."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxbisect_backends.folders import cache_folder
from onnxbisect_backends.toolchains.toolchain import toolchain
from support.cli.command_line import Shell, culprits

pytestmark = pytest.mark.compiler

REAL = Path(__file__).parents[1] / "models" / "real"


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Shell:
    """With verdicts of its own, and the user's toolchains."""
    if complaint := toolchain("qnn").missing:
        pytest.skip(complaint)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "toolchains").symlink_to(cache_folder() / "toolchains")
    return Shell(folder=tmp_path, monkeypatch=monkeypatch, capture=capfd)


class Net:
    """A model from `x` on, node by node; each is named as its first output."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}

    def add(self, op: str, *inputs: str | np.ndarray, **attributes: Any) -> str:
        """Append a node; arrays become constants. Returns the name of its output."""
        name = f"{op.lower()}_{len(self._nodes)}"
        names = [given if isinstance(given, str) else self._constant(given) for given in inputs]
        self._nodes.append(helper.make_node(op, names, [name], name=name, **attributes))
        return name

    def save(self, path: Path, shape: tuple[int, ...], result: str, result_shape: tuple[int, ...]) -> None:
        graph = helper.make_graph(
            self._nodes,
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(result, TensorProto.FLOAT, result_shape)],
            list(self._constants.values()),
        )
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)

    def _constant(self, value: np.ndarray) -> str:
        name = f"constant_{len(self._constants)}"
        self._constants[name] = numpy_helper.from_array(value, name)
        return name


@pytest.mark.long
def test_what_it_lacks_is_blamed_where_no_pattern_saves_it(shell: Shell) -> None:
    """An Erf within a GELU, and a Transpose of rank 6 within a pixel shuffle, are taken; the same ops apart are not.

    The Reshape to six dimensions is no culprit, though the tool's log names it: the model compiles with it where the
    other four are replaced.
    """
    net = Net()
    deep, image = np.array([1, 4, 2, 2, 4, 4], np.int64), np.array([1, 16, 4, 4], np.int64)
    order = [0, 1, 4, 2, 5, 3]
    erf = net.add("Erf", net.add("Div", "x", np.array(2**0.5, np.float32)))
    gelu = net.add("Mul", net.add("Mul", "x", net.add("Add", erf, np.array(1, np.float32))), np.array(0.5, np.float32))
    shuffled = net.add("Reshape", net.add("Transpose", net.add("Reshape", gelu, deep), perm=order), image)
    bad = [net.add("Erf", net.add("Relu", shuffled))]
    # the tool makes one node of a Reshape and the Reshape that reads it, whatever their tensor
    bad.append(net.add("Sigmoid", net.add("Reshape", bad[-1], deep)))
    bad.append(net.add("Transpose", bad[-1], perm=order))
    bad.append(net.add("Reshape", bad[-1], image))
    net.save(shell.folder / "net.onnx", (1, 16, 4, 4), bad[-1], (1, 16, 4, 4))
    flat = np.array([4, 2, 2, 4, 4], np.int64)
    without = Net()
    kept = without.add("Reshape", without.add("Relu", "x"), deep)
    turned = without.add("Transpose", without.add("Sigmoid", without.add("Reshape", kept, flat)), perm=[0, 3, 1, 4, 2])
    without.save(shell.folder / "without.onnx", (1, 16, 4, 4), without.add("Reshape", turned, image), (1, 16, 4, 4))

    report = shell.report("net.onnx", "--backend", "qnn")
    done = shell.call("run", "without.onnx", "--backend", "qnn")

    assert culprits(report) == sorted([name] for name in bad)
    assert {culprit["certainty"] for culprit in report["culprits"]} == {"confirmed"}
    assert report["certificate"]["status"] == "proven"
    assert report["stats"]["compiler_calls"] <= 40
    assert done.code == 0, done.out


def test_it_says_memory_and_the_truth_is_an_op(shell: Shell) -> None:
    """Squeeze-and-excitation, as in MobileNetV3, for a chip whose HTP has no HardSigmoid for floats."""
    net = Net()
    rng = np.random.default_rng(0)
    at, gates = "x", []
    for _ in range(3):
        at = net.add("Relu", net.add("Conv", at, rng.standard_normal((8, 8, 1, 1), np.float32)))
        pooled = net.add("ReduceMean", at, axes=[2, 3])
        squeezed = net.add("Relu", net.add("Conv", pooled, rng.standard_normal((4, 8, 1, 1), np.float32)))
        gates.append(net.add("HardSigmoid", net.add("Conv", squeezed, rng.standard_normal((8, 4, 1, 1), np.float32))))
        at = net.add("Mul", at, gates[-1])
    net.save(shell.folder / "net.onnx", (1, 8, 8, 8), at, (1, 8, 8, 8))

    report = shell.report("net.onnx", "--backend", "qnn", "--option", "soc_model=SM8350")

    (culprit,) = report["culprits"]
    assert (culprit["ops"], culprit["certainty"]) == (["HardSigmoid"], "confirmed")
    assert sorted(culprit["occurrences"]) == sorted([gate] for gate in gates)
    assert "QNN_COMMON_ERROR_MEM_ALLOC" in culprit["message"]
    assert report["certificate"]["status"] == "proven"
    assert report["stats"]["compiler_calls"] <= 16


@pytest.mark.long
def test_a_real_transformer_compiles_for_one_chip_and_for_an_older_one_its_culprits_are_proven(shell: Shell) -> None:
    model = REAL / "timm_vit_tiny_patch16_224__ts17.onnx"
    erfs = [node.name for node in onnx.load(model, load_external_data=False).graph.node if node.op_type == "Erf"]

    done = shell.call("run", str(model), "--backend", "qnn")
    report = shell.report(str(model), "--backend", "qnn", "--option", "soc_model=SM8350")

    assert done.code == 0, done.out
    (culprit,) = report["culprits"]
    assert sorted(culprit["occurrences"]) == sorted([name] for name in erfs)
    assert report["certificate"]["status"] == "proven"
    assert report["stats"]["compiler_calls"] <= 8


def test_the_prompt_encoder_of_segment_anything_in_bfloat16(shell: Shell) -> None:
    """Sin, Cos and Abs, which QNN's own list of the whole model names, and nothing else."""
    model = REAL.parent / "sam_part1_prompt__ts11.onnx"
    nodes = onnx.load(model).graph.node
    refused = {op: sorted([node.name] for node in nodes if node.op_type == op) for op in ("Abs", "Cos", "Sin")}

    target = ("--backend", "qnn", "--option", "soc_model=88", "--option", "precision=bf16")
    report = shell.report(str(model), *target)

    found = {culprit["ops"][0]: sorted(culprit["occurrences"]) for culprit in report["culprits"]}
    assert found == refused
    assert report["certificate"]["status"] == "proven"
    assert report["stats"]["compiler_calls"] <= 9

    done = shell.call("fix", str(model), *target, "--allow", "domain")
    assert done.code == 0, done.out
    changes = json.loads((shell.folder / "repair" / "repair.json").read_text())["changes"]
    assert {change["node"] for change in changes} == {name for names in refused.values() for [name] in names}
    rules = {change["op"]: [rule["id"] for rule in change["rules"]] for change in changes}
    assert rules == {"Abs": ["abs-relu"], "Cos": ["cos-folding"], "Sin": ["sin-folding"]}
    assert all(change["low"] for change in changes), "proven in bfloat16, too"


@pytest.mark.long
def test_rows_of_a_table_and_a_mask_are_repaired_for_an_older_chip(shell: Shell) -> None:
    """As in BERT: Gather of rows at computed places, and Where of 0 and minus infinity before Softmax."""
    table = numpy_helper.from_array(np.random.default_rng(0).standard_normal((10, 16), np.float32), "table")
    constants = [
        table,
        numpy_helper.from_array(np.array(0, np.float32), "zero"),
        numpy_helper.from_array(np.array(-np.inf, np.float32), "no"),
    ]
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"], name="rows"),
        helper.make_node("Cast", ["kept"], ["is_kept"], to=TensorProto.BOOL, name="cast"),
        helper.make_node("Where", ["is_kept", "zero", "no"], ["mask"], name="mask"),
        helper.make_node("Transpose", ["rows"], ["columns"], perm=[0, 2, 1], name="transpose"),
        helper.make_node("MatMul", ["rows", "columns"], ["likeness"], name="likeness"),
        helper.make_node("Add", ["likeness", "mask"], ["masked"], name="add"),
        helper.make_node("Softmax", ["masked"], ["weights"], name="softmax"),
        helper.make_node("MatMul", ["weights", "rows"], ["y"], name="mix"),
    ]
    inputs = [
        helper.make_tensor_value_info("ids", TensorProto.INT64, [1, 8]),
        helper.make_tensor_value_info("kept", TensorProto.INT64, [1, 1, 8]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 16])]
    graph = helper.make_graph(nodes, "net", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, shell.folder / "net.onnx")

    done = shell.call("fix", "net.onnx", "--backend", "qnn", "--option", "soc_model=SM8350", "--allow", "domain")

    assert done.code == 0, done.out
    repaired = onnx.load(shell.folder / "repair" / "repaired.onnx").graph.node
    assert not {"Gather", "Where"} & {node.op_type for node in repaired}


SMALL = {
    "Gelu": "t = Constant <value = float {1.4142135}> ()  o = Constant <value = float {1.0}> ()  d = Div(x, t)"
    "  e = Erf(d)  s = Add(e, o)  m = Mul(x, s)  h = Constant <value = float {0.5}> ()  y = Mul(m, h)",
    "Not": "z = Constant <value = float {0.0}> ()  b = Greater(x, z)  n = Not(b)  y = Where(n, x, z)",
    "ConstantOfShape": "s = Shape(x)  c = ConstantOfShape <value = float[1] {2.0}> (s)  y = Add(x, c)",
    "Reshape": "s = Constant <value = int64[2] {2, 3}> ()  y = Reshape <allowzero = 1> (x, s)",
    "ReduceSum": "a = Constant <value = int64[1] {1}> ()  y = ReduceSum <noop_with_empty_axes = 1> (x, a)",
    "ScatterND": "i = Constant <value = int64[1,1] {0}> ()  u = Constant <value = float[1,3] {1, 2, 3}> ()"
    '  y = ScatterND <reduction = "none"> (x, i, u)',
    "Constant": "c = Constant <value_float = 1.0> ()  y = Add(x, c)",
}
FILES = ("local_functions", "sparse_initializer", "unsorted_nodes", "names_weird", "quantized", "float16")


@pytest.mark.long
def test_inspect_raises_no_error_on_what_compiles(shell: Shell) -> None:
    paths = [REAL.parent / f"{name}.onnx" for name in FILES]
    for name, body in SMALL.items():
        shape = "2,1" if name == "ReduceSum" else "2,3"
        head = '<ir_version: 8, opset_import: ["" : 17]>'
        path = shell.folder / f"{name}.onnx"
        onnx.save(onnx.parser.parse_model(f"{head} g (float[2,3] x) => (float[{shape}] y) {{ {body} }}"), path)
        paths.append(path)
    for path in paths:
        assert shell.call("run", str(path), "-b", "qnn", "--as-is").code == 0, path
        assert shell.call("inspect", str(path), "-b", "qnn", "--fail-on", "error").code == 0, path


@pytest.mark.long
def test_deformable_attention_of_six_dimensions_compiles_with_fewer(shell: Shell) -> None:
    """As in RT-DETR: sampling places for each query, head, level and point."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    net (float[1,20,96] x, float[1,20,4] boxes) => (float[1,20,4,3,2] y) <
        int64[6] six = {1, 20, 4, 3, 4, 2}, int64[3] places = {2, 3, 4}, int64[1] second = {2},
        int64[1] fourth = {4}, int64[1] last = {-1}, float four = {4}, int64 third = {3}
    > {
        [offsets] offsets = Reshape(x, six)
        [divided] divided = Div(offsets, four)
        [open] open = Unsqueeze(boxes, places)
        [sizes] sizes = Slice(open, second, fourth, last)
        [scaled] scaled = Mul(divided, sizes)
        [level] y = Gather <axis = 4> (scaled, third)
    }""")
    onnx.save(model, shell.folder / "net.onnx")

    done = shell.call("fix", "net.onnx", "--backend", "qnn")

    assert done.code == 0, done.out
    assert "dimensions written with fewer" in done.out
    assert "The outputs are identical" in done.out


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "kind", "heads", "width"),
    [("bert_base12_h256_dyn__ts17", "bert", 4, 256), ("timm_vit_tiny_patch16_224__ts17", "vit", 3, 192)],
)
def test_what_the_optimizer_of_onnxruntime_fused_is_taken_apart(
    shell: Shell, name: str, kind: str, heads: int, width: int
) -> None:
    optimizer = pytest.importorskip("onnxruntime.transformers.optimizer")
    model = onnx.load(REAL.parent / f"real/{name}.onnx")
    for value in model.graph.input:
        for dim, length in zip(value.type.tensor_type.shape.dim, (1, 16), strict=False):
            if not dim.dim_value:
                dim.dim_value = length
    del model.graph.value_info[:]
    onnx.save(model, shell.folder / "plain.onnx")
    fused = optimizer.optimize_model(
        str(shell.folder / "plain.onnx"), model_type=kind, num_heads=heads, hidden_size=width, opt_level=0
    )
    fused.save_model_to_file(str(shell.folder / "fused.onnx"))
    assert sum(node.domain == "com.microsoft" for node in fused.model.graph.node) == 36

    done = shell.call("fix", "fused.onnx", "--backend", "qnn")

    assert done.code == 0, done.out
    assert "36 replaced nodes" in done.out
    assert "The outputs agree in onnxruntime" in done.out
