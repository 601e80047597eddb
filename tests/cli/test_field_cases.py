"""The files of docs/field.md: each case asks what its text asks, and asserts what that text calls right.

The files in `cases/field` are cut from models of packages or rebuilt from public reports. Cases that need a vendor's
compiler have its name in theirs; the others ask a simulated compiler or a command, and run for every commit.
"""

import json
import sys
from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from onnxbisect_backends.folders import cache_folder
from onnxbisect_backends.toolchains.toolchain import toolchain
from support.cli.command_line import CASES, Shell

FIELD = CASES / "field"


def case(name: str) -> str:
    return str(FIELD / f"{name}.onnx")


def denying(*ops: str) -> list[str]:
    return ["--backend", "whitelist", "--option", f"deny={','.join(ops)}", "--no-cache"]


def blamed(report: dict[str, Any]) -> dict[str, int]:
    """How many places each culprit has, by its ops."""
    places: Counter[str] = Counter()
    for culprit in report["culprits"]:
        places["+".join(culprit["ops"])] += len(culprit["occurrences"])
    return dict(places)


def repaired(shell: Shell) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load(shell.folder / "repair" / "repaired.onnx").graph.node)


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("llm_gqa_value_info", {"com.microsoft::GroupQueryAttention": 1}),
        ("ir14_fix_refuses", {"HardSigmoid": 1}),
        ("ir14_qnn", {"HardSigmoid": 1}),
        ("op21_rknn", {"Einsum": 2}),
        ("gridsample_calls", {"GridSample": 1}),
        ("einsum_odd", {"Einsum": 4}),
    ],
)
def test_the_refused_op_alone_is_the_culprit(shell: Shell, name: str, refused: dict[str, int]) -> None:
    report = shell.report(case(name), *denying(*(op.rpartition("::")[2] for op in refused)))
    assert blamed(report) == refused
    assert report["certificate"]["status"] == "proven"


@pytest.mark.parametrize(
    ("name", "refused", "exit_status"),
    [
        ("clip_computed_min", ["Clip"], 0),
        ("contrib_ops", ["SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization"], 0),
        ("einsum_odd", ["Einsum"], 0),
        ("f16_no_rules", ["HardSwish"], 0),
        ("ir14_fix_refuses", ["HardSigmoid"], 0),
    ],
)
def test_the_refused_op_has_a_remedy(shell: Shell, name: str, refused: list[str], exit_status: int) -> None:
    done = shell.call("fix", case(name), *denying(*refused), "--allow", "domain")
    assert done.code == exit_status, done.out + done.err
    assert not set(refused) & set(repaired(shell))
    told = json.loads((shell.folder / "repair" / "repair.json").read_text())
    assert all(output["beyond"] == 0 for output in told["outputs"])


@pytest.mark.parametrize("name", ["compare_f16", "compare_f16_relu"])
def test_float16_differs_from_float32(shell: Shell, name: str) -> None:
    """Relu between two Casts differs from Relu by float16's rounding: more than 1e-6 and 1e-4 of the largest."""
    original = case("compare_f32")
    if name == "compare_f16_relu":
        proto = onnx.load(case(name))
        del proto.graph.node[2], proto.graph.node[0]
        (relu,) = proto.graph.node
        relu.input[0], relu.output[0] = proto.graph.input[0].name, proto.graph.output[0].name
        original = str(shell.folder / "relu.onnx")
        onnx.save(proto, original)
    done = shell.call("compare", original, case(name))
    assert done.code == 1, done.out
    assert "models agree" not in done.out


def test_a_disputed_op_leaves_the_verdict_bounded(shell: Shell) -> None:
    report = shell.report(
        case("disputed_sin"), "--backend", "whitelist", "--option", "profile=pulsar2-ax620e", "--no-cache"
    )
    assert (report["verdict"], report["certificate"]["status"]) == ("pass", "bounded")
    assert any("AxQuantizedSin" in note for note in report["model"]["notes"])
    done = shell.call("inspect", case("disputed_sin"), "--backend", "pulsar2", "--option", "target_hardware=AX620E")
    assert "AxQuantizedSin" in done.out


def test_extract_takes_every_node_of_a_name(shell: Shell) -> None:
    assert shell.call("extract", case("dup_names"), "--nodes", "n", "-o", "part.onnx").code == 0
    assert [node.op_type for node in onnx.load(shell.folder / "part.onnx").graph.node] == ["Relu", "Sigmoid", "Tanh"]


def test_a_node_of_a_branch_is_told_by_its_place(shell: Shell) -> None:
    done = shell.call("extract", case("extract_if"), "-o", "part.onnx", "--nodes", "/no_past/Sin")
    assert done.code == 2
    assert "stands inside of 'optimum::if' (then_branch)" in done.sentence() or "(else_branch)" in done.sentence()


