"""Applying rules changes the named nodes and nothing else."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxbisect.errors import ModelError
from onnxbisect.model import load
from onnxbisect.model.facts import TensorFacts
from onnxbisect.model.scopes import is_constant
from onnxbisect.proof import compare, edge_feeds, random_feeds
from onnxbisect.rewrites import Exactness, Rewrite, Rule, apply, installed, judged

MODELS = Path(__file__).parents[1] / "models"
RULES = {rule.id: rule for rule in installed().rules}
#: onnxruntime refuses to run these.
NOT_RUN = {"bfloat16.onnx", "custom_domain_unknown.onnx", "duplicate_names.onnx"}
PATHS = sorted(path for path in [*MODELS.glob("*.onnx"), *MODELS.glob("external/*.onnx")])


def exact_changes(path: Path) -> dict[str, Rule]:
    """For every node of a model an exact rule that applies, where there is one."""
    model = load(path)
    facts = TensorFacts.of(model)
    changes = {}
    for it in model.proto.graph.node:
        if is_constant(it):
            continue
        found = [one for one in judged(facts, it, RULES.values()) if isinstance(one, Rewrite)]
        exact = [one.rule for one in found if one.rule.exactness is Exactness.EXACT]
        if exact:
            changes[it.name] = exact[0]
    return changes


def others(model: onnx.ModelProto, changes: dict[str, Rule], prefixes: set[str]) -> list[bytes]:
    """What no rule names, byte by byte: the nodes that stay, and all that is not a node."""
    rest = onnx.ModelProto()
    rest.CopyFrom(model)
    parts = (rest.functions, rest.opset_import, rest.graph.sparse_initializer, rest.graph.value_info)
    nodes = [it for it in rest.graph.node if it.name not in changes and not any(map(it.name.startswith, prefixes))]
    kept = [it.SerializeToString(deterministic=True) for it in nodes]
    tensors = [it for it in rest.graph.initializer if not any(map(it.name.startswith, prefixes))]
    kept += [it.SerializeToString(deterministic=True) for it in tensors]
    kept += [it.SerializeToString(deterministic=True) for part in parts for it in part]
    for field in ("node", "initializer", "sparse_initializer", "value_info"):
        rest.graph.ClearField(field)
    for field in ("functions", "opset_import"):
        rest.ClearField(field)
    return [*kept, rest.SerializeToString(deterministic=True)]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_real_and_hard_models_keep_all_that_no_rule_names(path: Path) -> None:
    changes = {name: rule for name, rule in exact_changes(path).items() if rule.id != "fold"}
    before = onnx.load(path, load_external_data=False)
    after = apply(path, changes)
    given = {it.name for it in before.graph.node}
    changed = {name: rule for name, rule in changes.items() if name in given}
    if len(changed) < len(changes) or len(given) < len(before.graph.node):
        pytest.skip("nodes without unique names of their own: the numbers are compared below")
    prefixes = {f"{name}/{rule.id}" for name, rule in changes.items()}
    # a value that is constant by the rule becomes an initializer of the output's name
    constant = {output for it in before.graph.node if it.name in changes for output in it.output}
    for tensor in [it for it in after.graph.initializer if it.name in constant]:
        after.graph.initializer.remove(tensor)
    stay = others(after, changes, prefixes)
    there = set(stay)
    assert stay == [it for it in others(before, changes, set()) if it in there]


def test_what_only_a_replaced_node_used_goes_with_it(tmp_path: Path) -> None:
    """The shape and its declaration go; what was unused before, and what another node reads, stays."""
    text = """<ir_version: 8, opset_import: ["" : 17, "unused" : 1]>
        g (float[2, 3] x) => (float[6] y, int64[1] z) <int64[1] shape = {-1}, int64[1] both = {-1}, float[1] w = {1}>
        { [made] shape_2 = Constant <value = int64[1] {-1}> ()
          [one] a = Reshape(x, shape)  [two] b = Reshape(a, shape_2)  [three] y = Reshape(b, both)
          [four] z = Neg(both) }"""
    path = tmp_path / "model.onnx"
    before = onnx.parser.parse_model(text)
    before.graph.value_info.extend(
        [helper.make_tensor_value_info("shape", TensorProto.INT64, [1]), helper.make_tensor_value_info("a", 1, [6])]
    )
    onnx.save(before, path)
    rule = RULES["reshape-constant"]
    after = apply(path, {"one": rule, "two": rule, "three": rule})
    own = {tensor.name for tensor in before.graph.initializer}
    assert [tensor.name for tensor in after.graph.initializer if tensor.name in own] == ["both", "w"]
    assert "made" not in {node.name for node in after.graph.node}
    assert [value.name for value in after.graph.value_info] == ["a"]
    assert [entry.domain for entry in after.opset_import] == ["", "unused"]
    onnx.checker.check_model(after, full_check=True)


@pytest.mark.parametrize("path", [it for it in PATHS if it.name not in NOT_RUN], ids=lambda path: path.stem)
def test_exact_rules_everywhere_leave_every_bit_of_the_outputs(path: Path) -> None:
    model = load(path)
    if model.unbound:
        pytest.skip("dynamic dimensions")
    before = onnx.load(path, load_external_data=False)
    after = apply(path, exact_changes(path))
    feeds = [*random_feeds(model.proto.graph.input, 2), *edge_feeds(model.proto.graph.input, 1)]
    found = compare(before, after, feeds, folder=path.parent)
    assert found.differences
    assert all(it.absolute == 0 and it.agrees for it in found.differences), found


def chain(ir_version: int = 9) -> onnx.ModelProto:
    """Abs, Neg, Abs, the first with what exporters say of a source line."""
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], name="first", doc_string="net.py(3)"),
        helper.make_node("Neg", ["a"], ["b"], name="middle"),
        helper.make_node("Abs", ["b"], ["y"], name="last"),
    ]
    entry = nodes[0].metadata_props.add()
    entry.key, entry.value = "pkg.torch.onnx.stack_trace", "line 3"
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, [3])], [helper.make_tensor_value_info("y", 1, [3])]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=ir_version)


def test_replacements_carry_the_source_line_and_a_name_that_tells_where_they_come_from() -> None:
    after = apply(chain(), {"first": RULES["abs-relu"]})
    new = [it for it in after.graph.node if it.name not in ("middle", "last")]
    assert [it.op_type for it in new] == ["Relu", "Mul", "Relu", "Add"]
    assert all(it.name.startswith("first/abs-relu/") for it in new)
    assert all(it.metadata_props[0].value == "line 3" and it.doc_string == "net.py(3)" for it in new)
    assert new[-1].output == ["a"]


@pytest.mark.parametrize(
    ("rule", "op", "shapes", "attributes"),
    [
        ("einsum-matmul", "Einsum", {"w": (3, 2), "x": (2, 5)}, {"equation": "oi,ij->oj"}),
        ("einsum-matmul", "Einsum", {"x": (4, 2), "w": (2, 5)}, {"equation": "ij,jk->ki"}),
        ("matmul-sum", "MatMul", {"x": (4, 2), "w": (2, 5)}, {}),
        ("matmul-sum", "MatMul", {"w": (4, 2), "x": (2, 5)}, {}),
    ],
)
def test_a_weight_is_reshaped_and_transposed_beforehand(
    rule: str, op: str, shapes: dict[str, tuple[int, ...]], attributes: dict[str, str]
) -> None:
    """TPU-MLIR has no operand for the input of a Reshape that is a weight."""
    node = helper.make_node(op, list(shapes), ["y"], name="n", **attributes)
    weight = numpy_helper.from_array(np.arange(np.prod(shapes["w"]), dtype=np.float32).reshape(shapes["w"]), "w")
    values = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in shapes.items()}
    end = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["a", "b"])
    graph = helper.make_graph([node], "g", [values["x"]], [end], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    graph = apply(model, {"n": RULES[rule]}).graph

    weights = {tensor.name for tensor in graph.initializer}
    assert not [it for it in graph.node if it.op_type in ("Reshape", "Transpose") and it.input[0] in weights]
    assert "w" not in weights or any("w" in it.input for it in graph.node)


def test_new_names_are_new() -> None:
    model = chain()
    model.graph.node[1].name = "first/abs-relu/Relu_0"
    after = apply(model, {"first": RULES["abs-relu"], "last": RULES["abs-relu"]})
    names = [it.name for it in after.graph.node] + [it.name for it in after.graph.initializer]
    assert len(names) == len(set(names))
    assert "first/abs-relu/Relu_0" in names
    onnx.checker.check_model(after, full_check=True)


def test_a_model_in_which_initializers_must_be_inputs_gets_constant_nodes() -> None:
    after = apply(chain(ir_version=3), {"first": RULES["abs-relu"]})
    onnx.checker.check_model(after, full_check=True)
    assert not after.graph.initializer
    assert "Constant" in {it.op_type for it in after.graph.node}


def test_the_model_that_was_given_is_not_changed() -> None:
    model = chain()
    apply(model, {"first": RULES["abs-relu"]})
    assert model == chain()


def test_an_unknown_node_and_a_rule_that_does_not_apply_are_said_in_a_sentence() -> None:
    with pytest.raises(ModelError, match=r"no node 'frist'"):
        apply(chain(), {"frist": RULES["abs-relu"]})
    with pytest.raises(ModelError, match=r"gather-slice does not apply to node 'first': the rule takes Gather"):
        apply(chain(), {"first": RULES["gather-slice"]})


def test_a_shape_that_depends_on_values_is_not_taken_for_a_fixed_one(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [
            helper.make_node("NonZero", ["x"], ["places"], name="places"),
            helper.make_node("Squeeze", ["places", "axis"], ["y"], name="squeeze"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, ["n"])],
        [numpy_helper.from_array(np.array([0]), "axis")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "m.onnx")
    model = load(tmp_path / "m.onnx")
    squeeze = next(it for it in model.proto.graph.node if it.name == "squeeze")
    assert not any(isinstance(it, Rewrite) for it in judged(TensorFacts.of(model), squeeze, [RULES["squeeze-reshape"]]))


def test_the_branch_of_an_if_may_share_names_with_the_graph_around_it() -> None:
    inner = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["t"], name="first")],
        "then",
        [],
        [helper.make_tensor_value_info("t", 1, [3])],
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["t"], name="first")],
        "else",
        [],
        [helper.make_tensor_value_info("t", 1, [3])],
    )
    model = chain()
    model.graph.node.append(helper.make_node("If", ["c"], ["z"], name="if", then_branch=inner, else_branch=other))
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "c"))
    model.graph.output.append(helper.make_tensor_value_info("z", 1, [3]))
    after = apply(model, {"if": RULES["if-constant"]})
    onnx.checker.check_model(after, full_check=True)
    (made,) = [it for it in after.graph.node if it.output == ["z"]]
    assert made.op_type == "Neg"
    assert made.name.startswith("if/if-constant/")
