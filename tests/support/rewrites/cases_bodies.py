"""Functions, operators with a body, branches of If, and what no input changes."""

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper

from support.rewrites.instances import Constant, Instance, anything, case, floats, integers, node, opset, shape
from support.rewrites.measured import outputs_of

DrawFn = st.DrawFn


def _relu(draw: DrawFn) -> Instance:
    return node("Relu", floats(draw, shape(draw)))


@case("inline-function", _relu)
def _(draw: DrawFn) -> Instance:
    x = floats(draw, shape(draw))
    inner = helper.make_function(
        "own", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    nodes = [
        helper.make_node("Twice", ["a"], ["n"], domain="own"),
        helper.make_node("Constant", [], ["c"], value_float=0.5),
        helper.make_node("Mul", ["n", "c"], ["b"]),
        helper.make_node("LeakyRelu", ["b"], ["d"]),
    ]
    slope = onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    nodes[3].attribute.append(slope)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    usual = [helper.make_attribute("slope", 0.3)]
    outer = helper.make_function("own", "Bent", ["a"], ["d"], nodes, opsets, attribute_protos=usual)
    around = helper.make_function(
        "own", "Around", ["a"], ["b"], [helper.make_node("Bent", ["a"], ["b"], domain="own")], opsets
    )
    if draw(st.booleans()):
        return node("Around", x, domain="own", functions=[inner, outer, around])
    given = draw(st.sampled_from([{}, {"slope": 0.1}, {"slope": 0.7}]))
    return node("Bent", x, domain="own", functions=[inner, outer], **given)


def _schema(draw: DrawFn, op: str) -> Instance:
    x = floats(draw, shape(draw, 1, 3), edges=(0.0, -0.0, 1.5, -0.5, 0.5))
    if op == "CastLike":
        return node(op, x, integers(draw, (2,), 0, 1, np.int32), opset=opset(draw, 15, 17, 21))
    if op == "Shrink":
        return node(op, x, lambd=0.5, bias=draw(st.sampled_from([0.0, 1.5])), opset=opset(draw, 18, 21))
    if op == "RotaryEmbedding":
        heads, length, size = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.sampled_from([4, 8]))
        cos, sin = (Constant(floats(draw, (1, length, size // 2), edges=())) for _ in range(2))
        return node(op, floats(draw, (1, heads, length, size), edges=()), cos, sin, opset=opset(draw, 23, 24))
    heads, rows, columns, size = (draw(st.integers(1, 4)) for _ in range(4))
    q, k, v = (floats(draw, (1, heads, length, size), edges=()) for length in (rows, columns, columns))
    return node("Attention", q, k, v, opset=23)


def _without_body(draw: DrawFn) -> Instance:
    """What is left out onnx does not inline: an attribute without a default, an input before others. Masked products
    are of other values in onnxruntime.
    """
    if draw(st.booleans()):
        return node("Shrink", floats(draw, shape(draw)), opset=opset(draw, 18, 21))
    q, k, v, past = (floats(draw, (1, 1, 2, 4), edges=()) for _ in range(4))
    if draw(st.booleans()):
        mask = np.array([[True, False, True, True]] * 2)
        return node("Attention", q, k, v, mask, past, past, outputs=4, opset=23, qk_matmul_output_mode=2)
    return node("Attention", q, k, v, None, past, past, outputs=3, opset=23)


@case("schema-body", _without_body)
def _(draw: DrawFn) -> Instance:
    op = draw(st.sampled_from(["CastLike", "Shrink", "RotaryEmbedding", "Attention"]))
    instance = _schema(draw, op)
    largest = max((np.abs(it).max(initial=0) for it in outputs_of(instance.model, instance.feeds)), default=0)
    return Instance(instance.model, instance.feeds, max(float(largest), 1.0))


def _if(draw: DrawFn, condition: np.ndarray | Constant, *, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> Instance:
    """Branches that read a tensor from outside, hold constants, and share the names of theirs."""
    x = floats(draw, shapes[0])
    weight = onnx.numpy_helper.from_array(floats(draw, shapes[0], edges=()), "w")
    branches = []
    for op, dims in (("Add", shapes[0]), ("Mul", shapes[1])):
        inner = helper.make_node(op, ["x", "w"], ["t"], name="inner")
        last = helper.make_node("Relu", ["t"], ["out"], name="last")
        declared = helper.make_tensor_value_info("out", 1, dims)
        branches.append(helper.make_graph([inner, last], "body", [], [declared], [weight]))
    choice = condition.array if isinstance(condition, Constant) else condition
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y0"], name="n", then_branch=branches[0], else_branch=branches[1])],
        "g",
        [helper.make_tensor_value_info("x", 1, x.shape)],
        [helper.make_tensor_value_info("y0", 1, x.shape)],
    )
    feeds = {"x": x}
    if isinstance(condition, Constant):
        graph.initializer.append(onnx.numpy_helper.from_array(choice, "c"))
    else:
        graph.input.append(helper.make_tensor_value_info("c", 9, choice.shape))
        feeds["c"] = choice
    version = draw(st.sampled_from([11, 13, 17, 21]))
    return Instance(helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=9), feeds)


def _if_computed(draw: DrawFn) -> Instance:
    return _if(draw, np.array(draw(st.booleans())), shapes=((2, 3), (2, 3)))


@case("if-constant", _if_computed)
def _(draw: DrawFn) -> Instance:
    dims = shape(draw)
    return _if(draw, Constant(np.array(draw(st.booleans()))), shapes=(dims, dims))


def _guarding(draw: DrawFn) -> Instance:
    """Branches of different shapes, or one that fails for numbers or sizes for which the other is taken."""
    if draw(st.booleans()):
        return _if(draw, np.array(True), shapes=((2, 3), (draw(st.integers(4, 5)), 3)))
    always = ("Gather", "Div", "Mod", "CumSum", "ReverseSequence", "TopK", "my.Picked")
    op, known = draw(st.sampled_from([*((op, True) for op in always), ("Gather", False), ("Add", False)]))
    kinds = {"x": np.array([6, 7]), "i": np.array([0, 1])}
    bodies = [
        helper.make_graph(
            [helper.make_node(kind.split(".")[-1], inputs, outputs, domain="my" if "." in kind else "")],
            "b",
            [],
            [helper.make_tensor_value_info("t", 7, [2])],
        )
        for kind, inputs, outputs in (("Neg", ["i"], ["t"]), (op, ["x", "i"], ["t", "p"] if op == "TopK" else ["t"]))
    ]
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y0"], name="n", then_branch=bodies[0], else_branch=bodies[1])],
        "g",
        [
            helper.make_tensor_value_info("x", 7, [2 if known else "any"]),
            helper.make_tensor_value_info("i", 7, [2]),
            helper.make_tensor_value_info("c", 9, []),
        ],
        [helper.make_tensor_value_info("y0", 7, [2])],
        [] if known else [onnx.numpy_helper.from_array(kinds["i"], "i")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    gather = helper.make_node("Gather", ["x", "i"], ["t"])
    picked = helper.make_function("my", "Picked", ["x", "i"], ["t"], [gather], opsets[:1])
    model = helper.make_model(graph, opset_imports=opsets, functions=[picked], ir_version=9)
    return Instance(model, {**kinds, "c": np.array(True)})


@case("if-where", _guarding)
def _(draw: DrawFn) -> Instance:
    dims = shape(draw)
    instance = _if(draw, np.array(draw(st.booleans())), shapes=(dims, dims))
    then = instance.model.graph.node[0].attribute[0].g
    if draw(st.booleans()):  # exporters leave the shape of a branch's result to inference
        then.output[0].type.tensor_type.ClearField("shape")
    if draw(st.booleans()):  # an If in a branch
        inner = instance.model.graph.node[0]
        nested = helper.make_node("If", ["c"], ["u"], name="nested")
        nested.attribute.extend(inner.attribute)
        result = helper.make_node("Neg", ["u"], ["v"], name="neg")
        declared = helper.make_tensor_value_info("v", 1, dims)
        then.CopyFrom(helper.make_graph([nested, result], "outer", [], [declared]))
    return instance


@case("fold", _relu)
def _(draw: DrawFn) -> Instance:
    x = anything(draw, shape(draw))
    instance = node("Shape", x, opset=opset(draw))
    return Instance(instance.model, instance.feeds, known={"y0": np.array(x.shape)})


@case("dense-constant", _relu)
def _(draw: DrawFn) -> Instance:
    rows, columns = shape(draw, 2, 2)
    dense = floats(draw, (rows, columns), edges=(0.0,))
    instance = node("MatMul", floats(draw, (3, rows)), Constant(dense), opset=opset(draw, 11, 13, 17))
    places = np.argwhere(dense != 0)
    values = onnx.numpy_helper.from_array(dense[dense != 0], "x1")
    flat = places if draw(st.booleans()) else places @ [columns, 1]
    indices = onnx.numpy_helper.from_array(np.ascontiguousarray(flat).astype(np.int64), "x1_indices")
    del instance.model.graph.initializer[:]
    instance.model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [rows, columns]))
    return instance