def test_unknown_dimensions_are_no_name_of_one(shell: Shell) -> None:
    report = shell.report(case("question_mark_dims"), *denying("Sin"), "--input-shape", "x=1,3,48,192")
    assert (report["verdict"], report["stats"]["compiler_calls"]) == ("pass", 1)


def test_a_size_at_run_time_contradicts_no_declaration(shell: Shell) -> None:
    """The compiler refuses what the file declares, so "compiles" would be said of another file."""
    done = shell.call("inspect", case("shape_contradiction_runtime"))
    assert "data-dependent-shape-op" in done.out
    assert "shape-contradiction:" not in done.out
    (shell.folder / "no7.py").write_text(
        "import onnx, sys\n"
        "graph = onnx.load(sys.argv[1]).graph\n"
        "sizes = [d.dim_value for v in [*graph.value_info, *graph.output] for d in v.type.tensor_type.shape.dim]\n"
        "sys.exit(7 in sizes)\n"
    )
    report = shell.report(case("shape_contradiction_runtime"), "--no-cache", "--", sys.executable, "no7.py", "{model}")
    assert report["verdict"] == "fail"


@pytest.mark.long
@pytest.mark.parametrize("declared", [False, True])
def test_six_named_nodes_cost_about_eight_calls_and_have_one_cause(shell: Shell, declared: bool) -> None:
    compiler = ["--", sys.executable, str(FIELD / "rank5_compiler.py"), "{model}"]
    if declared:
        described = (FIELD / "rank5_compiler.toml").read_text()
        described = described.replace('"python"', f'"{sys.executable}"').replace("{here}", str(FIELD))
        (shell.folder / "chip.toml").write_text(described)
        compiler = ["--backend", "./chip.toml"]
    report = shell.report(case("rank5_yolo_tail"), "--no-cache", *compiler)
    assert blamed(report) == dict.fromkeys(("Transpose", "Sigmoid", "Slice", "Mul", "Add", "ScatterND"), 1)
    assert report["certificate"]["status"] == "proven"
    assert len(report["probes"]) <= 10
    assert report["stats"]["compiler_calls"] <= 15  # 5 measure the ranks at a boundary, which a cache would keep
    (cause,) = report["causes"]
    assert "inputs of rank 5 or more" in json.dumps(cause)


#: The newest that docs/field.md has measured; others are as the project pins them.
VERSIONS = {"tpu-mlir": "1.8.1"}


@pytest.fixture
def vendor(shell: Shell, request: pytest.FixtureRequest) -> list[str]:
    """The options that name a compiler, which the user's cache has, and the shell then, too."""
    name: str = request.param
    version = VERSIONS.get(name)
    if complaint := toolchain(name, version).missing:
        pytest.skip(complaint)
    (shell.folder / "cache").mkdir()
    (shell.folder / "cache" / "toolchains").symlink_to(cache_folder() / "toolchains")
    return ["--backend", name, "--no-cache", *(["--option", f"version={version}"] if version else [])]


COMPILES: list[Any] = [
    ("qnn", "dynquant_rank4_passes", [], 1),
    ("qnn", "question_mark_dims", ["--input-shape", "x=1,3,48,192"], 1),
    ("rknn", "question_mark_dims", ["--input-shape", "x=1,3,48,192"], 1),
    ("rknn", "rknn_rank0_rest_passes", [], 1),
    ("rknn", "rknn_node_order_pass", ["--as-is"], 1),
    ("tpu-mlir", "tpu_sigmoid_tiny", [], 1),
]


def filled(shell: Shell, name: str) -> str:
    """The case with numbers for weights that the stored file leaves out."""
    proto = onnx.load(case(name))
    for tensor in proto.graph.initializer:
        if not tensor.raw_data and not tensor.float_data and tensor.data_type == onnx.TensorProto.FLOAT:
            values = np.cos(np.arange(np.prod(tensor.dims), dtype=np.float32) ** 2).reshape(tensor.dims) / 20
            tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float32), tensor.name))
    onnx.save(proto, shell.folder / "filled.onnx")
    return str(shell.folder / "filled.onnx")


@pytest.mark.compiler
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("vendor", "name", "options", "calls"), COMPILES, indirect=["vendor"])
def test_the_file_compiles(shell: Shell, vendor: list[str], name: str, options: list[str], calls: int) -> None:
    file = filled(shell, name) if "node_order" in name else case(name)
    report = shell.report(file, *vendor, *options)
    assert (report["verdict"], report["certificate"]["status"]) == ("pass", "proven")
    assert report["stats"]["compiler_calls"] == calls


