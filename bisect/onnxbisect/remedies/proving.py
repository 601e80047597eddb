"""Proof of a repair: original and repaired model on the same inputs, at each place and at the model's outputs.

At a place, both the original node and its replacement get the original's tensors. The difference measured there is
therefore caused by this replacement, not by earlier ones.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, partial
from math import inf
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from onnxbisect.cut.rename import rename_in_node
from onnxbisect.errors import ModelError
from onnxbisect.fingerprint import brief
from onnxbisect.language import english
from onnxbisect.model.facts import TensorFacts, size_of
from onnxbisect.model.opaque import around
from onnxbisect.model.runnable import Sample
from onnxbisect.model.session import Clock, Session
from onnxbisect.proof import (
    OutputDifference,
    Tolerance,
    demand_recorded,
    difference,
    edge_feeds,
    in_form,
    in_form_of,
    leeways,
    random_feeds,
)
from onnxbisect.remedies.candidate import Candidate
from onnxbisect.remedies.contract import BIT_FOR_BIT, PlaceProof, RepairProof, at_least, epsilon_of, promised, too_far
from onnxbisect.remedies.low_precision import InLowPrecision, LowPrecision
from onnxbisect.rewrites import Exactness, replaced

_AFTER = "/onnxbisect-replaced"
_BFLOAT16 = onnx.TensorProto.BFLOAT16
#: Most bytes of tensors that are fetched in one run.
_MOST_BYTES = 1 << 29


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Inputs for a proof: `usual` ones, and with `edge` values.

    Only the usual ones count in low precision, where edge values overflow, and the rest of the model with them, and of
    edge values only those that are in the domain of a replacement.
    """

    usual: Sequence[Sample]
    edge: Sequence[Sample] = ()


@dataclass(frozen=True, kw_only=True)
class _Reference:
    """The samples of a proof, usual ones first, and what the original computes from each."""

    samples: Sequence[Sample]
    usual: int
    outputs: Sequence[Mapping[str, np.ndarray]]


