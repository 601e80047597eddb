"""A model in float16 has the culprits of its float32 twin, and the same remedies, each proven in its type."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxbisect.model.scopes import qualified
from onnxbisect.rewrites import Exactness
from support import TESTS
from support.halves import in_float16
from support.remedies.simulated import SimulatedCompiler, refusing, repaired

MODELS = TESTS / "models"
#: What the compiler refuses of each model.
REFUSED = {
    "real/timm_repvit_m0_9__ts17.onnx": ("Sigmoid", "ReduceMean", "Erf"),
    "real/timm_vit_tiny_patch16_224__ts17.onnx": ("LayerNormalization", "Softmax", "Erf"),
    "real/sam_decoder__dynamo18.onnx": ("Abs", "Pow", "Erf", "Gemm"),
    "real/bert_base12_h256_dyn__ts17.onnx": ("IsNaN", "Tanh", "LayerNormalization"),
    "sam_part1_prompt__ts11.onnx": ("Abs", "Clip", "Sin"),
}
#: A dimension without a number.
_FREE = 4


def bound(path: Path) -> onnx.ModelProto:
    """The model with its weights inside and all dimensions of inputs fixed."""
    model = onnx.load(path)
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if not dim.dim_value:
                dim.dim_value = _FREE
    del model.graph.value_info[:]
    return model


def remedies(folder: Path, model: onnx.ModelProto, *ops: str) -> tuple[set[str], dict[str, str], set[str]]:
    """The culprits' ops, the rules at each place, and the ops that stay."""
    folder.mkdir()
    asked = SimulatedCompiler(folder=folder, refuses=refusing(*ops))
    found = repaired(model, asked, most=Exactness.ROUNDING)
    culprits = {op for it in found.before.culprits for op in it.ops}
    return (
        culprits,
        {it.candidate.node: it.candidate.name for it in found.places},
        {op for it in found.left for op in it.ops},
    )


def demand_the_same(folder: Path, model: onnx.ModelProto, *ops: str) -> None:
    wide = remedies(folder / "float32", model, *ops)
    narrow = remedies(folder / "float16", in_float16(model), *ops)
    assert wide[0] == set(ops)
    assert wide[1]
    assert narrow == wide


def test_a_small_model_in_float16_has_the_same_culprits_and_remedies(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("HardSwish", ["x"], ["a"], name="first"),
        helper.make_node("LayerNormalization", ["a", "gamma"], ["b"], name="second"),
        helper.make_node("Softplus", ["b"], ["c"], name="third"),
        helper.make_node("Relu", ["c"], ["y"], name="fourth"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3, 8]) for name in "xy"]
    gamma = numpy_helper.from_array(np.linspace(0.5, 2, 8, dtype=np.float32), "gamma")
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [gamma])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    demand_the_same(tmp_path, model, *(qualified(node) for node in nodes[:3]))


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(REFUSED))
def test_five_real_models_in_float16_have_the_same_culprits_and_remedies(tmp_path: Path, name: str) -> None:
    demand_the_same(tmp_path, bound(MODELS / name), *REFUSED[name])
