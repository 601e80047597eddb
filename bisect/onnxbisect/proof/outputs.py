"""Run two models on the same inputs and measure the differences of their outputs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import inf
from pathlib import Path

import numpy as np
import onnx

from onnxbisect.errors import ModelError
from onnxbisect.fingerprint import brief
from onnxbisect.language import english, quoted, some
from onnxbisect.model.input_values import compared_values, indexing_inputs
from onnxbisect.model.model import Model
from onnxbisect.model.opaque import around, opaque_nodes
from onnxbisect.model.runnable import Sample
from onnxbisect.model.scopes import fed_inputs, qualified
from onnxbisect.model.session import Clock, Session
from onnxbisect.terms import Tolerance

#: A result of onnxruntime: a tensor, None for an empty optional, or a sequence.
Value = np.ndarray | None | list["Value"]


@dataclass(frozen=True, kw_only=True)
class OutputDifference:
    """The difference of an output between two models, for one sample or the worst of several.

    `absolute` is the largest difference between finite numbers, `relative` the same divided by the largest finite
    magnitude before. `unlike` counts elements of which only one is NaN or infinite, or both are infinite with different
    signs. `beyond` counts all elements outside the tolerance, including those. `unsettled` counts elements whose leeway
    is larger than the tolerance. `form` describes a difference in dtype or shape; of other shapes and sorts the other
    fields are then not measured.
    """

    output: str
    elements: int = 0
    absolute: float = 0.0
    relative: float = 0.0
    unlike: int = 0
    beyond: int = 0
    unsettled: int = 0
    form: str = ""

    @property
    def agrees(self) -> bool:
        """Whether every element is within the tolerance, and most of them are so without a leeway."""
        return not self.beyond and not self.form and 2 * self.unsettled <= self.elements

    def worst(self, other: "OutputDifference") -> "OutputDifference":
        """Combine the differences of one output in two samples: the worse of each number."""
        return replace(
            self,
            elements=self.elements + other.elements,
            absolute=max(self.absolute, other.absolute),
            relative=max(self.relative, other.relative),
            unlike=self.unlike + other.unlike,
            beyond=self.beyond + other.beyond,
            unsettled=self.unsettled + other.unsettled,
            form=self.form or other.form,
        )


def difference(
    output: str, before: Value, after: Value, tolerance: Tolerance, leeway: np.ndarray | None = None
) -> OutputDifference:
    """Compare an output before and after a change; sequences are compared tensor by tensor.

    `leeway` is what each element may differ by besides, of which nothing is measured (`leeways`).
    """
    if isinstance(before, list) or isinstance(after, list):
        if not (isinstance(before, list) and isinstance(after, list) and len(before) == len(after)):
            return OutputDifference(output=output, form=english("it became a sequence of another length, or none"))
        parts = (difference(output, *pair, tolerance) for pair in zip(before, after, strict=True))
        return reduce(OutputDifference.worst, parts, OutputDifference(output=output))
    before, after = np.asarray(before), np.asarray(after)
    form = ""
    if before.dtype != after.dtype:
        form = english("{before} became {after}", before=before.dtype, after=after.dtype)
    if form and not before.dtype.kind == after.dtype.kind == "f":
        return OutputDifference(output=output, form=form)
    if before.shape != after.shape:
        return OutputDifference(
            output=output, form=english("the shape {before} became {after}", before=before.shape, after=after.shape)
        )
    if before.dtype.kind not in "fiuc" and not np.issubdtype(before.dtype, np.number):
        wrong = int((before != after).sum())
        return OutputDifference(output=output, elements=before.size, unlike=wrong, beyond=wrong)
    wide = np.complex128 if before.dtype.kind == "c" else np.float64
    old, new = before.astype(wide), after.astype(wide)
    with np.errstate(all="ignore"):
        both = np.isfinite(old) & np.isfinite(new)
        gap = np.where(both, np.maximum(np.abs(old - new) - (0.0 if leeway is None else leeway), 0.0), 0.0)
        unlike = ~both & ~((before == after) | (np.isnan(old) & np.isnan(new)))
    whole = before.dtype.kind in "iu"
    if whole:  # float64 does not hold all of int64
        gap = np.where(before == after, 0.0, np.maximum(gap, 1.0))
    largest, apart = float(np.abs(old[both]).max(initial=0.0)), float(gap.max(initial=0.0))
    allowed = tolerance.absolute + (0.0 if whole else tolerance.relative * largest)
    beyond = unlike | (gap > allowed)
    return OutputDifference(
        output=output,
        elements=before.size,
        absolute=apart,
        relative=apart / largest if largest else apart and inf,
        unlike=int(unlike.sum()),
        beyond=int(beyond.sum()),
        unsettled=0 if leeway is None else int((leeway > allowed).sum()),
        form=form,
    )


def fault(output: str, before: np.ndarray, after: np.ndarray, tolerance: Tolerance) -> str:
    """What is wrong with an output that is to be compared in numbers alone; empty if nothing is.

    NaN, infinities, one number everywhere and numbers that end at a limit are named, since they say more of what a
    compiler did than a difference. Where `before` is not finite, nothing is compared.
    """
    if before.shape != after.shape:
        return english(
            "'{output}' has the shape {found}, not {expected}",
            output=output,
            found=list(after.shape),
            expected=list(before.shape),
        )
    known = np.isfinite(before) if before.dtype.kind in "fc" else np.ones(before.shape, np.bool_)
    wide = np.complex128 if "c" in (before.dtype.kind, after.dtype.kind) else np.float64
    old, new = before[known].astype(wide), after[known].astype(wide)
    for broken, name in ((np.isnan(new), "NaN"), (np.isinf(new), english("infinite"))):
        if broken.any():
            return english(
                "'{output}' is {what} in {count} of {all} places where it should be a number",
                output=output,
                what=name,
                count=int(broken.sum()),
                all=old.size,
            )
    found = difference(output, old, new, tolerance)
    if found.agrees:
        return ""
    if wide is np.float64 and old.size > 1 and np.ptp(new) == 0:
        return english(
            "'{output}' is {number} everywhere, and should reach from {low} to {high}",
            output=output,
            number=f"{new[0]:.4g}",
            low=f"{old.min():.4g}",
            high=f"{old.max():.4g}",
        )
    if wide is np.float64 and (limit := _limit(output, old, new, tolerance)) is not None:
        return english(
            "'{output}' saturates at {limit}, and should reach from {low} to {high}",
            output=output,
            limit=f"{limit:.6g}",
            low=f"{old.min():.4g}",
            high=f"{old.max():.4g}",
        )
    return english(
        "'{output}' differs by up to {most}, in numbers up to {largest}",
        output=output,
        most=f"{found.absolute:.3g}",
        largest=f"{np.abs(old).max():.3g}",
    )


def _limit(output: str, old: np.ndarray, new: np.ndarray, tolerance: Tolerance) -> float | None:
    """The number beyond which numbers are cut off, if that explains the difference."""
    for end, beyond in ((new.max(), old > new.max()), (new.min(), old < new.min())):
        cut = beyond & (new == end)
        if cut.sum() > 1 and difference(output, np.where(cut, new, old), new, tolerance).agrees:
            return float(end)
    return None


@dataclass(frozen=True, kw_only=True)
class OutputComparison:
    """Differences of the outputs of two models over `samples` samples.

    Optionally also of tensors that both models compute under the same name, in the first model's order.
    """

    differences: tuple[OutputDifference, ...]
    samples: int
    within: tuple[OutputDifference, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether all outputs agree within the tolerance, in every sample."""
        return all(difference.agrees for difference in self.differences)


