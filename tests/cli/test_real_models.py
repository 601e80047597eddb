"""What the program promises, held on real models: networks as exporters wrote them, their large weights replaced."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_bisect
from onnxbisect.model import load
from onnxbisect.unitset import indices_of
from onnxbisect.verdict import Kind
from onnxbisect_backends.simulator import profiles
from onnxbisect_backends.simulator.refusals import Rules, refusals
from support.cli.command_line import Shell, culprits

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
DECODER = ROOT / "examples" / "sam_decoder.onnx"
REAL = [DECODER, *sorted((ROOT / "tests" / "models" / "real").glob("*.onnx"))]
#: Only lists ops; names the first offender and folds; names all and folds; names nodes; has limits on attributes.
PROFILES = ["edgesam", "pulsar2-ax650", "tpu-mlir-1.8.1", "rknn-2.1.0", "nncase-2.11.0"]
#: Each profile on the decoder, and each other model with two of them.
ASKED = [(DECODER, profile) for profile in PROFILES] + [
    (path, PROFILES[place % len(PROFILES)])
    for number, path in enumerate(REAL[1:])
    for place in (2 * number, 2 * number + 1)
]
BERT_SHAPES = {"input_ids": [1, 16], "attention_mask": [1, 16], "token_type_ids": [1, 16]}
EDGESAM = ("--backend", "whitelist", "--option", "profile=edgesam")


def occurrences(report: dict[str, Any]) -> list[tuple[str, ...]]:
    return sorted(tuple(nodes) for culprit in report["culprits"] for nodes in culprit["occurrences"])


def test_the_decoder_gives_the_list_that_its_team_found_by_hand(shell: Shell) -> None:
    """Gather, Abs, Sin and Cos had to go; of Clip and Gemm the record says nothing."""
    report = shell.report(str(DECODER), *EDGESAM)
    verdicts = {row["op"]: (row["nodes"], row["verdict"]) for row in report["op_table"] if row["op"] != "Constant"}
    assert verdicts == {
        **{op: (count, "fail") for op, count in {"Abs": 5, "Cos": 1, "Gather": 5, "Sin": 1}.items()},
        **{op: (count, "unknown") for op, count in {"Clip": 5, "Gemm": 15}.items()},
        **{op: (count, "pass") for op, count in {"ConvTranspose": 2, "Identity": 16}.items()},
        **{op: (count, "pass") for op, count in {"Add": 76, "Concat": 4, "Div": 20, "Erf": 2, "Expand": 1}.items()},
        **{op: (count, "pass") for op, count in {"MatMul": 48, "Mul": 22, "Pow": 10, "ReduceMean": 20}.items()},
        **{op: (count, "pass") for op, count in {"Relu": 12, "Reshape": 32, "Shape": 2, "Slice": 2}.items()},
        **{op: (count, "pass") for op, count in {"Softmax": 7, "Sqrt": 10, "Sub": 22, "Transpose": 30}.items()},
        "Unsqueeze": (5, "pass"),
    }
    nodes = onnx.load(DECODER, load_external_data=False).graph.node
    refused = {"Gather", "Abs", "Sin", "Cos"}
    assert occurrences(report) == sorted((node.name,) for node in nodes if node.op_type in refused)
    assert {culprit["certainty"] for culprit in report["culprits"]} == {"confirmed"}
    assert report["certificate"]["status"] == "bounded"
    assert report["certificate"]["unknown"] == ["20 units are not known to this profile: Clip 5, Gemm 15."]
    # The whole and the remainder; each culprit alone, in its context, and in other places or contexts; and what is
    # not known, which is asked once for each op.
    assert report["stats"]["compiler_calls"] <= 2 + 3 * len(report["culprits"]) + 2


@pytest.mark.parametrize(
    ("part", "verdict", "refused", "unknown"),
    [
        ("/prompt_encoder/", "fail", {"Abs": 5, "Cos": 1, "Sin": 1}, {"Clip": 5}),
        (("/transformer/", "Identity"), "pass", {}, {}),
        ("/mask_head/", "fail", {"Gather": 5}, {"Gemm": 15}),
    ],
)
def test_the_parts_of_the_decoder_fare_as_the_record_says(
    shell: Shell, part: str | tuple[str, ...], verdict: str, refused: dict[str, int], unknown: dict[str, int]
) -> None:
    """Prompt encoding, transformer and mask head, told apart by the names of their nodes."""
    nodes = onnx.load(DECODER, load_external_data=False).graph.node
    named = [node.name for node in nodes if node.name.startswith(part) and node.op_type != "Constant"]
    onnx_bisect.extract(DECODER, shell.folder / "part.onnx", nodes=named)
    report = shell.report("part.onnx", *EDGESAM)
    assert report["verdict"] == verdict
    rows = report["op_table"]
    assert {row["op"]: row["nodes"] for row in rows if row["verdict"] == "fail"} == refused
    assert {row["op"]: row["nodes"] for row in rows if row["verdict"] == "unknown"} == unknown


@pytest.mark.parametrize(
    ("path", "profile"), [pytest.param(*asked, id=f"{asked[0].stem}-{asked[1]}") for asked in ASKED]
)
def test_every_refused_node_is_a_culprit_and_no_other(shell: Shell, path: Path, profile: str) -> None:
    """Truth: what the simulated compiler's own rules say of each node of the whole model, which no log admits."""
    rules = Rules(profile=profiles.load(profile)[0])
    shapes = BERT_SHAPES if path.stem.startswith("bert") else {}
    found = refusals(load(path, input_shapes=shapes).proto, rules)
    refused = {refusal.nodes for refusal in found if refusal.kind is not Kind.UNKNOWN}
    unknown = {refusal.nodes for refusal in found if refusal.kind is Kind.UNKNOWN}
    # These inputs have fixed sizes, so that every Shape folds away before it reaches a compiler.
    doubted = rules.profile.disputed.keys() & {
        node.op_type for node in onnx.load(path, load_external_data=False).graph.node if node.op_type != "Shape"
    }
    bound = [f"--input-shape={name}={','.join(map(str, shape))}" for name, shape in shapes.items()]
    report = shell.report(str(path), "--backend", "whitelist", "--option", f"profile={profile}", *bound, "--as-is")
    assert occurrences(report) == sorted(refused)
    assert report["certificate"]["status"] == ("bounded" if unknown or doubted else "proven")
    assert len(list(indices_of(report["unresolved"]))) == len(unknown)
    assert report["needs_context"] == []


