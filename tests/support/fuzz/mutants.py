"""Hostile models, by number: the same number is the same file on every machine.

Three kinds in turn: a field of the protobuf message gets a value that nobody meant, bits and bytes of the file change,
or the graph is put together in another way.
"""

import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from onnx import AttributeProto, TensorProto, helper, parser

from support import TESTS

#: Larger files would cost time and add nothing: they are more of the same.
_LARGEST = 20_000
KINDS = ("field", "bit", "structure")

_NUMBERS = (
    0,
    1,
    2,
    3,
    7,
    16,
    64,
    99,
    65536,
    1 << 31,
    (1 << 31) - 1,
    1 << 40,
    1 << 62,
    (1 << 63) - 1,
    -1,
    -2,
    -(1 << 31),
)
_FLOATS = (0.0, -1.0, 1e38, float("nan"), float("inf"))
_TEXTS = ("", "x", "y", "a", "ai.onnx", "\x1b[2J", "../up", "n" * 300, "é", "%s{}", "value", "then_branch")
_OPS = ("Relu", "Add", "Constant", "If", "Loop", "Scan", "Reshape", "Expand", "Tile", "ConstantOfShape", "Range",
        "Cast", "Einsum", "Shape", "Concat", "Split", "Identity", "Optional", "SequenceEmpty", "Where", "Unknown",
        "Gather", "Slice", "Resize", "Pad", "OneHot", "NonZero", "Upsample", "Conv", "LSTM")  # fmt: skip
#: Models that the repository has no file of: control flow in functions, and values that grow.
_WRITTEN = (
    """<ir_version: 9, opset_import: ["": 17, "f": 1]>
    g (float[2,3] x, bool c) => (float[2,3] y) <float[3] w = {1, 2, 3}> {
       k = Constant <value = float {2}> ()
       t = Mul (x, w)
       u = Mul (t, k)
       v = If (c) <then_branch = b1 () => (float[2,3] a) { a0 = Relu (u)  a = f.twice (a0) },
                   else_branch = b2 () => (float[2,3] b) { b = Neg (u) }>
       y = f.twice (v)
    }
    <domain: "f", opset_import: ["": 17, "f": 1]> twice (a) => (b) { t = f.once (a)  b = f.once (t) }
    <domain: "f", opset_import: ["": 17]> once (a) => (b) { b = Abs (a) }""",
    """<ir_version: 8, opset_import: ["": 17]>
    g (float[2,3] x) => (float[] y) <bool t = {1}, int64 n = {3}> {
       y = Loop (n, t, x) <body: graph = b (int64 i, bool c, float[] a) => (bool co, float[] ao) {
          co = Identity (c)
          ao = Concat <axis = 0> (a, a)
       }>
    }""",
    """<ir_version: 8, opset_import: ["": 17]>
    g (float[2,3] x) => (float[] y) <int64[2] s = {4, 3}, int64[1] e = {2}> {
       p = ConstantOfShape (s)
       q = Shape (x)
       r = Concat <axis = 0> (e, q)
       z = Expand (x, r)
       f = Tile (p, s)
       g0 = Range (e0, e1, e2)
       e0 = Constant <value_int = 0> ()
       e1 = Constant <value_int = 5> ()
       e2 = Constant <value_int = 1> ()
       h = ReduceSum <keepdims = 0> (f)
       i = Cast <to = 1> (g0)
       j = ReduceMax <keepdims = 0> (i)
       k = Add (h, j)
       m = Einsum <equation = "abc->ba"> (z)
       y = Add (m, k)
    }""",
)  # fmt: skip


def kind_of(number: int) -> str:
    """Which kind of mutation makes this mutant."""
    return KINDS[number % len(KINDS)]


def mutant(number: int) -> bytes:
    """The file of this number."""
    rng = random.Random(number)
    raw = rng.choice(_seeds())
    kind = kind_of(number)
    if kind == "bit":
        return _with_other_bytes(rng, raw)
    model = onnx.ModelProto.FromString(raw)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        try:
            _change_field(rng, model) if kind == "field" else rng.choice(_STRUCTURES)(rng, model)
        except (ValueError, TypeError, OverflowError):  # a value that protobuf itself refuses
            continue
    return model.SerializeToString()


@cache
def _seeds() -> tuple[bytes, ...]:
    files = [path.read_bytes() for path in sorted(TESTS.glob("models/*.onnx")) if path.stat().st_size < _LARGEST]
    return (*files, *(parser.parse_model(text).SerializeToString() for text in _WRITTEN))


def _with_other_bytes(rng: random.Random, raw: bytes) -> bytes:
    data = bytearray(raw)
    for _ in range(rng.choice((1, 1, 2, 8))):
        place = rng.randrange(len(data))
        choice = rng.random()
        if choice < 0.6:
            data[place] ^= 1 << rng.randrange(8)
        elif choice < 0.8:
            data[place] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif choice < 0.9:
            del data[place : place + rng.randrange(1, 9)]
        else:
            data[place:place] = rng.randbytes(rng.randrange(1, 9))
        if not data:
            break
    return bytes(data)