def compare(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    feeds: Iterable[Sample],
    *,
    tolerance: Tolerance | None = None,
    folder: Path = Path(),
    other_folder: Path | None = None,
    tensors: bool = False,
    type_of: Callable[[str], onnx.TypeProto | None] = lambda name: None,
) -> OutputComparison:
    """Run both models in onnxruntime without optimisation on every sample and compare outputs of the same name.

    `tensors` compares also the results of nodes that have the same name in both models. `folder` and `other_folder`
    hold the models' external data. Models with opaque nodes are compared around these: samples give what they make,
    and what they read counts as outputs; `type_of` knows types that the files do not declare. Raises ModelError
    where inputs or outputs differ, or a model does not run.
    """
    _demand_same("outputs", _names(before.graph.output), _names(after.graph.output))
    _demand_same_opaque(before, after)
    before, after = around(before, type_of), around(after, type_of)
    _demand_same("inputs", _names(fed_inputs(before.graph)), _names(fed_inputs(after.graph)))
    outputs = _names(before.graph.output)
    within: list[str] = []
    if tensors:  # that nodes of both graphs make, without graph outputs
        made = (name for node in before.graph.node for name in node.output)
        theirs = {name for node in after.graph.node for name in node.output} - {*outputs, *_names(after.graph.output)}
        within = [name for name in made if name and name in theirs and name not in outputs]
    names = [*outputs, *within]
    if within:
        before, after = _telling(before, within), _telling(after, within)
    first, second = _session(before, folder), _session(after, folder if other_folder is None else other_folder)
    worst: dict[str, OutputDifference] = {}
    count = 0
    inputs = set(_names(before.graph.input))
    for recorded in feeds:
        sample = {name: array for name, array in recorded.items() if name in inputs}
        count += 1
        pairs = zip(names, _run(first, names, sample), _run(second, names, sample), strict=True)
        for name, old, new in pairs:
            found = difference(name, old, new, tolerance or Tolerance())
            worst[name] = worst[name].worst(found) if name in worst else found
    inner = set(within)
    return OutputComparison(
        differences=tuple(each for name, each in worst.items() if name not in inner),
        samples=count,
        within=tuple(each for name, each in worst.items() if name in inner),
    )