def test_a_pair_that_fails_only_together_is_found_in_both_places(shell: Shell) -> None:
    """Seen with a shipping toolkit: RepViT's two heads fail where ReduceMean feeds BatchNormalization."""
    path = ROOT / "tests" / "models" / "real" / "timm_repvit_m0_9__ts17.onnx"
    nodes = onnx.load(path, load_external_data=False).graph.node
    made = {node.output[0]: node for node in nodes}
    pairs = [
        (made[node.input[0]].name, node.name)
        for node in nodes
        if node.op_type == "BatchNormalization" and made[node.input[0]].op_type == "ReduceMean"
    ]
    assert len(pairs) == 2
    rule = "fail_patterns=ReduceMean>BatchNormalization"
    report = shell.report(str(path), "--backend", "whitelist", "--option", rule, "--option", "report=none")
    (culprit,) = report["culprits"]
    assert (culprit["kind"], culprit["ops"]) == ("interaction", ["ReduceMean", "BatchNormalization"])
    assert occurrences(report) == sorted(pairs)
    assert report["certificate"]["status"] == "proven"
    assert report["stats"]["compiler_calls"] <= 20


def test_a_second_run_asks_nothing(shell: Shell) -> None:
    first = shell.report(str(DECODER), *EDGESAM)
    again = shell.report(str(DECODER), *EDGESAM)
    assert again["stats"]["compiler_calls"] == 0
    assert again["culprits"] == first["culprits"]


@pytest.mark.parametrize("compiler", ["deny=Abs,Sin,Cos", "profile=edgesam", "profile=pulsar2-ax650"])
def test_a_repaired_model_asks_only_for_what_changed(shell: Shell, compiler: str) -> None:
    first = shell.report(str(DECODER), "--backend", "whitelist", "--option", compiler)
    model = onnx.load(DECODER)
    without_abs(model)
    onnx.save(model, shell.folder / "repaired.onnx")
    repaired = shell.report("repaired.onnx", "--backend", "whitelist", "--option", compiler)
    assert culprits(repaired) == [nodes for nodes in culprits(first) if not nodes[0].startswith("/prompt_encoder/Abs")]
    assert repaired["certificate"]["status"] == first["certificate"]["status"]
    # The log names one refused node at a time: a call for each that it has to name, and one that passes.
    assert repaired["stats"]["compiler_calls"] <= 6


