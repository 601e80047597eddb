"""ONNX models made for measuring: chains of any length, transformer layers, one with gigabytes of weights."""

from pathlib import Path
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

_OPSET = [helper.make_opsetid("", 17)]
#: Elementwise ops that any chain may repeat.
_PLAIN = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Exp", "Floor", "Ceil", "Round", "Sign", "HardSwish", "Softplus")
_WIDTH = 16
_TOKENS = 4


def long_chain(path: Path, nodes: int, bad: tuple[str, ...] = ("Asinh", "Cosh", "Atan", "Erf")) -> None:
    """A chain of elementwise ops, shapes and attributes alike within an op but for LeakyRelu's slope.

    Each op of `bad` occurs once; about sixty variants for a model of any length.
    """
    chain: list[NodeProto] = []
    places = {nodes * (index + 1) // (len(bad) + 1): op for index, op in enumerate(bad)}
    for index in range(nodes):
        wires: dict[str, Any] = {"inputs": [f"t{index}"], "outputs": [f"t{index + 1}"], "name": f"n{index}"}
        choice = (index * 7 + index // 60) % 60
        if index in places:
            chain.append(helper.make_node(places[index], **wires))
        elif choice < len(_PLAIN):
            chain.append(helper.make_node(_PLAIN[choice], **wires))
        else:
            chain.append(helper.make_node("LeakyRelu", alpha=0.01 * choice, **wires))
    _save(path, chain, ("t0", [1, _WIDTH]), (f"t{nodes}", [1, _WIDTH]), [])


def transformer(path: Path, layers: int) -> None:
    """Identical layers of one-headed attention and a feed-forward with GELU, both with residuals; own weights each."""
    chance = np.random.default_rng(layers)
    nodes: list[NodeProto] = []
    weights: list[TensorProto] = []

    def weight(name: str, *shape: int) -> str:
        weights.append(numpy_helper.from_array(chance.normal(size=shape, scale=0.1).astype(np.float32), name))
        return name

    def add(op: str, name: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, list(inputs), [f"{name}.out"], name=name, **attributes))
        return f"{name}.out"

    for name, value in {"root2": 2**0.5, "one": 1.0, "half": 0.5, "scale": _WIDTH**-0.5}.items():
        weights.append(numpy_helper.from_array(np.array(value, dtype=np.float32), name))
    stream = "tokens"
    for layer in range(layers):
        at = f"layer{layer}."
        gain, shift = weight(f"{at}g1", _WIDTH), weight(f"{at}b1", _WIDTH)
        normed = add("LayerNormalization", f"{at}norm1", stream, gain, shift)
        q, k, v = (
            add("Add", f"{at}{part}.bias", weight(f"{at}{part}.b", _WIDTH),
                add("MatMul", f"{at}{part}", normed, weight(f"{at}{part}.w", _WIDTH, _WIDTH)))
            for part in "qkv"
        )  # fmt: skip
        turned = add("Transpose", f"{at}turn", k, perm=[0, 2, 1])
        scores = add("Mul", f"{at}scaled", add("MatMul", f"{at}scores", q, turned), "scale")
        mixed = add("MatMul", f"{at}mix", add("Softmax", f"{at}softmax", scores, axis=-1), v)
        attended = add("MatMul", f"{at}out", mixed, weight(f"{at}out.w", _WIDTH, _WIDTH))
        stream = add("Add", f"{at}residual1", stream, attended)
        gain, shift = weight(f"{at}g2", _WIDTH), weight(f"{at}b2", _WIDTH)
        normed = add("LayerNormalization", f"{at}norm2", stream, gain, shift)
        wide = add("MatMul", f"{at}up", normed, weight(f"{at}up.w", _WIDTH, 4 * _WIDTH))
        erf = add("Erf", f"{at}erf", add("Div", f"{at}div", wide, "root2"))
        gelu = add("Mul", f"{at}gelu", wide, add("Mul", f"{at}halved", add("Add", f"{at}plus1", erf, "one"), "half"))
        narrow = add("MatMul", f"{at}down", gelu, weight(f"{at}down.w", 4 * _WIDTH, _WIDTH))
        stream = add("Add", f"{at}residual2", stream, narrow)
    _save(path, nodes, ("tokens", [1, _TOKENS, _WIDTH]), (stream, [1, _TOKENS, _WIDTH]), weights)


def gigabytes(path: Path, layers: int = 250, width: int = 1620) -> int:
    """A chain of MatMul and Relu whose weights lie beside it in a sparse file; returns their size in bytes.

    The file takes no room on disk and reads as zeros. A weight is 10.5 MB, 250 of them are 2.6 GB.
    """
    data = path.with_suffix(".data")
    each = width * width * 4
    nodes: list[NodeProto] = []
    weights: list[TensorProto] = []
    for layer in range(layers):
        tensor = TensorProto(name=f"w{layer}", dims=[width, width], data_type=TensorProto.FLOAT)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", data.name), ("offset", layer * each), ("length", each)):
            tensor.external_data.add(key=key, value=str(value))
        weights.append(tensor)
        before, between, after = (f"t{2 * layer + step}" for step in range(3))
        nodes.append(helper.make_node("MatMul", [before, tensor.name], [between], f"matmul{layer}"))
        nodes.append(helper.make_node("Relu", [between], [after], f"relu{layer}"))
    with data.open("wb") as file:
        file.truncate(layers * each)
    _save(path, nodes, ("t0", [1, width]), (f"t{2 * layers}", [1, width]), weights)
    return layers * each


def _save(
    path: Path,
    nodes: list[NodeProto],
    entering: tuple[str, list[int]],
    leaving: tuple[str, list[int]],
    weights: list[TensorProto],
) -> None:
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)] for name, shape in (entering, leaving)
    )
    graph = helper.make_graph(nodes, "measured", inputs, outputs, initializer=weights)
    path.write_bytes(helper.make_model(graph, opset_imports=_OPSET, ir_version=8).SerializeToString())
