"""A script for a process of its own: a model with some nodes in low precision, in onnxruntime's arithmetic.

`low_precision.py MODEL SAMPLES LOW` runs the model on each sample, writes its outputs to `reference/N.npz` and what was
seen of each float tensor to `tensors.json`, unless that is there, and says `{}`. Then it reads orders, each a line of
JSON: `keep` and `wide` are names of nodes, `out` a name. It makes all nodes low but the kept ones, the results of the
wide ones with 16 bits, writes the model to `OUT.onnx`, and where the order says `run` its outputs to `OUT/N.npz`. An
order with `errors`, the name of a file, has signal to noise of each tensor written there instead. For each order it
says `{}`, or `{"problem": …}` if that failed. LOW is a member of `onnxbisect.precision.wanted.Low`. All files are in
the working directory.

Nothing is fused or optimised: the numbers are those of the file as it stands, whatever processor this is.
"""

import json
import logging
import os
import select
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from math import isnan, prod
from pathlib import Path
from threading import Thread
from typing import TextIO, cast

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper, version_converter

from onnxbisect.cut.rename import unused_name
from onnxbisect.model.versions import loadable
from onnxbisect.precision.low import can_be_low, quantisable
from onnxbisect.precision.metric import EQUAL, METRICS
from onnxbisect.precision.tensors import SampledTensor, read_seen, seen_of
from onnxbisect.precision.wanted import Low
from onnxbisect_backends.samples import load

#: The file of what was seen of the tensors.
_SEEN = "tensors.json"
#: Bytes of tensors that one run returns.
_AT_ONCE = 256 << 20
#: The operator sets from which there are QuantizeLinear, and scales by channel.
_QDQ, _BY_CHANNEL = 10, 13
#: Ops of two operands that are alike.
_ELEMENTWISE = frozenset({"Add", "Sub", "Mul", "Div", "Pow", "Max", "Min"})


def main(model: str, samples: str, low: str) -> None:
    """Measure, and then carry out orders until there are no more."""
    Thread(target=_end_with_the_orders, daemon=True).start()
    # Standard output, of which libraries now have only standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    proto = loadable(onnx.load(model))
    if low == Low.INT8 and _version(proto) < _QDQ:
        proto = version_converter.convert_version(proto, _BY_CHANNEL)
    feeds = [load(Path(samples) / f"{number}.npz") for number in range(len(list(Path(samples).iterdir())))]
    if not _say(answers, lambda: None if Path(_SEEN).is_file() else _measure(proto, feeds)):
        return
    for line in sys.stdin:
        order = json.loads(line)
        _say(answers, lambda: _carry_out(proto, feeds, low, order))  # noqa: B023


def _end_with_the_orders() -> None:
    """End when nobody gives orders any more, also in the middle of an order."""
    orders = select.poll()
    orders.register(0, 0)  # 0: only the end of the pipe is reported, no orders
    orders.poll()
    os._exit(1)


def _say(answers: TextIO, work: Callable[[], None]) -> bool:
    """Do the work, and say how it ended; whether it succeeded."""
    problem = ""
    try:
        work()
    except Exception as error:  # onnx's and onnxruntime's exceptions share no base class but this
        problem = f"{type(error).__name__}: {error}"
    answers.write(json.dumps({"problem": problem} if problem else {}) + "\n")
    answers.flush()
    return not problem


def _carry_out(
    proto: onnx.ModelProto, feeds: list[dict[str, np.ndarray]], low: str, order: Mapping[str, object]
) -> None:
    own = onnx.ModelProto()
    own.CopyFrom(proto)  # the quantiser changes what it is given
    kept, wide = (frozenset(cast("list[str]", order.get(kind, []))) for kind in ("keep", "wide"))
    mixed = quantised(own, kept, wide) if low == Low.INT8 else rounded(own, kept)
    if "errors" in order:
        Path(str(order["errors"])).write_text(json.dumps(_errors(proto, mixed, feeds, Path(str(order["errors"])))))
        return
    out = Path(str(order["out"]))
    file = out.with_suffix(".onnx")
    _write(mixed, file)
    if order["run"]:
        _run(file, [it.name for it in proto.graph.output], feeds, out)


def quantised(proto: onnx.ModelProto, kept: frozenset[str], wide: frozenset[str] = frozenset()) -> onnx.ModelProto:
    """The model in QDQ form by onnxruntime's quantiser, all nodes that it knows but the kept ones.

    What the wide nodes make has 16 bits, and so have all tensors of the nodes that make or read it, with conversions
    where others want 8, as Qualcomm's compiler needs it.
    """
    from onnxruntime.quantization.calibrate import CalibrationMethod, TensorData, TensorsData
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
    from onnxruntime.quantization.quant_utils import QuantType

    seen = _seen()
    low = [it.name for it in proto.graph.node if it.name not in kept and can_be_low(it, Low.INT8, seen)]
    if not low:
        return proto
    ranges = {
        name: TensorData(lowest=np.array(it.low, np.float32), highest=np.array(it.high, np.float32))
        for name, it in seen.items()
    }
    quantizer = QDQQuantizer(
        proto,
        _version(proto) >= _BY_CHANNEL,
        False,
        QuantType.QInt8,
        QuantType.QUInt8,
        TensorsData(CalibrationMethod.MinMax, ranges),
        low,
        [],
        sorted(quantisable()),
        {"TensorQuantOverrides": _sixteen_bits(proto, wide)} if wide else {},
    )
    quantizer.quantize_model()
    made: onnx.ModelProto = quantizer.model.model
    return made