@pytest.mark.compiler
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("vendor", ["rknn"], indirect=True)
def test_an_order_that_a_rule_of_fusion_dies_of_compiles_without_the_rule(shell: Shell, vendor: list[str]) -> None:
    """The nodes of rknn_node_order_pass, each behind what it reads, from the output on."""
    proto = onnx.load(filled(shell, "rknn_node_order_pass"))
    maker = {name: node for node in proto.graph.node for name in node.output}
    ordered: dict[str, onnx.NodeProto] = {}

    def put(node: onnx.NodeProto) -> None:
        for name in node.input:
            if name in maker and name not in ordered:
                put(maker[name])
        ordered.setdefault(node.output[0], node)

    put(proto.graph.node[-1])
    assert len(ordered) == len(proto.graph.node)
    nodes = onnx.GraphProto(node=ordered.values()).node
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    onnx.save(proto, shell.folder / "reordered.onnx")
    report = shell.report("reordered.onnx", *vendor, "--timeout", "1200")
    assert report["verdict"] == "fail"
    assert "remove_concat_slice" in report["compiles_after"]["sentence"]
    assert not report["culprits"]
    assert report["stats"]["compiler_calls"] == 2


CULPRITS: list[Any] = [
    ("qnn", "clip_computed_min", [], {"Clip": 1}, 8),
    ("qnn", "dynquant_false_cause", [], {"DynamicQuantizeLinear": 1, "ConvInteger": 1}, 6),
    ("qnn", "ir14_qnn", ["--option", "soc_model=SM8350"], {"HardSigmoid": 1}, 10),
    (
        "qnn",
        "llm_gqa_value_info",
        [],
        {"com.microsoft::GroupQueryAttention": 1, "com.microsoft::SkipSimplifiedLayerNormalization": 1},
        8,
    ),
    ("rknn", "op21_rknn", [], {"Einsum": 2}, 12),
    ("rknn", "gridsample_calls", [], {"GridSample": 1}, 6),
    # Of ReduceMax and Where the toolkit dies with any condition from outside, called by itself, too. That a condition
    # computed from ReduceMax passes is for a changed file to show, such as the one without --as-is.
    ("rknn", "rknn_rank0_boundary", ["--as-is"], {"IsNaN": 1, "ReduceMax+Where": 1}, 26),
]


@pytest.mark.compiler
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("vendor", "name", "options", "refused", "most"), CULPRITS, indirect=["vendor"])
def test_the_culprits_of_a_vendors_compiler(
    shell: Shell, vendor: list[str], name: str, options: list[str], refused: dict[str, int], most: int
) -> None:
    report = shell.report(case(name), *vendor, *options)
    assert blamed(report) == refused
    assert report["certificate"]["status"] == "proven"
    assert report["stats"]["compiler_calls"] <= most
    assert not any("rank" in cause["text"] for cause in report["causes"] if cause["established"])


AFTER: list[Any] = [
    ("qnn", "no_value_info_ge", [], "shapes declared"),
    ("rknn", "rknn_long_input_name", [], "name"),
    ("rknn", "rknn_rank0_boundary", [], "NaN"),
    ("rknn", "ir14_fix_refuses", [], "operator set 28 → 19"),
]


@pytest.mark.compiler
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("vendor", "name", "options", "words"), AFTER, indirect=["vendor"])
def test_a_change_of_the_file_makes_it_compile(
    shell: Shell, vendor: list[str], name: str, options: list[str], words: str
) -> None:
    report = shell.report(case(name), *vendor, *options)
    assert report["verdict"] == "fail"
    assert words in json.dumps(report["compiles_after"], ensure_ascii=False)
    assert not report["culprits"]
    assert report["stats"]["compiler_calls"] <= 5


@pytest.mark.compiler
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("vendor", ["qnn", "rknn", "tpu-mlir"], indirect=True)
def test_an_if_compiles_with_the_rate_that_a_device_has(shell: Shell, vendor: list[str]) -> None:
    options = [*vendor, "--input-shape", "x=1,576", "--input-value", "sr=16000"]
    report = shell.report(case("if_on_scalar_input"), *options)
    assert not report["culprits"]
    assert report["verdict"] == "pass" or report["compiles_after"]
    assert report["stats"]["compiler_calls"] <= 3


FIXED: list[Any] = [
    ("qnn", "clip_computed_min", "Clip", 0),
    ("qnn", "einsum_odd", "Einsum", 1),  # the one of two operands compiles as it is
    ("rknn", "op21_rknn", "Einsum", 0),
]


@pytest.mark.compiler
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("vendor", "name", "op", "left"), FIXED, indirect=["vendor"])
def test_a_vendors_compiler_takes_the_repaired_file(
    shell: Shell, vendor: list[str], name: str, op: str, left: int
) -> None:
    done = shell.call("fix", case(name), *vendor)
    assert done.code == 0, done.out + done.err
    assert repaired(shell)[op] == left