def _messages(message: Message) -> Iterator[Message]:
    yield message
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in value if field.is_repeated else [value]:
                yield from _messages(inner)


def _change_field(rng: random.Random, model: onnx.ModelProto) -> None:
    every = list(_messages(model))
    message = rng.choice(every)
    # mostly what is there, now and then what is not
    present: list[Any] = [field for field, _ in message.ListFields()]
    field: Any = rng.choice(present if present and rng.random() < 0.8 else list(message.DESCRIPTOR.fields))
    if field.is_repeated:
        _change_repeated(rng, getattr(message, field.name), field, every)
    elif rng.random() < 0.15:
        message.ClearField(field.name)
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        alike = [other for other in every if other.DESCRIPTOR is field.message_type and other is not message]
        if alike:
            copy = type(alike[0]).FromString(rng.choice(alike).SerializeToString())
            getattr(message, field.name).CopyFrom(copy)
    else:
        setattr(message, field.name, _scalar(rng, field, every))


def _change_repeated(rng: random.Random, values: object, field: FieldDescriptor, every: list[Message]) -> None:
    items = list(values)  # type: ignore[call-overload]
    scalar = field.type != FieldDescriptor.TYPE_MESSAGE
    if scalar and rng.random() < 0.5:
        new = _scalar(rng, field, every)
        if items and rng.random() < 0.7:
            items[rng.randrange(len(items))] = new
        else:
            items.append(new)
    elif items:
        place = rng.randrange(len(items))
        action = rng.random()
        if action < 0.4:
            del items[place]
        elif action < 0.8:
            items.insert(rng.randrange(len(items) + 1), items[place])
        else:
            rng.shuffle(items)
    if not scalar:
        items = [type(item).FromString(item.SerializeToString()) for item in items]
    del values[:]  # type: ignore[attr-defined]
    values.extend(items)  # type: ignore[attr-defined]


def _scalar(rng: random.Random, field: FieldDescriptor, every: list[Message]) -> object:
    if field.type == FieldDescriptor.TYPE_ENUM:
        assert field.enum_type is not None
        return rng.choice(field.enum_type.values).number
    if field.type == FieldDescriptor.TYPE_STRING:
        named = [message for message in every if "name" in message.DESCRIPTOR.fields_by_name]
        names = [str(message.name) for message in named]  # type: ignore[attr-defined]  # which these have
        return rng.choice(names if names and rng.random() < 0.6 else _TEXTS)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return rng.choice((b"", b"\xff\xfe", b"sum", b"\0" * 8, rng.randbytes(rng.randrange(20))))
    if field.cpp_type in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return rng.choice(_FLOATS)
    return rng.choice(_NUMBERS if rng.random() < 0.7 else range(-8, 30))


def _some_graph(rng: random.Random, model: onnx.ModelProto) -> onnx.GraphProto:
    graphs = [message for message in _messages(model) if isinstance(message, onnx.GraphProto)]
    return model.graph if rng.random() < 0.6 else rng.choice(graphs)


def _some_node(rng: random.Random, model: onnx.ModelProto) -> onnx.NodeProto:
    return rng.choice([it for it in _messages(model) if isinstance(it, onnx.NodeProto)] or [onnx.NodeProto()])


def _names(graph: onnx.GraphProto) -> list[str]:
    made = [name for node in graph.node for name in (*node.input, *node.output) if name]
    return [*made, *(value.name for value in graph.input), *(tensor.name for tensor in graph.initializer), "nowhere"]


def _rewire(rng: random.Random, model: onnx.ModelProto) -> None:
    node = _some_node(rng, model)
    slots = rng.choice((node.input, node.output))
    name = rng.choice([*_names(_some_graph(rng, model)), ""])
    if slots and rng.random() < 0.7:
        slots[rng.randrange(len(slots))] = name
    else:
        slots.append(name)


def _drop(rng: random.Random, model: onnx.ModelProto) -> None:
    graph = _some_graph(rng, model)
    values = rng.choice((graph.node, graph.input, graph.output, graph.initializer, graph.value_info))
    if values:
        del values[rng.randrange(len(values))]


def _other_op(rng: random.Random, model: onnx.ModelProto) -> None:
    node = _some_node(rng, model)
    node.op_type = rng.choice(_OPS)
    if rng.random() < 0.2:
        node.domain = rng.choice(("com.microsoft", "f", "acme", "ai.onnx.ml"))


def _other_attribute(rng: random.Random, model: onnx.ModelProto) -> None:
    mine, theirs = _some_node(rng, model), _some_node(rng, model)
    if theirs.attribute:
        copy = AttributeProto.FromString(rng.choice(theirs.attribute).SerializeToString())
        mine.attribute.append(copy)
    else:
        del mine.attribute[:]