class OrtProver:
    """Runs the original and repaired models in onnxruntime, without optimisation, on the same samples.

    `original` is the model as stored in its file, with external data below `folder`. Models with opaque nodes run
    without them (`around`); samples may have recorded values of what these make and read. `tolerance` is for the
    model's outputs. If the target computes in a `low` precision, a place must also hold in that one. The original
    runs before the first proof. Where it does not run, or has no samples, nothing is proven, and each proof says
    why.
    """

    def __init__(
        self,
        original: onnx.ModelProto,
        facts: TensorFacts,
        samples: Callable[[], Samples],
        *,
        folder: Path,
        tolerance: Tolerance | None = None,
        low: LowPrecision | None = None,
    ) -> None:
        self._facts, self._given, self._folder = facts, samples, folder
        self._tolerance, self._low = tolerance or Tolerance(), low
        self._reference: _Reference | ModelError | None = None
        #: Samples with edge values that are outside of a candidate's domain, by its key.
        self._beyond: dict[tuple[str, str], set[int]] = {}
        #: What was measured at the place of a candidate, by its key.
        self._places: dict[tuple[str, str], PlaceProof] = {}
        #: The leeway of the model's outputs, by the sample's number and the output's name.
        self._leeway: dict[tuple[int, str], np.ndarray] = {}
        try:
            self._original = around(original, facts.type)
        except ModelError as error:
            self._original, self._reference = original, error
        self._ends = list(self._original.graph.output)
        self._outputs = [value.name for value in self._ends]

    def on(self, changed: onnx.ModelProto, facts: TensorFacts, chosen: Sequence[Candidate] = ()) -> "OrtProver":
        """A prover for a changed copy of the file, in which these replacements were made: places are compared there,
        outputs with the original, on the samples within the replacements' domains.
        """
        result = copy(self)
        changed = around(changed, facts.type)
        beyond = self._beyond_any(chosen)  # none of the usual ones
        kept = [number for number in range(len(self._referred.samples)) if number not in beyond]
        samples = [in_form_of(changed, self._original, self._referred.samples[number]) for number in kept]
        result._original, result._facts = changed, facts
        result._beyond, result._places, result._leeway = {}, {}, {}
        result._reference = replace(
            self._referred, samples=samples, outputs=[self._referred.outputs[number] for number in kept]
        )
        return result

    def inside(self, model: onnx.ModelProto, facts: TensorFacts) -> "OrtProver":
        """A prover for a model with inputs of its own, such as the body of a Loop, on random and edge values."""
        count = max(1, len(self._referred.samples) // 2)

        def samples() -> Samples:
            inputs = around(model, facts.type).graph.input
            return Samples(usual=list(random_feeds(inputs, count)), edge=list(edge_feeds(inputs, count)))

        return OrtProver(model, facts, samples, folder=self._folder, tolerance=self._tolerance, low=self._low)

    def prove(self, chosen: Sequence[Candidate]) -> RepairProof:
        """Prove all replacements together. Each is measured beside what it replaces in the original, once."""
        try:
            new = [it for it in chosen if it.key not in self._places]
            measured = (place for some in self._shares(new) for place in self._measured(some))
            self._places.update((place.candidate.key, place) for place in measured)
            places = tuple(replace(self._places[it.key], candidate=it) for it in chosen)
            if not any(place.problem for place in places):
                places = self._also_in_low_precision(places)
            outputs = self._whole(chosen) if not any(place.problem for place in places) else ()
            samples = len(self._referred.samples) - len(self._beyond_any(chosen))
        except ModelError as error:
            return RepairProof(allowed=self._tolerance, problem=str(error))
        return RepairProof(places=places, outputs=outputs, allowed=self._tolerance, samples=samples)

    def to_blame(self, chosen: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """The replacements because of which the model's outputs do not agree, though each place is within its bound.

        The replacements of each rule are tried alone. If none of these fails, all inexact ones are to blame, or all if
        every one is exact.
        """
        groups: dict[str, list[Candidate]] = {}
        for candidate in chosen:
            groups.setdefault(candidate.name, []).append(candidate)
        guilty = [it for group in groups.values() if len(groups) > 1 and self._differs(group) for it in group]
        inexact = [it for it in chosen if it.exactness is not Exactness.EXACT]
        return tuple(guilty or inexact or chosen)

    def _differs(self, chosen: Sequence[Candidate]) -> bool:
        try:
            return not all(it.agrees for it in self._whole(chosen))
        except ModelError:
            return True

    def compared(self, repaired: onnx.ModelProto) -> RepairProof:
        """Compare a model that was changed in another way than by replacing nodes."""
        try:
            outputs = self._against(repaired)
        except ModelError as error:
            return RepairProof(allowed=self._tolerance, problem=str(error))
        return RepairProof(outputs=outputs, allowed=self._tolerance, samples=len(self._referred.samples))

    @property
    def _referred(self) -> "_Reference":
        """The samples, and the original's outputs for them; raises ModelError, each time, where there are none."""
        if self._reference is None:
            try:
                given = self._given()
                recorded = [*given.usual, *given.edge]
                inputs = {value.name for value in self._original.graph.input}
                samples = [{name: array for name, array in it.items() if name in inputs} for it in recorded]
                session = self._original_session()
                before = [dict(zip(self._outputs, _run(session, self._outputs, it), strict=True)) for it in samples]
                for sample, outputs in zip(recorded, before, strict=True):
                    demand_recorded(sample, outputs)
                self._reference = _Reference(samples=samples, usual=len(given.usual), outputs=before)
            except ModelError as error:
                self._reference = error
        if isinstance(self._reference, ModelError):
            raise self._reference
        return self._reference

    def _whole(self, chosen: Sequence[Candidate]) -> tuple[OutputDifference, ...]:
        repaired = replaced(self._original, {it.node: it.replacement for it in chosen})
        if self._original.graph.node and not repaired.graph.node:
            raise ModelError(english("the outputs are constants, so no node would be left"))
        return self._against(repaired, self._beyond_any(chosen))

    def _beyond_any(self, chosen: Sequence[Candidate]) -> set[int]:
        return {number for it in chosen for number in self._beyond.get(it.key, ())}

    def _against(self, repaired: onnx.ModelProto, beyond: Collection[int] = ()) -> tuple[OutputDifference, ...]:
        reference = self._referred
        repaired = around(repaired, self._facts.type)
        if len(repaired.graph.output) != len(self._ends):
            raise ModelError(english("it gives its custom ops other tensors than the model, so nothing can be proven"))
        session = _session(repaired, self._folder, "the repaired model")
        outputs = [value.name for value in repaired.graph.output]
        original = cache(self._original_session)
        worst: dict[str, OutputDifference] = {}
        for number, (sample, before) in enumerate(zip(reference.samples, reference.outputs, strict=True)):
            if number in beyond:
                continue
            after = _run(session, outputs, in_form_of(repaired, self._original, sample))
            pairs = {
                old.name: (before[old.name], in_form(new, declared, old))
                for declared, old, new in zip(repaired.graph.output, self._ends, after, strict=True)
            }
            allowed = {
                end.name: at_least(self._tolerance, epsilon_of(pairs[end.name][0], end.type.tensor_type.elem_type))
                for end in self._ends
            }
            self._compare(worst, pairs, allowed, partial(self._kept_leeways, number, original))
        return tuple(worst.values())

    def _kept_leeways(self, number: int, original: Callable[[], Session], names: Sequence[str]) -> list[np.ndarray]:
        """The leeway of these outputs of the model, which runs only for those that no proof has asked for before."""
        new = [name for name in names if (number, name) not in self._leeway]
        if new:
            referred = self._referred
            spaces = self._leeways(original(), referred.samples[number], referred.outputs[number], new)
            self._leeway.update(zip([(number, name) for name in new], spaces, strict=True))
        return [self._leeway[number, name] for name in names]

    def _original_session(self) -> Session:
        return _session(self._original, self._folder, "the model")

    def _shares(self, chosen: Sequence[Candidate]) -> Iterator[list[Candidate]]:
        """The places in groups whose fetched tensors fit into memory."""
        share: list[Candidate] = []
        held = 0
        for candidate in chosen:
            held += 2 * sum(size_of(self._facts.type(name)) or 0 for name in candidate.outputs)
            if share and held > _MOST_BYTES:
                yield share
                share, held = [], 0
            share.append(candidate)
        if share:
            yield share

    def _measured(self, chosen: Sequence[Candidate]) -> tuple[PlaceProof, ...]:
        model, pairs = _beside(self._original, chosen)
        needed = {name for it in chosen for check in it.checks for name in check.inputs}
        wanted = [name for it in chosen for pair in pairs[it.node] for name in pair]
        wanted += sorted(self._computed(model, needed).difference(wanted))
        _add_outputs(model, wanted, self._facts)
        session = _session(model, self._folder, "the repaired model")
        worst: dict[str, OutputDifference] = {}
        allowed: dict[str, Tolerance] = {}
        problems: dict[str, str] = {}
        for number, sample in enumerate(self._referred.samples):
            values = dict(zip(wanted, _run(session, wanted, sample), strict=True))
            both: dict[str, tuple[np.ndarray, np.ndarray]] = {}
            bounds: dict[str, Tolerance] = {}
            for candidate in chosen:
                outside = self._outside(candidate, {**sample, **values})
                # edge values are made up, and say nothing of the user's; but something has to be in the domain
                if outside and 0 < self._referred.usual <= number:
                    self._beyond.setdefault(candidate.key, set()).add(number)
                    continue
                if outside:
                    problems[candidate.node] = outside
                for old, new in pairs[candidate.node]:
                    both[old] = values[old], values[new]
                    bounds[old] = promised(candidate, epsilon_of(values[old], self._facts.dtype(old)))
                    allowed[candidate.node] = bounds[old]
            self._compare(worst, both, bounds, partial(self._leeways, session, sample, values))
        places = []
        for it in chosen:
            differences = tuple(worst[old] for old, _ in pairs[it.node])
            problem = problems.get(it.node, "") or next((too_far(each) for each in differences if not each.agrees), "")
            places.append(PlaceProof(candidate=it, differences=differences, allowed=allowed[it.node], problem=problem))
        return tuple(places)

    def _compare(
        self,
        worst: dict[str, OutputDifference],
        pairs: Mapping[str, tuple[np.ndarray, np.ndarray]],
        allowed: Mapping[str, Tolerance],
        leeways_of: Callable[[Sequence[str]], Sequence[np.ndarray]],
    ) -> None:
        """Add the difference of each tensor, before and after the change. Where numbers that need not be the same bit
        for bit differ by more than is `allowed`, they have the leeway that the original, run again, shows.
        """
        found = {name: difference(name, *pair, allowed[name]) for name, pair in pairs.items()}
        apart = [
            name
            for name, it in found.items()
            if not (it.agrees or it.form or it.unlike or allowed[name] == BIT_FOR_BIT)
        ]
        for name, leeway in zip(apart, leeways_of(apart) if apart else (), strict=True):
            found[name] = difference(name, *pairs[name], allowed[name], leeway)
        for it in found.values():
            _take(worst, it)

    def _leeways(
        self, session: Session, sample: Sample, before: Mapping[str, np.ndarray], names: Sequence[str]
    ) -> list[np.ndarray]:
        coarse = [it.name for it in self._original.graph.input if it.type.tensor_type.elem_type == _BFLOAT16]
        return leeways(lambda moved: _run(session, names, moved), sample, [before[name] for name in names], coarse)

    def _also_in_low_precision(self, places: Sequence[PlaceProof]) -> tuple[PlaceProof, ...]:
        low = self._low
        if low is None:
            return tuple(places)
        worst: dict[str, dict[str, OutputDifference]] = {place.candidate.node: {} for place in places}
        for some in self._shares([place.candidate for place in places]):
            piece = InLowPrecision(some, self._facts, low)
            model = onnx.ModelProto()
            model.CopyFrom(self._original)
            del model.graph.output[:]
            wanted = sorted(self._computed(model, piece.inputs))
            _add_outputs(model, wanted, self._facts)
            original = _session(model, self._folder, "the model")
            session = _session(piece.proto, self._folder, f"what is replaced, in {low.name}")
            for sample in self._referred.samples[: self._referred.usual]:
                tensors = dict(zip(wanted, _run(original, wanted, sample), strict=True)) if wanted else {}
                computed = _run(session, piece.outputs, piece.feeds({**sample, **tensors}))
                for candidate, found in piece.differences(dict(zip(piece.outputs, computed, strict=True))):
                    _take(worst[candidate.node], found)
        result = []
        for place in places:
            differences = tuple(worst[place.candidate.node].values())
            wrong = next((it for it in differences if not it.agrees), None)
            problem = "" if wrong is None else f"in {low.name}, which the target computes in: {too_far(wrong)}"
            result.append(replace(place, low=differences, problem=problem))
        return tuple(result)

    def _computed(self, model: onnx.ModelProto, names: Iterable[str]) -> set[str]:
        made = {name for node in model.graph.node for name in node.output}
        return {name for name in names if name in made}

    def _outside(self, candidate: Candidate, values: Mapping[str, np.ndarray]) -> str:
        """Which values are outside the domain that a rule requires; empty if none are."""
        for check in candidate.checks:
            inputs = [values[name] if name in values else self._facts.value(name) for name in check.inputs]
            if not check.domain.holds(inputs):
                return english(
                    "values outside of the domain of {rule} ({phrase}) occur",
                    rule=check.rule.id,
                    phrase=check.domain.text,
                )
        return ""


def _take(worst: dict[str, OutputDifference], found: OutputDifference) -> None:
    name = found.output
    worst[name] = worst[name].worst(found) if name in worst else found


def _beside(
    original: onnx.ModelProto, chosen: Sequence[Candidate]
) -> tuple[onnx.ModelProto, dict[str, list[tuple[str, str]]]]:
    """The original with all replacements added, their outputs under other names; and both names of each output."""
    model = onnx.ModelProto()
    model.CopyFrom(original)
    del model.graph.output[:]
    imported = {entry.domain for entry in model.opset_import}
    pairs: dict[str, list[tuple[str, str]]] = {}
    for candidate in chosen:
        made = {name for node in candidate.replacement.nodes for name in node.output if name}
        made |= {tensor.name for tensor in candidate.replacement.initializers}
        shared = [name for name in candidate.outputs if name in made]
        renamed = {name: name + _AFTER for name in shared}
        for node in candidate.replacement.nodes:
            model.graph.node.append(node)
            rename_in_node(model.graph.node[-1], renamed)
        for tensor in candidate.replacement.initializers:
            model.graph.initializer.append(tensor)
            name = model.graph.initializer[-1].name
            model.graph.initializer[-1].name = renamed.get(name, name)
        for domain, version in candidate.replacement.opsets.items():
            if domain not in imported:
                imported.add(domain)
                model.opset_import.append(helper.make_opsetid(domain, version))
        pairs[candidate.node] = [(name, renamed[name]) for name in shared]
    return model, pairs


def _add_outputs(model: onnx.ModelProto, names: Iterable[str], facts: TensorFacts) -> None:
    for name in dict.fromkeys(names):
        dtype = facts.dtype(name.removesuffix(_AFTER))
        if dtype is None:
            model.graph.output.append(helper.make_empty_tensor_value_info(name))
        else:
            model.graph.output.append(helper.make_tensor_value_info(name, dtype, None))


def _session(model: onnx.ModelProto, folder: Path, what: str) -> Session:
    try:
        return Session(model, folder)
    except Exception as error:  # onnxruntime's exceptions share no base class but this
        raise ModelError(f"onnxruntime does not load {what}, so nothing can be proven: {brief(str(error))}.") from error


def _run(session: Session, names: Sequence[str], sample: Sample) -> list[np.ndarray]:
    try:
        return [np.asarray(array) for array in session.run(names, sample, Clock(inf))]
    except Exception as error:  # as above
        raise ModelError(
            f"onnxruntime does not run the model, so nothing can be proven: {brief(str(error))}."
        ) from error