def _sixteen_bits(proto: onnx.ModelProto, wide: frozenset[str]) -> dict[str, list[dict[str, object]]]:
    """onnxruntime's words for tensors of 16 bits."""
    from onnxruntime.quantization.execution_providers.qnn.mixed_precision_overrides_utils import (
        MixedPrecisionTensorQuantOverridesFixer,
    )
    from onnxruntime.quantization.quant_utils import QuantType
    from onnxruntime.quantization.tensor_quant_overrides import TensorQuantOverridesHelper

    made = {name for node in proto.graph.node if node.name in wide for name in node.output if name in _seen()}
    stored = {it.name for it in proto.graph.initializer if it.data_type == TensorProto.FLOAT}
    for node in proto.graph.node:
        # a constant operand is no weight: as coarse as it is elsewhere, it would spoil what it is combined with
        if node.op_type in _ELEMENTWISE and not made.isdisjoint((*node.input, *node.output)):
            made |= stored & set(node.input)
    overrides = TensorQuantOverridesHelper({name: [{"quant_type": QuantType.QUInt16}] for name in sorted(made)})
    fixer = MixedPrecisionTensorQuantOverridesFixer.create_from_model(overrides, proto, QuantType.QUInt8)
    fixer.apply(QuantType.QUInt8, False)
    found: dict[str, list[dict[str, object]]] = overrides.get_dict()
    return found


def _version(proto: onnx.ModelProto) -> int:
    return next((it.version for it in proto.opset_import if it.domain in ("", "ai.onnx")), _BY_CHANNEL)


def rounded(proto: onnx.ModelProto, kept: frozenset[str]) -> onnx.ModelProto:
    """The model with each float tensor that a low node reads or makes rounded to float16."""
    graph = proto.graph
    floats = {it.name for it in graph.initializer if it.data_type == TensorProto.FLOAT} | set(_seen())
    taken = {name for node in graph.node for name in (*node.input, *node.output)} | {it.name for it in graph.input}
    low = {node.name for node in graph.node if node.name not in kept}
    by_low = {name for node in graph.node if node.name in low for name in node.output}
    nodes: list[onnx.NodeProto] = []

    def rounding(source: str, target: str) -> None:
        half = unused_name(f"{target}_float16", taken)
        nodes.append(helper.make_node("Cast", [source], [half], name=half, to=TensorProto.FLOAT16))
        nodes.append(helper.make_node("Cast", [half], [target], name=target, to=TensorProto.FLOAT))

    read: dict[str, str] = {}
    for node in graph.node:
        for place, name in enumerate(node.input):
            if node.name in low and name in floats and name not in by_low:
                if name not in read:
                    read[name] = unused_name(f"{name}_rounded", taken)
                    rounding(name, read[name])
                node.input[place] = read[name]
        nodes.append(node)
        for place, name in enumerate(node.output):
            if node.name in low and name in floats:
                node.output[place] = unused_name(f"{name}_exact", taken)
                rounding(node.output[place], name)
    del graph.node[:]
    graph.node.extend(nodes)
    return proto


def _measure(proto: onnx.ModelProto, feeds: list[dict[str, np.ndarray]]) -> None:
    """Write the outputs, and what was seen of every float tensor that the model computes or is given."""
    shutil.rmtree("reference", ignore_errors=True)  # of a process that died
    _write(proto, Path("reference.onnx"))
    _run(Path("reference.onnx"), [it.name for it in proto.graph.output], feeds, Path("reference"))
    seen: dict[str, SampledTensor] = {}

    def note(values: Iterable[tuple[str, np.ndarray]]) -> None:
        for name, array in values:
            if (found := seen_of(array)) is not None:
                seen[name] = seen[name].and_then(found) if name in seen else found

    for sample in feeds:
        note((name, array) for name, array in sample.items() if array.dtype == np.float32)
    kinds = _kinds(proto)
    for some in _portions(_floats(proto), kinds):
        session = _wide_session(proto, {name: kinds[name] for name in some}, Path("wide.onnx"))
        for sample in feeds:
            note(zip(some, session.run(some, sample), strict=True))
    weights = dict(_weights(proto))
    found = {"tensors": seen, "weights": weights}
    Path(_SEEN).write_text(
        json.dumps({kind: {name: asdict(it) for name, it in some.items()} for kind, some in found.items()})
    )