def _into_a_branch(rng: random.Random, model: onnx.ModelProto) -> None:
    graph = _some_graph(rng, model)
    if not graph.node:
        return
    place = rng.randrange(len(graph.node))
    inner = onnx.NodeProto.FromString(graph.node[place].SerializeToString())
    outputs = [helper.make_empty_tensor_value_info(name) for name in inner.output]
    body = helper.make_graph([inner], "body", [], outputs)
    outer = [name if rng.random() < 0.2 else f"{name}_if" for name in inner.output]
    chosen = helper.make_node("If", [rng.choice(_names(graph))], outer, then_branch=body, else_branch=body)
    graph.node[place].CopyFrom(chosen)


def _into_a_loop(rng: random.Random, model: onnx.ModelProto) -> None:
    names = _names(model.graph)
    grown = rng.choice((helper.make_node("Concat", ["a", "a"], ["b"], axis=0), helper.make_node("Relu", ["a"], ["b"])))
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]), grown],
        "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []),
         helper.make_tensor_value_info("c", TensorProto.BOOL, []),
         helper.make_empty_tensor_value_info("a")],
        [helper.make_empty_tensor_value_info(name) for name in "db"],
    )  # fmt: skip
    endless = rng.random() < 0.1  # costs seconds each, and they are all alike
    trips = rng.choice((60, 1 << 40)) if endless else rng.choice((0, 1, 2, 3))
    model.graph.initializer.append(helper.make_tensor("fuzz_trips", TensorProto.INT64, [], [trips]))
    model.graph.initializer.append(helper.make_tensor("fuzz_go", TensorProto.BOOL, [], [True]))
    inputs = ["" if endless and rng.random() < 0.5 else "fuzz_trips", "fuzz_go", rng.choice(names)]
    model.graph.node.append(helper.make_node("Loop", inputs, ["fuzz_looped"], body=body))
    model.graph.output.append(helper.make_empty_tensor_value_info("fuzz_looped"))


def _into_functions(rng: random.Random, model: onnx.ModelProto) -> None:
    imports = [*model.opset_import, helper.make_opsetid("fuzz", 1)]
    depth, calls = rng.choice(((2, 2), (10, 2), (16, 2), (40, 1), (5, 10)))
    for level in range(depth):
        below = f"F{level - 1}" if level else "Relu"
        tensors = ["a", *(f"t{place}" for place in range(calls - 1)), "b"]
        domain = "fuzz" if level else ""
        nodes = [helper.make_node(below, [tensors[i]], [tensors[i + 1]], domain=domain) for i in range(calls)]
        model.functions.append(helper.make_function("fuzz", f"F{level}", ["a"], ["b"], nodes, imports))
    if rng.random() < 0.1:
        model.functions[0].node.append(helper.make_node(f"F{depth - 1}", ["a"], ["again"], domain="fuzz"))
    model.opset_import.append(helper.make_opsetid("fuzz", 1))
    node = _some_node(rng, model)
    node.op_type, node.domain = f"F{depth - 1}", "fuzz"
    del node.attribute[:]


def _huge(rng: random.Random, model: onnx.ModelProto) -> None:
    """A small constant that says how large something is."""
    size = rng.choice((1 << 20, 1 << 28, 1 << 31, 1 << 33, 1 << 40))
    dims = [size] if rng.random() < 0.5 else [1 << 16, 1 << 16, 4]
    model.graph.initializer.append(helper.make_tensor("fuzz_size", TensorProto.INT64, [len(dims)], dims))
    op = rng.choice(("ConstantOfShape", "Expand", "Tile", "Reshape", "RandomNormal", "EyeLike"))
    names = _names(model.graph)
    node = helper.make_node(
        op, ["fuzz_size"] if op == "ConstantOfShape" else [rng.choice(names), "fuzz_size"], ["fuzz_big"]
    )
    if op == "RandomNormal":
        node = helper.make_node(op, [], ["fuzz_big"], shape=dims)
    model.graph.node.append(node)
    model.graph.node.append(helper.make_node("ReduceSum", ["fuzz_big"], ["fuzz_sum"]))
    model.graph.output.append(helper.make_empty_tensor_value_info("fuzz_sum"))


def _other_input(rng: random.Random, model: onnx.ModelProto) -> None:
    if model.graph.input:
        dims = [rng.choice((0, 1, 3, "n", None, 1 << 12, 1 << 20, 1 << 40)) for _ in range(rng.randrange(5))]
        dtype = rng.choice(TensorProto.DataType.values())
        name = rng.choice(model.graph.input).name
        model.graph.input[0].CopyFrom(helper.make_tensor_value_info(name, dtype, dims))


def _rename(rng: random.Random, model: onnx.ModelProto) -> None:
    """One name becomes another everywhere in a graph: shadows, doubles, cycles."""
    graph = _some_graph(rng, model)
    names = _names(_some_graph(rng, model))
    old, new = rng.choice(_names(graph)), rng.choice(names)
    for node in graph.node:
        for slots in (node.input, node.output):
            for place, name in enumerate(slots):
                if name == old:
                    slots[place] = new


_STRUCTURES: tuple[Callable[[random.Random, onnx.ModelProto], None], ...] = (
    _rewire, _rewire, _drop, _other_op, _other_attribute, _into_a_branch, _into_a_loop, _into_functions, _huge,
    _other_input, _rename,
)  # fmt: skip
