"""Small nets in which known nodes do not bear int8 or float16, and samples for them."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

#: Channels and size of the images.
CHANNELS, SIZE = 4, 8


class Net:
    """A chain of nodes over an image, to which traps are added; it knows which nodes have to be kept."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._stored: list[onnx.TensorProto] = []
        self._last = "x"
        self.planted: list[str] = []

    @classmethod
    def random(cls, seed: int) -> "Net":
        """Layers that bear int8, with one or two regions that do not, of two to four nodes, and decoys."""
        chance = Random(seed)
        net = cls(seed)
        net.convolution()
        layers = [chance.choice(("plain", "decoy")) for _ in range(chance.randint(1, 4))]
        for _ in range(chance.randint(1, 2)):
            layers.insert(chance.randint(0, len(layers)), "trap")
        for layer in layers:
            if layer == "trap":
                net.scaled(*chance.choice(((), ("Relu",), ("Add",), ("Relu", "Add"))))
            elif layer == "decoy":
                net.scaled("Relu", by=chance.choice((1.5, 2.0, 3.0)), trap=False)
            net.convolution()
            net.add("Relu")
        net.convolution()
        return net

    def add(self, op: str, *inputs: str, **attributes: int | Sequence[int]) -> str:
        """Append a node that reads the last tensor; its name."""
        name = f"{op}_{len(self._nodes)}"
        made = f"t{len(self._nodes)}"
        self._nodes.append(helper.make_node(op, [self._last, *inputs], [made], name=name, **attributes))  # type: ignore[arg-type] # onnx types only its own keywords
        self._last = made
        return name

    def store(self, value: np.ndarray) -> str:
        """Add a weight."""
        name = f"w{len(self._stored)}"
        self._stored.append(numpy_helper.from_array(value.astype(np.float32), name))
        return name

    def convolution(self) -> None:
        """A convolution and a Relu, which bear int8."""
        weight = self._random.standard_normal((CHANNELS, CHANNELS, 3, 3)) / (9 * CHANNELS) ** 0.5
        self.add("Conv", self.store(weight), kernel_shape=[3, 3], pads=[1] * 4)

    def scaled(self, *between: str, by: float = 3000.0, trap: bool = True) -> None:
        """One channel is scaled up and, behind the nodes `between`, down again: all others are lost in int8.

        A large tensor has one scale for all channels wherever a low node reads or makes it. onnxruntime's quantiser
        leaves a Relu alone whose input is not quantised.
        """
        scale = np.ones((1, CHANNELS, 1, 1))
        scale[0, int(self._random.integers(CHANNELS))] = by
        names = [self.add("Mul", self.store(scale))]
        for op in between:
            names.append(self.add(op, *([self.store(np.array(0.01))] if op == "Add" else [])))
        names.append(self.add("Mul", self.store(1 / scale)))
        self.planted += [name for name in names if not name.startswith("Relu")] if trap else []

    def overflow(self, by: float = 1e4) -> None:
        """Squares that float16 does not hold, and a product with what makes them small again."""
        self.add("Mul", self.store(np.array(by)))
        self.planted += [self.add("Pow", self.store(np.array(2.0))), self.add("Mul", self.store(np.array(by**-2)))]

    def variance(self, by: float = 2000.0) -> None:
        """Division by the root of a variance that float16 does not hold, nor the squares before."""
        self.add("Mul", self.store(np.array(by)))
        large = self._last
        self.add("ReduceMean", axes=[1, 2, 3], keepdims=1)
        self.add("Sub", large)
        centred = self._last
        self.planted += [
            self.add("Mul", centred),
            self.add("ReduceMean", axes=[1, 2, 3], keepdims=1),
            self.add("Sqrt"),
        ]
        self.add("Reciprocal")
        self.add("Mul", centred)

    def write(self, folder: Path, samples: int = 2) -> Path:
        """The model's file, with its samples in `folder/samples`."""
        shape = [1, CHANNELS, SIZE, SIZE]
        graph = helper.make_graph(
            self._nodes,
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(self._last, TensorProto.FLOAT, shape)],
            self._stored,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.checker.check_model(model)
        folder.mkdir(exist_ok=True)
        onnx.save(model, folder / "net.onnx")
        (folder / "samples").mkdir(exist_ok=True)
        for number in range(samples):
            np.savez(folder / "samples" / f"{number}.npz", x=self._random.standard_normal(shape).astype(np.float32))
        return folder / "net.onnx"


def planted_pair(folder: Path) -> Path:
    """Nine nodes of which the first and the last of a scaled region have to be kept together."""
    net = Net(0)
    net.convolution()
    net.add("Relu")
    net.convolution()
    net.scaled("Relu")
    net.convolution()
    net.add("Relu")
    net.convolution()
    return net.write(folder)


def scaled_channel(folder: Path) -> Path:
    """Seventeen nodes: a convolutional net in which one channel goes times 200 through a Relu and down again."""
    random = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    stored: list[onnx.TensorProto] = []

    def store(name: str, value: np.ndarray) -> str:
        stored.append(numpy_helper.from_array(value.astype(np.float32), name))
        return name

    def weight(name: str, *shape: int, scale: float = 0.0) -> str:
        return store(name, random.standard_normal(shape) * (scale or np.prod(shape[1:]) ** -0.5))

    def add(op: str, inputs: Sequence[str], made: str, **attributes: int | Sequence[int]) -> str:
        nodes.append(helper.make_node(op, inputs, [made], name=f"{op}_{made}", **attributes))  # type: ignore[arg-type] # onnx types only its own keywords
        return made

    last, channels = "x", 3
    for number, (wide, stride) in enumerate([(16, 2), (16, 1), (32, 2), (32, 1), (32, 1), (64, 2)]):
        inputs = [last, weight(f"w{number}", wide, channels, 3, 3), weight(f"b{number}", wide, scale=0.1)]
        form = {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [stride] * 2}
        last, channels = add("Conv", inputs, f"c{number}", **form), wide
        scale = np.ones((1, wide, 1, 1))
        scale[0, 5] = 200
        if number == 3:
            last = add("Mul", [last, store("s", scale)], "up")
        last = add("Relu", [last], f"r{number}")
        if number == 3:
            last = add("Mul", [last, store("si", 1 / scale)], "down")
    last = add("Flatten", [add("GlobalAveragePool", [last], "g")], "f")
    last = add("Gemm", [last, weight("fw", 10, 64), weight("fb", 10, scale=0.1)], "y", transB=1)
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 64, 64])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])
    graph = helper.make_graph(nodes, "net", [image], [result], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), folder / "net.onnx")
    (folder / "samples").mkdir()
    for number in range(4):
        np.savez(folder / "samples" / f"{number}.npz", x=random.standard_normal((1, 3, 64, 64)).astype(np.float32))
    return folder / "net.onnx"
