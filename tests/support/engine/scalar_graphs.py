"""Random models in which scalars, flags and integers run beside tensors, so that every cut meets some of them."""

from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

#: The op that a compiler of the tests refuses.
BAD = "Atan"


@st.composite
def scalar_graphs(draw: st.DrawFn, *, name_length: int = 1) -> onnx.ModelProto:
    """Up to a dozen nodes, exactly one of them `BAD`; the tensors' names have `name_length` letters or more."""
    count = draw(st.integers(3, 10))
    bad = draw(st.integers(0, count - 1))
    kinds = {"x": "tensor"}
    nodes: list[onnx.NodeProto] = []
    numbers = iter(range(10_000))

    def name(word: str) -> str:
        return (word * name_length)[:name_length] + f"_{next(numbers)}"

    def made(kind: str) -> list[str]:
        return [it for it, its in kinds.items() if its == kind]

    def node(op: str, inputs: list[str], kind: str, **attributes: Any) -> str:
        output = name(op.lower())
        nodes.append(helper.make_node(op, inputs, [output], name=f"{op}_{next(numbers)}", **attributes))
        kinds[output] = kind
        return output

    for number in range(count):
        tensor = draw(st.sampled_from(made("tensor")))
        if number == bad:
            of = draw(st.sampled_from(made("tensor") + made("scalar")))
            node(BAD, [of], kinds[of])
            continue
        choices = ["ReduceMax", "Neg"]
        choices += ["Mul", "Greater", "IsNaN", "Cast"] * bool(made("scalar")) + ["Where", "Not"] * bool(made("flag"))
        choices += ["FromInt"] * bool(made("integer"))
        op = draw(st.sampled_from(choices))
        scalar = draw(st.sampled_from(made("scalar"))) if made("scalar") else ""
        flag = draw(st.sampled_from(made("flag"))) if made("flag") else ""
        if op == "ReduceMax":
            node(op, [tensor], "scalar", keepdims=0)
        elif op == "Neg":
            node(op, [tensor], "tensor")
        elif op == "Mul":
            node(op, [tensor, scalar], "tensor")
        elif op == "Greater":
            node(op, [scalar, "half"], "flag")
        elif op == "IsNaN":
            node(op, [scalar], "flag")
        elif op == "Cast":
            node(op, [scalar], "integer", to=TensorProto.INT64)
        elif op == "FromInt":
            node("Cast", [draw(st.sampled_from(made("integer")))], "scalar", to=TensorProto.FLOAT)
        elif op == "Not":
            node(op, [flag], "flag")
        else:
            node(op, [flag, tensor, "half"], "tensor")
    types = {
        "tensor": (TensorProto.FLOAT, [2, 3]),
        "scalar": (TensorProto.FLOAT, []),
        "flag": (TensorProto.BOOL, []),
        "integer": (TensorProto.INT64, []),
    }
    read = {it for one in nodes for it in one.input}
    unread = [it for it in kinds if it not in read and it != "x"]
    # a model's own boundary is one that every target takes
    ends = []
    for it in unread:
        if kinds[it] in ("flag", "integer"):
            nodes.append(helper.make_node("Cast", [it], [f"f{it}"], name=f"end_cast_{it}", to=TensorProto.FLOAT))
            it = f"f{it}"
        if kinds.get(it, "scalar") != "tensor":
            nodes.append(helper.make_node("Reshape", [it, "one"], [f"r{it}"], name=f"end_{it}"))
            ends.append((f"r{it}", [1]))
        else:
            ends.append((it, [2, 3]))
    short = {old: f"y{number}" for number, (old, _) in enumerate(ends)}
    for one in nodes:
        one.output[:] = [short.get(it, it) for it in one.output]
    values = [
        helper.make_tensor_value_info(it, *types[kind]) for it, kind in kinds.items() if it != "x" and it not in short
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info(short[old], TensorProto.FLOAT, dims) for old, dims in ends],
        [
            numpy_helper.from_array(np.array(0.5, np.float32), "half"),
            numpy_helper.from_array(np.array([1], np.int64), "one"),
        ],
        value_info=values,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
