"""Checks that the entries of the user's configuration name parts of the whole model."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from difflib import get_close_matches

import onnx
import onnx.defs

from onnxbisect.errors import OptionError
from onnxbisect_backends.vendors.pulsar2.schema import BuildConfig, CompilerConfig, LayerConfig

#: The name for all inputs or outputs of the model, or for the whole graph.
EVERY = "DEFAULT"

#: Part of the names of tensors that pulsar2's front end creates (`op_37:AxQuantizedConv_out`).
_OF_FRONT_END = ":Ax"


@dataclass(frozen=True, kw_only=True)
class Ends:
    """The names of a model's inputs and outputs."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @classmethod
    def of(cls, graph: onnx.GraphProto) -> "Ends":
        """The names for a graph whose initializers are not among its inputs."""
        return cls(
            inputs=tuple(value.name for value in graph.input), outputs=tuple(value.name for value in graph.output)
        )


def demand_named(build: BuildConfig, graph: onnx.GraphProto, advertised: Collection[str]) -> None:
    """Raise OptionError, with the nearest name, for an entry about a part that the model lacks.

    `advertised` are op types of the vendor's list, which includes some of pulsar2's own. An op type that the model
    lacks is no error, because one configuration serves many models.
    """
    ends = Ends.of(graph)
    nodes = [node.name for node in graph.node]
    made = [name for node in graph.node for name in node.output if name]
    stored = [tensor.name for tensor in graph.initializer]
    there = {
        "input": [EVERY, *ends.inputs],
        "output": [EVERY, *ends.outputs],
        "node": nodes,
        "constant": [*stored, *(name for node in graph.node if node.op_type == "Constant" for name in node.output)],
        "tensor": [EVERY, *ends.inputs, *stored, *made],
    }
    known = {kind: frozenset(names) for kind, names in there.items()}
    for place, kind, name in _named(build):
        if name not in known[kind]:
            raise OptionError(f"{place} names '{name}', which is no {kind} of the model{_nearest(name, there[kind])}")
    for name in _op_types(build):
        if not onnx.defs.has(name) and name not in advertised:
            ops = sorted({*advertised, *(node.op_type for node in graph.node)})
            raise OptionError(f"quant.layer_configs names '{name}', which is no op type{_nearest(name, ops)}")


def named_parts(build: BuildConfig, graph: onnx.GraphProto) -> frozenset[str]:
    """Nodes and tensors with entries of their own; pieces with one share no verdicts with pieces of equal structure."""
    ends = Ends.of(graph)
    found: set[str] = set()
    for _, kind, name in _named(build):
        every = {"input": ends.inputs, "output": ends.outputs}.get(kind, ())
        found |= set(every) if name == EVERY else {name}
    return frozenset(found)


def _named(build: BuildConfig) -> Iterator[tuple[str, str, str]]:
    """For each name in the configuration: the field, the kind of thing that it names, and the name."""
    quant = build.quant
    for name in build.shapes:
        yield "input_shapes", "input", name
    for input_config in quant.input_configs:
        yield "quant.input_configs", "input", input_config.tensor_name
    for processor in build.input_processors:
        yield "input_processors", "input", processor.tensor_name
    for output in build.output_processors:
        yield "output_processors", "output", output.tensor_name
    for constant in build.const_processors:
        yield "const_processors", "constant", constant.name
    for place in ("op_processors", "quant_op_processors"):
        for op in getattr(build, place):
            yield place, "node", op.op_name
    for layer in quant.layer_configs:
        for name in (layer.layer_name, *layer.layer_names):
            if name:
                yield "quant.layer_configs", "node", name
    ranges: list[tuple[str, LayerConfig | CompilerConfig]] = [
        *(("quant.layer_configs", it) for it in quant.layer_configs),
        *(("compiler.sub_configs", it) for it in build.compiler.sub_configs),
    ]
    for place, it in ranges:
        for name in (*it.start_tensor_names, *it.end_tensor_names):
            if _OF_FRONT_END not in name:
                yield place, "tensor", name


def _op_types(build: BuildConfig) -> Iterator[str]:
    for layer in build.quant.layer_configs:
        yield from filter(None, (layer.op_type, *layer.op_types))


def _nearest(name: str, names: Collection[str]) -> str:
    """The end of the sentence, with the nearest name."""
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    if near:
        return f"; did you mean '{near[0]}'?"
    few = ", ".join(f"'{it}'" for it in list(names)[:8])
    return f"; it has {few}{' and more' if len(names) > 8 else ''}."