def without_abs(model: onnx.ModelProto) -> None:
    """|x| = relu(x) + relu(0 - x), in ops that the profile lists."""
    model.graph.initializer.append(numpy_helper.from_array(np.array(0, np.float32), "zero"))
    nodes = []
    for node in model.graph.node:
        if node.op_type != "Abs":
            nodes.append(node)
            continue
        (x,), (y,), name = node.input, node.output, node.name
        nodes += [
            helper.make_node("Relu", [x], [f"{y}_above"], f"{name}_above"),
            helper.make_node("Sub", ["zero", x], [f"{y}_minus"], f"{name}_minus"),
            helper.make_node("Relu", [f"{y}_minus"], [f"{y}_below"], f"{name}_below"),
            helper.make_node("Add", [f"{y}_above", f"{y}_below"], [y], f"{name}_sum"),
        ]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


@pytest.mark.parametrize(
    "rule", ["deny=Erf,Softmax", "fail_patterns=Softmax>MatMul", "deny=Erf;fail_patterns=Transpose>MatMul"]
)
@pytest.mark.parametrize("log", ["none", "first"])
def test_24_identical_layers_cost_at_most_3_calls_more_than_one(shell: Shell, rule: str, log: str) -> None:
    options = ["--backend", "whitelist", "--option", f"report={log}"]
    for part in rule.split(";"):
        options += ["--option", part]
    found, calls = {}, {}
    for layers in (1, 24):
        name = f"layers{layers}.onnx"
        onnx.save(transformer(layers), shell.folder / name)
        report = shell.report("--no-cache", name, *options)
        assert report["certificate"]["status"] == "proven"
        found[layers], calls[layers] = len(occurrences(report)), report["stats"]["compiler_calls"]
    assert found[24] == 24 * found[1] > 0
    assert calls[24] <= calls[1] + 3


def transformer(layers: int, width: int = 16, tokens: int = 8) -> onnx.ModelProto:
    """Pre-norm layers as a TorchScript exporter writes them, each with weights of its own."""
    chance = np.random.default_rng(0)
    graph = onnx.GraphProto(name="transformer")
    graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, tokens, width]))
    graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, tokens, width]))

    def weight(name: str, *shape: int) -> str:
        graph.initializer.append(numpy_helper.from_array(chance.random(shape, np.float32), name))
        return name

    def node(scope: str, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{scope}/{op}_{len(graph.node)}"
        graph.node.append(helper.make_node(op, list(inputs), [f"{name}_output"], name, **attributes))
        return f"{name}_output"

    graph.initializer.append(numpy_helper.from_array(np.array(0.25, np.float32), "scale"))
    graph.initializer.append(numpy_helper.from_array(np.array(1, np.float32), "one"))
    graph.initializer.append(numpy_helper.from_array(np.array(1.41421356, np.float32), "root"))
    at = "x"
    for layer in range(layers):
        scope = f"/layers.{layer}"
        normed = node(scope, "LayerNormalization", at, weight(f"g{layer}", width), weight(f"b{layer}", width))
        query, key, value = (
            node(scope, "MatMul", normed, weight(f"{name}{layer}", width, width)) for name in ("q", "k", "v")
        )
        turned = node(scope, "Transpose", key, perm=[0, 2, 1])
        scores = node(scope, "Mul", node(scope, "MatMul", query, turned), "scale")
        mixed = node(scope, "MatMul", node(scope, "Softmax", scores, axis=-1), value)
        at = node(scope, "Add", at, node(scope, "MatMul", mixed, weight(f"o{layer}", width, width)))
        normed = node(scope, "LayerNormalization", at, weight(f"h{layer}", width), weight(f"c{layer}", width))
        wide = node(scope, "MatMul", normed, weight(f"up{layer}", width, 4 * width))
        gate = node(scope, "Add", node(scope, "Erf", node(scope, "Div", wide, "root")), "one")
        shrunk = node(scope, "MatMul", node(scope, "Mul", wide, gate), weight(f"down{layer}", 4 * width, width))
        at = node(scope, "Add", at, shrunk)
    graph.node.append(helper.make_node("Identity", [at], ["y"], "/head/Identity"))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model
