"""What a model computes in onnxruntime without optimisation, and whether two results agree."""

from collections.abc import Mapping
from math import inf
from pathlib import Path

import numpy as np
import onnx

from onnxbisect.model.session import Clock, Session
from onnxbisect.rewrites import Bound


def outputs_of(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    names = [value.name for value in model.graph.output]
    used = {value.name for value in model.graph.input}
    fed = {name: array for name, array in feeds.items() if name in used}
    return Session(model, Path()).run(names, fed, Clock(inf))


def bits_differ(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Where two arrays differ in a bit, two NaN excepted."""
    if old.dtype.kind != "f":
        return old != new
    return ((old != new) | (np.signbit(old) != np.signbit(new))) & ~(np.isnan(old) & np.isnan(new))


def allowed(old: np.ndarray, new: np.ndarray, bound: Bound, scale: np.ndarray | float | None) -> np.ndarray:
    """Where two arrays agree within a bound; `scale` is the magnitude that it is of, the output's own where None."""
    if old.dtype.kind not in "fb":
        near: np.ndarray = np.abs(old.astype(np.int64) - new.astype(np.int64)) <= bound.absolute
        return near
    if old.dtype.kind == "b":
        return old == new
    wide_old, wide_new = old.astype(np.float64), new.astype(np.float64)
    magnitude = np.abs(wide_old) if scale is None else np.asarray(scale, np.float64)
    with np.errstate(invalid="ignore"):
        room = bound.epsilons * np.finfo(old.dtype).eps * magnitude + bound.absolute
        near = np.abs(wide_old - wide_new) <= room
    return near | (old == new) | (np.isnan(old) & np.isnan(new))
