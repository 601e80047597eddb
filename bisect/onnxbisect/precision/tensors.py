"""What was seen of a tensor's values on the samples: the facts from which suspicion and reasons come."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

#: Most channels of which each one's largest magnitude is kept.
_MOST_CHANNELS = 1 << 14
#: Largest number of float16, and its smallest with full precision.
FLOAT16_LARGEST, FLOAT16_SMALLEST = 65504.0, 2.0**-14
#: Steps of an eight-bit scale.
STEPS = 255


@dataclass(frozen=True, kw_only=True)
class SampledTensor:
    """The values of one tensor, all samples together.

    `channels` are the largest magnitudes by channel: the second axis of images, the last one of other tensors; empty
    where channels differ between samples. `zeroed` is the share of values other than 0 that an eight-bit scale over
    the whole range makes 0, and `tiny` that of those below float16's full precision. `peak` is the largest magnitude in
    root mean squares, of a weight within one channel.
    """

    low: float
    high: float
    rms: float
    count: int
    zeroed: float
    tiny: float
    peak: float
    channels: tuple[float, ...] = ()

    @property
    def largest(self) -> float:
        """The largest magnitude."""
        return max(abs(self.low), abs(self.high))

    @property
    def range(self) -> float:
        """The width of what a scale must hold; 0 is always in it."""
        return max(self.high, 0.0) - min(self.low, 0.0)

    @property
    def typical(self) -> float:
        """The magnitude of an ordinary channel."""
        return float(np.median(self.channels)) if self.channels else self.rms

    @property
    def channel(self) -> int:
        """The channel with the largest magnitude."""
        return int(np.argmax(self.channels))

    @property
    def ratio(self) -> float:
        """How many times the largest channel exceeds an ordinary one; 1 without channels."""
        return self.largest / self.typical if self.channels and self.typical else 1.0

    @property
    def eight_bit(self) -> float:
        """Decibels between an ordinary value and the rounding error of an eight-bit scale."""
        signal = min(self.rms, self.typical / 2)
        noise = self.range / STEPS / 12**0.5
        return float(20 * np.log10(max(signal, 1e-30) / noise)) if noise else 200.0

    @property
    def eight_bit_weight(self) -> float:
        """The same for a weight, which has a scale for each of its channels."""
        return float(20 * np.log10(STEPS * 12**0.5 / 2 / self.peak)) if self.peak else 200.0

    def and_then(self, other: "SampledTensor") -> "SampledTensor":
        """Both samples together."""
        count = self.count + other.count
        share = self.count / count if count else 0.0
        alike = len(self.channels) == len(other.channels)

        def mean(one: float, two: float) -> float:
            return one * share + two * (1 - share)

        return replace(
            self,
            low=min(self.low, other.low),
            high=max(self.high, other.high),
            rms=mean(self.rms**2, other.rms**2) ** 0.5,
            count=count,
            zeroed=mean(self.zeroed, other.zeroed),
            tiny=mean(self.tiny, other.tiny),
            peak=max(self.peak, other.peak),
            channels=tuple(map(max, self.channels, other.channels)) if alike else (),
        )


def read_seen(file: Path) -> tuple[dict[str, SampledTensor], dict[str, SampledTensor]]:
    """The facts of tensors and those of weights, of a file that `low_precision.py` wrote."""
    content = json.loads(file.read_text())

    def read(kind: str) -> dict[str, SampledTensor]:
        return {name: SampledTensor(**{**it, "channels": tuple(it["channels"])}) for name, it in content[kind].items()}

    return read("tensors"), read("weights")


def seen_of(array: np.ndarray, *, by_channel: int | None = None) -> SampledTensor | None:
    """The facts of one array, of a weight with the axis of its channels; None if it has no finite number."""
    values = np.asarray(array, np.float64)
    finite = np.isfinite(values)
    if not finite.any():  # empty, too
        return None
    values = np.where(finite, values, 0.0)
    magnitudes = np.abs(values)
    low, high = float(values.min()), float(values.max())
    nonzero = magnitudes[magnitudes > 0]
    step = (max(high, 0.0) - min(low, 0.0)) / STEPS
    rms = float(np.sqrt(np.mean(values**2)))
    channels = values.reshape(1, -1) if by_channel is None else np.moveaxis(values, by_channel, 0)
    rows = channels.reshape(len(channels), -1)
    each_rms = np.sqrt(np.mean(rows**2, axis=1))
    return SampledTensor(
        low=low,
        high=high,
        rms=rms,
        count=values.size,
        zeroed=float(np.mean(nonzero < step / 2)) if nonzero.size else 0.0,
        tiny=float(np.mean(nonzero < FLOAT16_SMALLEST)) if nonzero.size else 0.0,
        peak=float((np.abs(rows).max(axis=1) / np.where(each_rms, each_rms, 1)).max()),
        channels=_channels(magnitudes),
    )


def _channels(magnitudes: np.ndarray) -> tuple[float, ...]:
    axis = 1 if magnitudes.ndim >= 4 else magnitudes.ndim - 1
    if magnitudes.ndim < 2 or not 1 < magnitudes.shape[axis] <= _MOST_CHANNELS:
        return ()
    others = tuple(it for it in range(magnitudes.ndim) if it != axis)
    return tuple(magnitudes.max(axis=others).tolist())