#: Of numbers that another runtime computed, such as PyTorch: many layers round.
RECORDED = Tolerance(absolute=1e-4, relative=1e-3)


def demand_recorded(sample: Sample, computed: Mapping[str, Value]) -> None:
    """Raise ModelError if a sample has another value of a tensor than the model computes from it."""
    for name in sample.keys() & computed.keys():
        found = difference(name, sample[name], computed[name], RECORDED)
        if not found.agrees:
            raise ModelError(
                english(
                    "the recorded tensor {name} is not what the model computes from the same sample ({difference}): "
                    "record it again with this model",
                    name=quoted(name),
                    difference=found.form or f"it differs by {found.absolute:.2g}",
                )
            )


def those_that_run(model: onnx.ModelProto, feeds: Iterable[Sample], folder: Path) -> list[Sample]:
    """The samples on which onnxruntime runs the model."""
    session, found = _session(model, folder), []
    names = _names(model.graph.output)
    for sample in feeds:
        try:
            _run(session, names, sample)
        except ModelError:
            continue
        found.append(sample)
    return found


def runnable_feeds(
    model: Model, whole: onnx.ModelProto, feeds: Sequence[Sample], *, needed: bool = True
) -> list[Sample]:
    """The made-up samples on which the model runs; `whole` is the model of the file, for onnxruntime.

    In further samples, inputs that decide a branch have the value that they are compared with, and floats that are cast
    to integers are 0 or 1, which are valid as indices. If the model runs on none, all are returned where they are
    `needed`, so that an error says so.
    """
    compared, indexing = compared_values(model.proto.graph, model.known), indexing_inputs(model.proto.graph)
    samples = list(feeds)
    if not compared and not indexing and (needed or those_that_run(whole, samples[:1], model.path.parent)):
        return samples
    if compared or indexing:
        further = [{name: (sample[name] > 0).astype(sample[name].dtype) for name in indexing} for sample in samples]
        samples += [{**sample, **more, **compared} for sample, more in zip(samples, further, strict=True)]
    running = those_that_run(whole, samples, model.path.parent)
    return samples if needed and not running else running


def _telling(model: onnx.ModelProto, names: Iterable[str]) -> onnx.ModelProto:
    """The model with these tensors as additional outputs; onnxruntime infers their types."""
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    watched.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return watched


def _names(values: Iterable[onnx.ValueInfoProto]) -> list[str]:
    return [value.name for value in values]


def _demand_same(what: str, before: Sequence[str], after: Sequence[str]) -> None:
    only = [name for name in before if name not in after] or [name for name in after if name not in before]
    if only:
        raise ModelError(f"The models have different {what}: {some(only)} is in one of them only.")


def _demand_same_opaque(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    """Models can be compared around nodes that onnxruntime does not know only if both have these nodes."""
    made = [
        {
            name: qualified(node)
            for node in map(model.graph.node.__getitem__, opaque_nodes(model))
            for name in node.output
        }
        for model in (before, after)
    ]
    only = [op for one, other in (made, made[::-1]) for name, op in one.items() if name not in other]
    if only:
        raise ModelError(
            english(
                "onnxruntime does not load one of the models: {op} is no op that it knows, and the other model has no "
                "such node.",
                op=quoted(only[0]),
            )
        )


def _session(model: onnx.ModelProto, folder: Path) -> Session:
    try:
        return Session(model, folder)
    except Exception as error:  # onnxruntime's exceptions share no base class but this
        raise ModelError(f"onnxruntime does not load the model {model.graph.name!r}: {brief(str(error))}.") from error


def _run(session: Session, names: Sequence[str], sample: Sample) -> list[Value]:
    try:
        return session.run(names, sample, Clock(inf))
    except Exception as error:  # as above
        raise ModelError(f"onnxruntime does not run a model on these inputs: {brief(str(error))}.") from error
