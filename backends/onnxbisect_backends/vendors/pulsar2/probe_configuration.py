"""The configuration of pulsar2 for one probe: the relevant part of the user's, and its calibration data.

Entries about layers, tensors and constants that the probe lacks are left out, because pulsar2 may refuse the names.
Tensors at the boundary may have been renamed (`ProbeFormat.safe_names`); entries are renamed with them.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import onnx
import onnx.defs
from onnx import TensorProto

from onnxbisect.cut.apply_format import safe_name
from onnxbisect.errors import OptionError
from onnxbisect.language import did_you_mean
from onnxbisect_backends.vendors.pulsar2.schema import BuildConfig, BuildOptions, CompilerConfig, LayerConfig
from onnxbisect_backends.vendors.pulsar2.settings import OURS

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
    for name in (op for layer in build.quant.layer_configs for op in (layer.op_type, *layer.op_types) if op):
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


def _nearest(name: str, names: Collection[str]) -> str:
    """The end of the sentence, with the nearest name, or some of those that there are."""
    few = ", ".join(f"'{it}'" for it in list(names)[:8])
    return did_you_mean(name, names, f"; it has {few}{' and more' if len(names) > 8 else ''}.")


#: The run-time dtype of an input, which must be given for these dtypes only.
_RUNTIME: dict[int, str] = {
    TensorProto.INT64: "S32",
    TensorProto.INT32: "S32",
    TensorProto.UINT32: "U32",
    TensorProto.INT16: "S16",
    TensorProto.UINT16: "U16",
    TensorProto.INT8: "S8",
    TensorProto.UINT8: "U8",
    TensorProto.FLOAT16: "FP16",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class ProbeConfiguration:
    """One probe and the user's configuration. `ends` are the whole model's, to which `DEFAULT` refers."""

    model: onnx.ModelProto
    build: BuildOptions
    ends: Ends

    def config(self, datasets: Mapping[str, str], samples: int) -> dict[str, Any]:
        """The content of the configuration file; `datasets` are archives by input."""
        data = self.build.model_dump(mode="json", exclude_unset=True)
        for path in OURS:
            *outer, last = path.split(".")
            holder = data
            for part in outer:
                holder = holder.get(part, {})
            holder.pop(last, None)
        data.pop("target_hardware", None)  # given on the command line: the file's enumeration lacks newer chips
        data.pop("debug", None)  # the file has no such field
        data.pop("input_shapes", None)  # pieces are cut of a model that has these shapes
        data |= {"model_type": self.build.model_type, "npu_mode": self.build.npu_mode}
        quant = data.setdefault("quant", {})
        quant["input_configs"] = [self._input_config(name, dataset, samples) for name, dataset in datasets.items()]
        quant["layer_configs"] = [kept for it in self.build.quant.layer_configs if (kept := self._layers(it))]
        entries = [it.model_dump(mode="json", exclude_unset=True) for it in self.build.input_processors]
        own = self._processors(entries, self._own_inputs, {value.name for value in self.inputs})
        several = {entry["tensor_name"] for entry in own if entry.get("src_extra_shapes")}
        if not all(value.name in several for value in self.inputs):
            for entry in own:
                entry.pop("src_extra_shapes", None)  # all inputs must have the same number of shapes
        named = {entry["tensor_name"] for entry in own}
        needed = [
            {"tensor_name": value.name, "src_dtype": _RUNTIME[value.type.tensor_type.elem_type]}
            for value in self.inputs
            if value.name not in named and value.type.tensor_type.elem_type in _RUNTIME
        ]
        data["input_processors"] = own + needed
        boundary = {value.name for value in self.model.graph.output}
        own_outputs = {self._here(name) for name in self.ends.outputs} & boundary
        data["output_processors"] = self._processors(data.get("output_processors", []), own_outputs, boundary)
        constants = {name for node in self.model.graph.node if node.op_type == "Constant" for name in node.output}
        constants |= {tensor.name for tensor in self.model.graph.initializer}
        data["const_processors"] = self._named(data.get("const_processors", []), "name", constants)
        for field in ("op_processors", "quant_op_processors"):
            data[field] = self._named(data.get(field, []), "op_name", self._nodes)
        compiler = data.setdefault("compiler", {})
        compiler["sub_configs"] = [kept for it in self.build.compiler.sub_configs if (kept := self._range(it))]
        return _without_empty(data)

    def _input_config(self, name: str, dataset: str, samples: int) -> dict[str, Any]:
        """The entry for one input; it keeps the user's mean and deviation, which are also defaults of processors."""
        found: dict[str, Any] = {
            "tensor_name": name,
            "calibration_dataset": dataset,
            "calibration_format": "Numpy",
            "calibration_size": samples,
        }
        configs = self.build.quant.input_configs
        every = [it for it in configs if it.tensor_name == EVERY and name in self._own_inputs]
        for entry in [*(it for it in configs if self._here(it.tensor_name) == name), *every][:1]:
            for field in ("calibration_mean", "calibration_std"):
                if values := getattr(entry, field):
                    found[field] = list(values)
        return found

    def _processors(self, entries: Sequence[dict[str, Any]], own: set[str], there: set[str]) -> list[dict[str, Any]]:
        """The entries for present tensors, and one for each of the model's `own` ends that only `DEFAULT` names."""
        named = self._named(entries, "tensor_name", there)
        rest = sorted(own - {entry["tensor_name"] for entry in named})
        every = [entry for entry in entries if entry["tensor_name"] == EVERY]
        return named + [{**entry, "tensor_name": name} for entry in every[:1] for name in rest]

    def _layers(self, layer: LayerConfig) -> dict[str, Any] | None:
        """The entry with the layers that are present; None if none is."""
        if layer.start_tensor_names:
            return self._range(layer)
        data = layer.model_dump(mode="json", exclude_unset=True)
        kept: dict[str, Sequence[str]] = {
            "layer_name": [layer.layer_name] if layer.layer_name in self._nodes else [],
            "layer_names": [name for name in layer.layer_names if name in self._nodes],
            "op_type": [layer.op_type] if self._may_have(layer.op_type) else [],
            "op_types": [op for op in layer.op_types if self._may_have(op)],
        }
        for field, names in kept.items():
            if getattr(layer, field):
                if not names:
                    return None
                data[field] = names[0] if isinstance(getattr(layer, field), str) else list(names)
        return data

    def _may_have(self, op: str) -> bool:
        """Whether the op is present, or is one of pulsar2's own, such as Silu, which fusions make."""
        return not onnx.defs.has(op) or any(node.op_type == op for node in self.model.graph.node)

    def _range(self, config: LayerConfig | CompilerConfig) -> dict[str, Any] | None:
        """The entry for the layers between tensors; None if one of these is missing."""
        data = config.model_dump(mode="json", exclude_unset=True)
        for field in ("start_tensor_names", "end_tensor_names"):
            data[field] = [name if name == EVERY else self._here(name) for name in data.get(field, ())]
            if not {EVERY, *self._tensors}.issuperset(data[field]):
                return None
        return data

    def _named(self, entries: Sequence[dict[str, Any]], field: str, there: set[str]) -> list[dict[str, Any]]:
        return [{**entry, field: here} for entry in entries if (here := self._here(entry[field])) in there]

    def _here(self, name: str) -> str:
        """The probe's name for a node or tensor of the model; a tensor at the boundary may have been renamed."""
        return name if name in self._tensors or name in self._nodes else safe_name(name)

    @cached_property
    def inputs(self) -> list[onnx.ValueInfoProto]:
        """The probe's inputs."""
        return list(self.model.graph.input)

    @property
    def _own_inputs(self) -> set[str]:
        """The probe's inputs that are the model's."""
        return {self._here(name) for name in self.ends.inputs} & {value.name for value in self.inputs}

    @cached_property
    def _nodes(self) -> set[str]:
        return {node.name for node in self.model.graph.node}

    @cached_property
    def _tensors(self) -> set[str]:
        graph = self.model.graph
        return {name for node in graph.node for name in (*node.input, *node.output)} | {it.name for it in self.inputs}


def _without_empty(data: dict[str, Any]) -> dict[str, Any]:
    """The entry without empty lists, texts and messages."""
    inner = {key: _without_empty(value) if isinstance(value, dict) else value for key, value in data.items()}
    return {key: value for key, value in inner.items() if value not in ([], "", {})}
