"""Random graphs with tensors of five to eight dimensions, between inputs and outputs of a few."""

from math import prod
from random import Random

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 18


class Graph:
    """A graph that grows by random nodes; `shapes` are those of its float tensors."""

    def __init__(self, random: Random, ops: tuple[str, ...]) -> None:
        self.random, self.ops = random, ops
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.stored: list[TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []

    def input(self, shape: tuple[int, ...]) -> str:
        """A new graph input."""
        name = f"input_{len(self.inputs)}"
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        self.shapes[name] = shape
        return name

    def constant(self, values: object, dtype: type = np.int64) -> str:
        """A new initializer."""
        name = f"stored_{len(self.stored)}"
        self.stored.append(numpy_helper.from_array(np.array(values, dtype), name))
        return name

    def node(self, op: str, inputs: list[str], shapes: list[tuple[int, ...]], **attributes: object) -> list[str]:
        """A new node whose outputs have these shapes."""
        number = len(self.nodes)
        names = [f"{op}_{number}_{place}" for place in range(len(shapes))]
        self.nodes.append(helper.make_node(op, inputs, names, name=f"{op}_{number}", **attributes))  # type: ignore[arg-type]
        self.shapes.update(zip(names, shapes, strict=True))
        return names

    def step(self) -> None:
        """One random node behind a random tensor."""
        name = self.random.choice(list(self.shapes)[-4:])
        getattr(self, f"_{self.random.choice(self.ops)}")(name, self.shapes[name])

    def _reshape(self, name: str, shape: tuple[int, ...]) -> None:
        rest, dims = prod(shape), []
        for _ in range(self.random.randint(3, 7)):
            size = self.random.choice([one for one in (1, 1, 2, 3, 4) if rest % one == 0])
            dims.append(size)
            rest //= size
        dims.insert(self.random.randint(0, len(dims)), rest)
        self.node("Reshape", [name, self.constant(dims)], [tuple(dims)])

    def _transpose(self, name: str, shape: tuple[int, ...]) -> None:
        perm = self.random.sample(range(len(shape)), len(shape))
        if not perm:
            return
        self.node("Transpose", [name], [tuple(shape[axis] for axis in perm)], perm=perm)

    def _unary(self, name: str, shape: tuple[int, ...]) -> None:
        self.node(self.random.choice(["Relu", "Neg", "Abs", "Identity"]), [name], [shape])

    def _binary(self, name: str, shape: tuple[int, ...]) -> None:
        axes = range(self.random.randint(0, len(shape)), len(shape))
        other = tuple(shape[axis] if self.random.random() < 0.6 else 1 for axis in axes)
        second = (
            self.constant(self.random_values(other), np.float32) if self.random.random() < 0.6 else self.part(other)
        )
        pair = [name, second] if self.random.random() < 0.7 else [second, name]
        self.node(self.random.choice(["Add", "Mul", "Max"]), pair, [shape])

    def _squeeze(self, name: str, shape: tuple[int, ...]) -> None:
        ones = [axis for axis, size in enumerate(shape) if size == 1]
        if ones and self.random.random() < 0.5:
            axes = self.random.sample(ones, self.random.randint(1, len(ones)))
            left = tuple(size for axis, size in enumerate(shape) if axis not in axes)
            self.node("Squeeze", [name, self.constant(axes)], [left])
        elif len(shape) < 8:
            axis = self.random.randint(0, len(shape))
            self.node("Unsqueeze", [name, self.constant([axis])], [(*shape[:axis], 1, *shape[axis:])])

    def _slice(self, name: str, shape: tuple[int, ...]) -> None:
        axes = self.random.sample(range(len(shape)), self.random.randint(1, len(shape))) if shape else []
        starts, ends, steps, left = [], [], [], list(shape)
        for axis in axes:
            step = self.random.choice([1, 1, 2, -1])
            start = self.random.randint(0, shape[axis] - 1)
            end = self.random.choice([shape[axis], 1 << 62]) if step > 0 else -(1 << 62)
            left[axis] = len(range(start, shape[axis], step) if step > 0 else range(start, -1, step))
            starts.append(start)
            ends.append(end)
            steps.append(step)
        if axes:
            limits = [self.constant(one) for one in (starts, ends, axes, steps)]
            self.node("Slice", [name, *limits], [tuple(left)])

    def _split(self, name: str, shape: tuple[int, ...]) -> None:
        axis = self.axis(shape)
        if axis is not None and shape[axis] > 1:
            first = self.random.randint(1, shape[axis] - 1)
            sizes = [first, shape[axis] - first]
            shapes = [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]
            self.node("Split", [name, self.constant(sizes)], shapes, axis=axis - len(shape))

    def _concat(self, name: str, shape: tuple[int, ...]) -> None:
        axis = self.axis(shape)
        if axis is not None and prod(shape) < 2000:
            joined = (*shape[:axis], 2 * shape[axis], *shape[axis + 1 :])
            other = self.constant(self.random_values(shape), np.float32) if self.random.random() < 0.5 else name
            self.node("Concat", [name, other], [joined], axis=axis)

    def _gather(self, name: str, shape: tuple[int, ...]) -> None:
        axis = self.axis(shape)
        if axis is None:
            return
        size = shape[axis]
        places: object = self.random.randint(-size, size - 1)
        form: tuple[int, ...] = ()
        if self.random.random() < 0.7:
            form = self.random.choice([(1,), (2,), (1, 2)])
            places = np.array([self.random.randint(-size, size - 1) for _ in range(prod(form))]).reshape(form)
        self.node("Gather", [name, self.constant(places)], [(*shape[:axis], *form, *shape[axis + 1 :])], axis=axis)

    def _reduce(self, name: str, shape: tuple[int, ...]) -> None:
        axes = self.random.sample(range(len(shape)), self.random.randint(1, len(shape))) if shape else []
        keep = self.random.random() < 0.5
        left = tuple(1 if axis in axes else size for axis, size in enumerate(shape) if keep or axis not in axes)
        if axes:
            op = self.random.choice(["ReduceMax", "ReduceMin", "ReduceSum", "ReduceMean"])
            self.node(op, [name, self.constant(axes)], [left], keepdims=int(keep))

    def _softmax(self, name: str, shape: tuple[int, ...]) -> None:
        axis = self.axis(shape)
        if axis is not None:
            self.node("Softmax", [name], [shape], axis=axis)

    def _expand(self, name: str, shape: tuple[int, ...]) -> None:
        wanted = tuple(2 if size == 1 and self.random.random() < 0.5 else size for size in shape)
        if prod(wanted) < 4000:
            self.node("Expand", [name, self.constant(wanted)], [wanted])

    def _tile(self, name: str, shape: tuple[int, ...]) -> None:
        counts = [self.random.choice([1, 1, 1, 2]) for _ in shape]
        grown = tuple(size * count for size, count in zip(shape, counts, strict=True))
        if shape and prod(grown) < 4000:
            self.node("Tile", [name, self.constant(counts)], [grown])

    def _matmul(self, name: str, shape: tuple[int, ...]) -> None:
        if len(shape) < 2:
            return
        batch = tuple(size if self.random.random() < 0.6 else 1 for size in shape[:-2])
        batch = batch[self.random.randint(0, len(batch)) :]
        weight = (*batch, shape[-1], self.random.randint(1, 3))
        second = self.constant(self.random_values(weight), np.float32)
        self.node("MatMul", [name, second], [(*shape[:-1], weight[-1])])

    def _layer_norm(self, name: str, shape: tuple[int, ...]) -> None:
        axis = self.axis(shape)
        if axis is not None:
            scale = self.constant(self.random_values(shape[axis:]), np.float32)
            self.node("LayerNormalization", [name, scale], [shape], axis=axis)

    def _pad(self, name: str, shape: tuple[int, ...]) -> None:
        before = [self.random.choice([0, 0, 0, 1, -1]) if size > 1 else self.random.choice([0, 0, 1]) for size in shape]
        after = [self.random.choice([0, 0, 0, 1]) for _ in shape]
        grown = tuple(size + one + other for size, one, other in zip(shape, before, after, strict=True))
        if not shape or prod(grown) >= 4000:
            return
        inputs = [name, self.constant([*before, *after])]
        if self.random.random() < 0.5:
            inputs.append(self.constant(2, np.float32))
        if self.random.random() < 0.3:
            axes = self.random.sample(range(len(shape)), len(shape))
            inputs[1] = self.constant([*(before[axis] for axis in axes), *(after[axis] for axis in axes)])
            inputs = [*inputs, *[""] * (3 - len(inputs)), self.constant([axis - len(shape) for axis in axes])]
        self.node("Pad", inputs, [grown])

    def _elements(self, name: str, shape: tuple[int, ...]) -> None:
        axis = self.axis(shape)
        if axis is not None:
            number = self.random.randint(1, 3)
            chosen = (*shape[:axis], number, *shape[axis + 1 :])
            places = [self.random.randint(-shape[axis], shape[axis] - 1) for _ in range(prod(chosen))]
            self.node("GatherElements", [name, self.constant(np.array(places).reshape(chosen))], [chosen], axis=axis)

    def _gather_nd(self, name: str, shape: tuple[int, ...]) -> None:
        if len(shape) < 2:
            return
        batch = self.random.randint(0, 1)
        depth = self.random.randint(1, len(shape) - batch)
        form = (*shape[:batch], *self.random.choice([(2,), (1, 2)]), depth)
        places = np.array([self.random.randrange(shape[batch + at % depth]) for at in range(prod(form))])
        left = (*form[:-1], *shape[batch + depth :])
        self.node("GatherND", [name, self.constant(places.reshape(form))], [left], batch_dims=batch)

    def _scatter_nd(self, name: str, shape: tuple[int, ...]) -> None:
        if shape:
            depth = self.random.randint(1, len(shape))
            place = self.constant([[self.random.randrange(size) for size in shape[:depth]]])
            self.node("ScatterND", [name, place, self.part((1, *shape[depth:]))], [shape])

    def _triangle(self, name: str, shape: tuple[int, ...]) -> None:
        if len(shape) >= 2:
            self.node(
                "Trilu", [name, self.constant(self.random.randint(-2, 2))], [shape], upper=self.random.randint(0, 1)
            )

    def _shape(self, name: str, shape: tuple[int, ...]) -> None:
        """Another tensor in the shape of this one, as traced exports write it."""
        (dims,) = self.node("Shape", [name], [(len(shape),)])
        del self.shapes[dims]
        self.node("Expand", [self.part((1,) * len(shape)), dims], [shape])

    def _scatter(self, name: str, shape: tuple[int, ...]) -> None:
        axis = self.axis(shape)
        if axis is not None:
            chosen = (*shape[:axis], 1, *shape[axis + 1 :])
            places = self.constant(np.full(chosen, self.random.randrange(shape[axis]), np.int64))
            self.node("ScatterElements", [name, places, self.part(chosen)], [shape], axis=axis, reduction="add")

    def _cumulative(self, name: str, shape: tuple[int, ...]) -> None:
        axis = self.axis(shape)
        if axis is not None:
            place = self.constant(axis - self.random.choice([0, len(shape)]))
            flags = {"exclusive": self.random.randint(0, 1), "reverse": self.random.randint(0, 1)}
            self.node("CumSum", [name, place], [shape], **flags)

    def _channels(self, name: str, shape: tuple[int, ...]) -> None:
        if len(shape) >= 3:
            rows = [self.constant(np.arange(shape[1]) + 1 + row, np.float32) for row in range(4)]
            kinds = ["BatchNormalization", "InstanceNormalization", "GlobalMaxPool"]
            kind = self.random.choice(kinds if len(shape) <= 5 else kinds[:2])  # as many as onnxruntime pools
            left = (*shape[:2], *(1 for _ in shape[2:])) if kind == "GlobalMaxPool" else shape
            needed = {"BatchNormalization": 4, "InstanceNormalization": 2, "GlobalMaxPool": 0}[kind]
            self.node(kind, [name, *rows[:needed]], [left])

    def axis(self, shape: tuple[int, ...]) -> int | None:
        """A random axis, if there is one."""
        return self.random.randrange(len(shape)) if shape else None

    def random_values(self, shape: tuple[int, ...]) -> np.ndarray:
        """Small whole numbers, so that sums have one value in any order."""
        return np.array([self.random.randint(-3, 3) for _ in range(prod(shape))], np.float32).reshape(shape)

    def part(self, shape: tuple[int, ...]) -> str:
        """A computed tensor of this shape."""
        return self.node("Relu", [self.input(shape)], [shape])[0]

    def model(self) -> onnx.ModelProto:
        """The model; each tensor that no node reads is an output, behind a Reshape to few dimensions."""
        read = {name for node in self.nodes for name in node.input}
        ends = [name for name in self.shapes if name not in read and name not in {it.name for it in self.inputs}]
        outputs = []
        for number, name in enumerate(ends):
            flat = helper.make_node(
                "Reshape", [name, self.constant([prod(self.shapes[name])])], [f"output_{number}"], name=f"end_{number}"
            )
            self.nodes.append(flat)
            shape = (prod(self.shapes[name]),)
            outputs.append(helper.make_tensor_value_info(f"output_{number}", TensorProto.FLOAT, shape))
        graph = helper.make_graph(self.nodes, "high", self.inputs, outputs, initializer=self.stored)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


MOVING = (
    "reshape",
    "transpose",
    "unary",
    "binary",
    "squeeze",
    "slice",
    "split",
    "concat",
    "gather",
    "expand",
    "tile",
    "pad",
    "elements",
    "gather_nd",
    "triangle",
    "shape",
)
COMPUTING = ("reduce", "softmax", "matmul", "layer_norm", "scatter", "scatter_nd", "cumulative", "channels")


def high_rank_model(seed: int, ops: tuple[str, ...] = MOVING + COMPUTING) -> onnx.ModelProto:
    """A random model with some tensors of high rank."""
    random = Random(seed)
    graph = Graph(random, ops)
    name = graph.input(tuple(random.choice([1, 2, 3, 4, 6]) for _ in range(random.randint(1, 4))))
    graph._reshape(name, graph.shapes[name])
    for _ in range(random.randint(2, 12)):
        graph.step()
    return graph.model()
