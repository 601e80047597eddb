"""Why a node does not bear low precision, from the values of its tensors on the samples: one sentence."""

from collections.abc import Callable, Iterator, Mapping
from math import exp

import onnx

from onnxbisect.language import english
from onnxbisect.precision.tensors import FLOAT16_LARGEST, STEPS, SampledTensor
from onnxbisect.precision.wanted import Low

#: Ratio from which a channel, an outlier or a cancellation costs four of eight bits.
_FOUR_BITS = 16
#: Share of values that became 0, or tiny, that is worth a word.
_SHARE = 0.05
#: Ops whose results depend on small values, and those that put their input into an exponential.
_OF_SMALL = frozenset({"Log", "Div", "Reciprocal", "Sqrt", "Pow"})
_EXPONENTIAL = frozenset({"Softmax", "LogSoftmax", "Exp"})
#: The share of a value that a step of its exponent may cost.
_STEP = 0.2


def reason(
    node: onnx.NodeProto, low: Low, seen: Mapping[str, SampledTensor], weights: Mapping[str, SampledTensor]
) -> str:
    """The most telling fact about the node's tensors."""
    read = {name: seen[name] for name in dict.fromkeys(node.input) if name in seen}
    made = {name: seen[name] for name in node.output if name in seen}
    facts = _float16(node, read, made) if low is Low.FLOAT16 else _int8(node, read, made, weights)
    if telling := next(facts, None):
        return telling
    name, least = _most({**read, **made}, lambda it: -it.eight_bit)
    if not name:
        return english("Nothing is known of the values of its tensors.")
    if low is Low.FLOAT16:
        return english("No single property of its tensors stands out.")
    return english(
        "No single property stands out; of its tensors '{tensor}' has the least room, {decibels} dB above the rounding "
        "error of int8.",
        tensor=name,
        decibels=f"{-least:.0f}",
    )


def _float16(
    node: onnx.NodeProto, read: Mapping[str, SampledTensor], made: Mapping[str, SampledTensor]
) -> Iterator[str]:
    name, most = _most({**made, **read}, lambda it: it.largest)
    if most > FLOAT16_LARGEST:
        yield english(
            "'{tensor}' reaches {largest}, and float16 ends at 65504: it becomes infinite.",
            tensor=name,
            largest=f"{most:.3g}",
        )
    yield from _cancellation(node, read, made)
    name, most = _most({**made, **read}, lambda it: it.tiny)
    if most > _SHARE:
        yield english(
            "{percent} of the values of '{tensor}' are below 6.1e-05, where float16 loses digits.",
            percent=_percent(most),
            tensor=name,
        )


def _int8(
    node: onnx.NodeProto,
    read: Mapping[str, SampledTensor],
    made: Mapping[str, SampledTensor],
    weights: Mapping[str, SampledTensor],
) -> Iterator[str]:
    both = {**made, **read}
    name, most = _most(both, lambda it: it.ratio)
    if most >= _FOUR_BITS:
        yield english(
            "Channel {channel} of '{tensor}' reaches {largest}, {ratio} times an ordinary channel: one scale for all "
            "leaves that one {steps} of 255 steps.",
            channel=both[name].channel,
            tensor=name,
            largest=f"{both[name].largest:.3g}",
            ratio=f"{most:.0f}",
            steps=f"{STEPS * both[name].typical / both[name].range:.1f}",
        )
    if node.op_type in _EXPONENTIAL and (found := next(iter(read.items()), None)):
        step = found[1].range / STEPS
        if step >= _STEP:
            yield english(
                "One step of int8 over the range of '{tensor}' is {step}, a factor of {factor} after the exponential.",
                tensor=found[0],
                step=f"{step:.2g}",
                factor=f"{exp(min(step, 700.0)):.3g}",
            )
    if node.op_type in _OF_SMALL:
        name, most = _most(read, lambda it: it.zeroed)
        if most > _SHARE:
            yield english(
                "{percent} of the values of '{tensor}' become 0 in int8, and {op} depends on small ones.",
                percent=_percent(most),
                tensor=name,
                op=node.op_type,
            )
    yield from _cancellation(node, read, made)
    name, most = _most({it: weights[it] for it in node.input if it in weights}, lambda it: it.peak)
    if most >= _FOUR_BITS:
        yield english(
            "The weight '{tensor}' has an outlier of {peak} times the root mean square of its channel.",
            tensor=name,
            peak=f"{most:.0f}",
        )
    name, most = _most(both, lambda it: it.peak)
    if most >= _FOUR_BITS:
        yield english(
            "The largest value of '{tensor}' is {peak} times its root mean square: the scale that holds it leaves an "
            "ordinary value {steps} of 255 steps.",
            tensor=name,
            peak=f"{most:.0f}",
            steps=f"{STEPS * both[name].rms / both[name].range:.1f}",
        )


def _cancellation(
    node: onnx.NodeProto, read: Mapping[str, SampledTensor], made: Mapping[str, SampledTensor]
) -> Iterator[str]:
    if node.op_type not in ("Add", "Sub", "Sum") or not read or not made:
        return
    before, after = max(it.rms for it in read.values()), max(it.rms for it in made.values())
    if after and before / after >= _FOUR_BITS:
        yield english(
            "{op} cancels: its result is {ratio} times smaller than what it reads, whose rounding errors stay.",
            op=node.op_type,
            ratio=f"{before / after:.0f}",
        )


def _most(tensors: Mapping[str, SampledTensor], fact: Callable[[SampledTensor], float]) -> tuple[str, float]:
    """The tensor with the largest fact; an empty name if there is none."""
    name = max(tensors, key=lambda it: fact(tensors[it]), default="")
    return name, fact(tensors[name]) if name else 0.0


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