def _errors(
    proto: onnx.ModelProto, mixed: onnx.ModelProto, feeds: list[dict[str, np.ndarray]], file: Path
) -> dict[str, float]:
    """Signal to noise in decibels of each float tensor that both models have, at the worst sample."""
    made = {name for node in mixed.graph.node for name in node.output}
    kinds = _kinds(proto)
    # What is read of each tensor that is quantised: the numbers behind its scale, which stands for a Relu, too.
    rounded = {node.input[0]: node.output[0] for node in mixed.graph.node if node.op_type == "DequantizeLinear"}
    quantised = {node.input[0]: node.output[0] for node in mixed.graph.node if node.op_type == "QuantizeLinear"}
    read = {name: rounded[integers] for name, integers in quantised.items() if integers in rounded}
    names = [name for name in _floats(proto) if name in made]
    found: dict[str, float] = {}
    for some in _portions(names, kinds):
        there = [read.get(name, name) for name in some]
        exact = _wide_session(proto, {name: kinds[name] for name in some}, file.with_suffix(".exact.onnx"))
        low = _wide_session(
            mixed, {own: kinds[name] for own, name in zip(there, some, strict=True)}, file.with_suffix(".low.onnx")
        )
        for sample in feeds:
            for name, *pair in zip(some, exact.run(some, sample), low.run(there, sample), strict=True):
                value = METRICS["sqnr"](*pair)
                found[name] = min(found.get(name, EQUAL), -EQUAL if isnan(value) else value)
    return found


def _kinds(proto: onnx.ModelProto) -> dict[str, onnx.TypeProto.Tensor]:
    return {it.name: it.type.tensor_type for it in (*proto.graph.value_info, *proto.graph.output)}


def _floats(proto: onnx.ModelProto) -> list[str]:
    """The float tensors that the model computes."""
    kinds = _kinds(proto)
    made = [name for node in proto.graph.node for name in node.output]
    return [name for name in made if name in kinds and kinds[name].elem_type == TensorProto.FLOAT]


def _wide_session(
    proto: onnx.ModelProto, kinds: Mapping[str, onnx.TypeProto.Tensor], file: Path
) -> onnxruntime.InferenceSession:
    """The model with these tensors as outputs, too."""
    outputs = {it.name for it in proto.graph.output}
    wide = onnx.ModelProto()
    wide.CopyFrom(proto)
    wide.graph.output.extend(
        onnx.ValueInfoProto(name=name, type=onnx.TypeProto(tensor_type=kind))
        for name, kind in kinds.items()
        if name not in outputs
    )
    _write(wide, file)
    session = _session(file)
    file.unlink()
    return session


def _weights(proto: onnx.ModelProto) -> Iterator[tuple[str, SampledTensor]]:
    """What there is to see of each float weight, by the channels that have scales of their own."""
    stored = {it.name: it for it in proto.graph.initializer if it.data_type == TensorProto.FLOAT}
    for node in proto.graph.node:
        for place, name in enumerate(node.input):
            if name in stored and place < 2:
                array = numpy_helper.to_array(stored[name])
                axis = _channel_axis(node) if array.ndim > 1 else None
                if (found := seen_of(array, by_channel=axis)) is not None:
                    yield name, found


def _channel_axis(node: onnx.NodeProto) -> int | None:
    if node.op_type == "Conv":
        return 0
    if node.op_type == "Gemm":
        return 0 if any(it.name == "transB" and it.i for it in node.attribute) else 1
    return -1 if node.op_type == "MatMul" else None


def _portions(names: list[str], kinds: Mapping[str, onnx.TypeProto.Tensor]) -> Iterator[list[str]]:
    """The tensors in portions that fit into memory together."""
    some: list[str] = []
    held = 0
    for name in names:
        held += 4 * prod(it.dim_value or 1 for it in kinds[name].shape.dim)
        if some and held > _AT_ONCE:
            yield some
            some, held = [], 0
        some.append(name)
    if some:
        yield some


def _seen() -> Mapping[str, SampledTensor]:
    return read_seen(Path(_SEEN))[0]


def _write(proto: onnx.ModelProto, file: Path) -> None:
    large = proto.ByteSize() >= 2**31 - 1
    onnx.save(proto, file, save_as_external_data=large, location=f"{file.stem}.data")


def _session(file: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def _run(file: Path, outputs: list[str], feeds: list[dict[str, np.ndarray]], folder: Path) -> None:
    session = _session(file)
    folder.mkdir()
    for number, sample in enumerate(feeds):
        values = session.run(outputs, sample)
        arrays = {str(place): value for place, value in enumerate(values) if isinstance(value, np.ndarray)}
        np.savez(folder / f"{number}.npz", **arrays)  # type: ignore[arg-type] # numpy's stubs miss keywords of arrays


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    main(*sys.argv[1:])
