"""What vendors' tools say of precision, and what they are told so that nodes keep it, in each one's own form."""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import yaml

from onnxbisect.errors import OptionError
from onnxbisect.language import english
from onnxbisect.precision.wanted import Low
from onnxbisect_backends.vendors.pulsar2 import texts as pulsar2_texts
from onnxbisect_backends.vendors.pulsar2.schema import LayerConfig, QuantConfig
from onnxbisect_backends.vendors.rknn import log as rknn_log
from onnxbisect_backends.vendors.tpu_mlir import log as tpu_mlir_log

#: Names that a list without quotation can hold.
_PLAIN = re.compile(r"[^\s,:*#\"']+")


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """A file's content. `left_out` are nodes whose names the form cannot hold."""

    content: str
    left_out: tuple[str, ...] = ()


def configurations(
    nodes: Sequence[onnx.NodeProto],
    low: Low,
    backend: str = "",
    measured: Mapping[str, Sequence[str]] | None = None,
    wide: Collection[str] = (),
) -> dict[str, Configuration]:
    """Each vendor's file by its name, for these nodes to stay precise and all others low; empty without nodes.

    `measured` are the tensors that a compiler has of each node, where it was asked, as RKNN or TPU-MLIR. For the nodes
    whose names are in `wide`, 16 bits do where a compiler has them.
    """
    written = {name: write(nodes, low) for name, (precisions, write) in _FORMS.items() if nodes and low in precisions}
    named = [name for node in nodes for name in measured.get(node.name, ())] if measured else []
    if nodes and low is Low.INT8:
        written[_PULSAR2] = pulsar2(nodes, wide)
    if named and backend == "rknn":
        written[_RKNN] = _layers(named)
    if named and backend == "tpu-mlir":
        written[_TPU_MLIR] = Configuration(content="".join(f"{name} F16\n" for name in named))
    return written


def pulsar2(nodes: Sequence[onnx.NodeProto], wide: Collection[str] = ()) -> Configuration:
    """`quant.layer_configs` of a configuration of `pulsar2 build`, which has no float convolutions but 16 bits."""
    sixteen = tuple(node.name for node in nodes if node.op_type == "Conv" or node.name in wide)
    others = tuple(node.name for node in nodes if node.name not in sixteen)
    layers = [LayerConfig(layer_names=others, data_type="FP32")] if others else []
    layers += [LayerConfig(layer_names=sixteen, data_type="U16")] if sixteen else []
    quant = QuantConfig(layer_configs=tuple(layers))
    chosen = quant.model_dump(mode="json", include={"layer_configs": {"__all__": {"layer_names", "data_type"}}})
    return Configuration(content=json.dumps({"quant": chosen}, indent=1) + "\n")


def tpu_mlir(nodes: Sequence[onnx.NodeProto], low: Low) -> Configuration:
    """A table for `model_deploy --quantize_table`; TPU-MLIR names an op by its first output and its type."""
    kind = "F16" if low is Low.INT8 else "F32"
    spelled, left = _told_apart(nodes, lambda node: f"{node.output[0]}_{node.op_type}")
    return Configuration(content="".join(f"{name} {kind}\n" for name in spelled), left_out=left)


def rknn(nodes: Sequence[onnx.NodeProto], low: Low) -> Configuration:
    """`custom_quantize_layers` of what `hybrid_quantization_step1` writes, by the tensors that the nodes make."""
    return _layers([node.output[0] for node in nodes])


def _layers(tensors: Sequence[str]) -> Configuration:
    layers = dict.fromkeys(tensors, "float16")
    return Configuration(content=yaml.safe_dump({"custom_quantize_layers": layers}, allow_unicode=True))


def tensorrt(nodes: Sequence[onnx.NodeProto], low: Low) -> Configuration:
    """Arguments of `trtexec`."""
    spelled, left = _told_apart(nodes, lambda node: node.name)
    layers = ",".join(f"{name}:fp32" for name in spelled)
    kind = "int8" if low is Low.INT8 else "fp16"
    return Configuration(
        content=f"--{kind} --precisionConstraints=obey --layerPrecisions={layers}\n" if spelled else "", left_out=left
    )


_PULSAR2, _RKNN, _TPU_MLIR = "pulsar2.json", "rknn.hybrid.yaml", "tpu_mlir.qtable"
_Write = Callable[[Sequence[onnx.NodeProto], Low], Configuration]
_FORMS: Mapping[str, tuple[tuple[Low, ...], _Write]] = {
    _TPU_MLIR: ((Low.INT8, Low.FLOAT16), tpu_mlir),
    _RKNN: ((Low.INT8,), rknn),
    "tensorrt.txt": ((Low.INT8, Low.FLOAT16), tensorrt),
}
#: Every file that there may be.
FILES = (_PULSAR2, *_FORMS)


def _told_apart(
    nodes: Sequence[onnx.NodeProto], name: Callable[[onnx.NodeProto], str]
) -> tuple[list[str], tuple[str, ...]]:
    """The names that can be written without quotation, and the nodes of the others."""
    spelled = [name(node) for node in nodes if _PLAIN.fullmatch(name(node))]
    return spelled, tuple(node.name for node in nodes if not _PLAIN.fullmatch(name(node)))


def read_layer_errors(file: Path) -> list[tuple[str, ...]]:
    """The names that a table in a file has for the nodes or tensors of each layer, the worst layer first.

    It is the one that RKNN's `accuracy_analysis`, TPU-MLIR's `run_qtable` or `npz_tool compare`, or pulsar2's precision
    analysis prints or writes, with anything around it. It orders the asks of a search, and decides nothing. Raises
    OptionError if there is none.
    """
    try:
        text = file.read_text(errors="replace")
    except OSError as error:
        raise OptionError(english("{file} cannot be read: {reason}.", file=file, reason=error.strerror)) from None
    found = [(it.single, it.tensors) for it in rknn_log.layer_errors(text)]
    found += [(cosine, (op,)) for op, cosine in tpu_mlir_log.layer_errors(text)]
    found += [
        (it.cosine, (it.node,)) for table in pulsar2_texts.precision_tables(text) for it in pulsar2_texts.layers(table)
    ]
    if not found:
        raise OptionError(
            english(
                "{file} has no table of errors that is known: give what RKNN's accuracy_analysis, TPU-MLIR's "
                "run_qtable or pulsar2's precision analysis prints.",
                file=file,
            )
        )
    return [names for _, names in sorted(found, key=lambda it: it[0])]
