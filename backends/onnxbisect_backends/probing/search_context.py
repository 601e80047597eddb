"""A model combined with one target: cuts and compiles probes, computes their keys, and builds the job for reports."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import onnx

from onnxbisect import cut
from onnxbisect.diagnosis import (
    CertificateStatus,
    CompletedDiagnosis,
    Diagnosis,
    ProbeRecord,
    Stats,
    Target,
)
from onnxbisect.errors import CutError, OptionError
from onnxbisect.file_remedies import File, repaired
from onnxbisect.key import Keyer
from onnxbisect.model import Model
from onnxbisect.model.binding import is_unbound
from onnxbisect.model.external import external_tensors
from onnxbisect.model.facts import dims_of
from onnxbisect.model.values import TensorValues
from onnxbisect.preflight import DISPUTED, Finding, ToolLimits, after_pass, invalid_nodes, preflight
from onnxbisect.unitset import UnitSet, of
from onnxbisect.universe import Universe
from onnxbisect.verdict import Status
from onnxbisect_backends.calibration import Calibration, calibration_of, read_calibration
from onnxbisect_backends.contract import (
    Backend,
    Description,
    Limits,
    for_model,
    input_shapes,
    own_samples,
    vendor_files,
)
from onnxbisect_backends.probing.boundary_limits import with_known_limits
from onnxbisect_backends.probing.identity import target_identity
from onnxbisect_backends.probing.loaded_model import LoadedModel, demand_static
from onnxbisect_backends.probing.prober import CulpritFiles, Keep, Prober
from onnxbisect_backends.samples import samples_folder, write_samples
from onnxbisect_backends.verifying import as_compared

_MADE_UP = (
    "The input samples that the compiler was given come from made-up inputs of the model; --samples gives it your own."
)


class Sampling:
    """The values of one model's tensors in each of `count` samples: the user's, or generated ones.

    `digest` is that of the user's samples, empty without; it is part of the identity of verdicts.
    """

    def __init__(self, model: Model, given: Calibration | None, count: int) -> None:
        self._own = given is not None
        self.digest = "" if given is None else given.digest
        self._values = TensorValues(model, given=() if given is None else given.samples, count=count)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user about the samples."""
        return (*(() if self._own else (_MADE_UP,)), *self._values.notes)

    def write(self, probe: Path, renamed: Mapping[str, str]) -> None:
        """Write the samples of a probe beside it. Not thread-safe."""
        write_samples(probe, renamed, self._values, own=self._own)


def sampling(model: Model, calibration: Path | None, count: int, backend: Backend | None = None) -> Sampling | None:
    """The samples for a target that needs `count` of them beside each probe; None if it needs none.

    They are the user's at `calibration`, or those that the backend's options name, or generated. Raises OptionError if
    they do not fit the model.
    """
    if not count:
        return None
    inputs = model.proto.graph.input
    if calibration is not None:
        return Sampling(model, read_calibration(calibration, inputs, count, bound=model.input_values), count)
    named = None if backend is None else own_samples(backend, inputs, count)
    return Sampling(model, None if named is None else calibration_of(named), count)


_REMEDIES = ("lower-opset", "lower-ir-version")


def readable(piece: cut.Piece, model: Model, limits: ToolLimits) -> cut.Piece:
    """The piece of this model, lowered as far as it can be where it is newer than the tool reads.

    Nodes that have another form in the older operator set are written in that form; the others stay as they are.
    """
    if not is_newer(piece.proto, limits):
        return piece
    file = File(proto=piece.proto, types=model.types, known=model.known, folder=model.path.parent)
    return replace(piece, proto=repaired(file, _REMEDIES, limits).proto)


def is_newer(proto: onnx.ModelProto, limits: ToolLimits) -> bool:
    """Whether its version of the format or its operator set is newer than the tool reads."""
    newer_ir = limits.newest_ir is not None and proto.ir_version > limits.newest_ir
    return newer_ir or (limits.newest_opset is not None and _opset(proto) > limits.newest_opset)


def version_changes(before: onnx.ModelProto, after: onnx.ModelProto) -> str:
    """The versions in which they differ: `operator set 17 and ir_version 10`."""
    opset = f"operator set {_opset(after)}" if _opset(after) != _opset(before) else ""
    ir = f"ir_version {after.ir_version}" if after.ir_version != before.ir_version else ""
    return " and ".join(filter(None, (opset, ir)))


def _opset(proto: onnx.ModelProto) -> int:
    return next((it.version for it in proto.opset_import if it.domain in ("", "ai.onnx")), 0)


@dataclass(frozen=True, kw_only=True)
class SearchContext:
    """A model combined with the description of one target.

    `universe` is the model's, with variants split where this target treats equal units differently; planners use it.
    `samples` writes input samples beside every probe, None for targets that need none. Cutting and reporting do not
    need the compiler itself.

    The whole model is compiled as its file has it (`write_as_written`), and its parts in the target's probe format. A
    `piece` was cut from a model and is no file of a user, so all of it is written in that format.
    """

    loaded: LoadedModel
    description: Description
    target: Target
    universe: Universe
    samples: Sampling | None
    piece: bool = False

    @cached_property
    def identity(self) -> str:
        """The identity under which this target's verdicts are kept."""
        return target_identity(self.target, self.description.probe_format, self.description.environment)

    @property
    def tool_limits(self) -> ToolLimits:
        """The tool's limits, for the preflight and the file remedies."""
        return ToolLimits(
            tool=self.description.tool,
            newest_ir=self.description.newest_ir,
            newest_opset=self.description.newest_opset,
            oldest_opset=self.description.oldest_opset,
            probe_format=self.description.probe_format,
            disputed=self.description.disputed,
        )

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """The preflight's findings, before any compile."""
        return tuple(preflight(self.loaded.model, self.tool_limits))

    def key(self, units: UnitSet, *, as_part: bool = False) -> str:
        """The canonical structure of a probe; equal probes have equal keys. The whole model's is that of its file."""
        if self._is_file(units) and not as_part:
            return self.loaded.file_key
        return self._keyer.key(units)

    def write(self, units: UnitSet, path: Path) -> Mapping[str, str]:
        """Write the whole model as its file has it, a part in the target's probe format (`prober.WriteProbe`)."""
        if self._is_file(units):
            cut.write_as_written(self.loaded.model, self.loaded.input_shapes, path)
            return {}
        return self.write_part(units, path)

    def write_part(self, units: UnitSet, path: Path) -> Mapping[str, str]:
        """Write the piece, or all of the model, in the target's probe format (`prober.WriteProbe`)."""
        piece = self._cut(units)
        unbound = [value.name for value in piece.proto.graph.input if is_unbound(value.type)]
        if unbound and self.description.needs_static:
            raise CutError(
                f"{self.description.tool} needs static shapes, and that of the input '{unbound[0]}' is not known"
            )
        cut.write(piece, self.loaded.model, path)
        return piece.renamed

    @cached_property
    def forms_differ(self) -> bool:
        """Whether the whole model written as its parts are is another file than the user's."""
        if self.piece:
            return False
        loaded = self.loaded
        written = cut.as_written(loaded.model, loaded.input_shapes)
        part = self._cut(self.universe.everything)
        moved = part.probe_format.self_contained and bool(external_tensors(written))
        return moved or not cut.same_but_for_names(written, part.proto)

    def _is_file(self, units: UnitSet) -> bool:
        return not self.piece and units == self.universe.everything

    def prober(self, backend: Backend, folder: Path, limits: Limits, keep: Path | None = None) -> Prober:
        """Compiles probes, each in a folder of its own below `folder`.

        The compiler's output on the whole model goes into `keep`.
        """
        return Prober(
            write=self.write,
            write_part=self.write_part,
            backend=for_model(backend, self.loaded.model.proto.graph),
            limits=limits,
            objection=self.loaded.validity.objection,
            folder=folder,
            samples=None if self.samples is None else self.samples.write,
            keep=None if keep is None else Keep(units=self.universe.everything, folder=keep),
        )

    def culprit_files(self, folder: Path, backend: Backend | None = None) -> CulpritFiles:
        """Cuts culprits again, to hand them out; `folder` must last as long as the files are needed.

        With a backend, the files for the vendor's support are added (`contract.vendor_files`).
        """
        if backend is None:
            return CulpritFiles(self.write, folder)
        bound, samples = for_model(backend, self.loaded.model.proto.graph), self.samples

        def accompany(probe: Path, renamed: Mapping[str, str]) -> None:
            if samples is not None:
                samples.write(probe, renamed)
            vendor_files(bound, probe)
            shutil.rmtree(samples_folder(probe), ignore_errors=True)

        return CulpritFiles(self.write, folder, accompany)

    def job(self, diagnosis: Diagnosis, probes: Sequence[ProbeRecord], stats: Stats) -> CompletedDiagnosis:
        """The input of a report: the model with the searched universe, and the results."""
        model, samples = self.loaded.model, self.samples
        passed = diagnosis.verdict is Status.PASS
        doubts = [f"Real runs contradicted the profile. {detail}." for detail in self._disputed]
        if self.description.values_matter:
            whole = self.universe.everything
            said = (it.verdict.message for it in probes if it.units == whole and it.verdict.passed)
            doubts += filter(None, dict.fromkeys(said))  # why nothing was compared
        certificate = diagnosis.certificate
        if self._disputed:
            ops = ", ".join(detail.partition(":")[0] for detail in self._disputed)
            unknown = (
                f"whether the profile is right about {ops}: real runs contradicted it (see the notes about the model)"
            )
            certificate = replace(
                certificate, status=CertificateStatus.BOUNDED, unknown=(*certificate.unknown, unknown)
            )
        notes = (*model.notes, *(() if passed else self._lowered), *(() if samples is None else samples.notes), *doubts)
        return CompletedDiagnosis(
            model=replace(model, universe=self.universe, notes=notes),
            target=self.target,
            diagnosis=replace(diagnosis, certificate=certificate),
            probes=tuple(probes),
            preflight=after_pass(self.tool_limits, self.findings) if passed else self.findings,
            stats=stats,
        )

    @cached_property
    def _disputed(self) -> tuple[str, ...]:
        """Details of the ops about which real runs contradicted what answers for the compiler."""
        return tuple(finding.detail for finding in self.findings if finding.id == DISPUTED)

    @cached_property
    def _lowered(self) -> tuple[str, ...]:
        """A note on the versions of pieces, where they are not those of the file."""
        model = self.loaded.model.proto
        if self.description.newer_unfolded or not is_newer(model, self.tool_limits):
            return ()
        try:
            piece = self._cut(1).proto  # of any unit
        except CutError:
            return ()
        if not (changed := version_changes(model, piece)):
            return ()
        return (f"Pieces were written at {changed}, which {self.description.tool} reads; the file was not.",)

    @cached_property
    def _keyer(self) -> Keyer:
        return _keyer(self.loaded.model, self.description)

    def _cut(self, units: UnitSet) -> cut.Piece:
        """The piece in the target's probe format; one that is newer than the tool takes is written for it."""
        piece = self.loaded.cutter.cut(units, self.description.probe_format)
        return piece if self.description.newer_unfolded else readable(piece, self.loaded.model, self.tool_limits)


def search_context(
    loaded: LoadedModel, backend: Backend, calibration: Path | None = None, *, piece: bool = False
) -> SearchContext:
    """Combine the model with a target that can be used (`Backend.check`); `calibration` holds samples of its inputs.

    A `piece` was cut from another model (`SearchContext.piece`).

    Raises ModelError if the target does not accept such a model, OptionError if options or samples do not fit it.
    """
    model = loaded.model
    kinds = {value.name: value.type for value in model.proto.graph.input}
    for name, dims in input_shapes(backend).items():
        if name in kinds and not is_unbound(kinds[name]) and dims_of(kinds[name]) != tuple(dims):
            wanted, read = ("x".join(map(str, it)) for it in (dims, dims_of(kinds[name])))
            raise OptionError(
                f"The options of {backend.name} make the input '{name}' {wanted}, and --input-shape makes it {read}; "
                "leave one out."
            )
    bound = for_model(backend, model.proto.graph)
    description = as_compared(bound, with_known_limits(backend, bound.describe()))
    backend = bound
    limits = ToolLimits(tool=description.tool, newest_ir=description.newest_ir, newest_opset=description.newest_opset)
    if description.newer_unfolded and is_newer(model.proto, limits):
        description = replace(description, probe_format=replace(description.probe_format, folds=False))
    demand_static(model, backend, description)
    samples = sampling(model, calibration, description.samples, backend)
    target = Target(
        backend=backend.name,
        tool=description.tool,
        version=description.version,
        options=backend.options,
        calibration="" if samples is None else samples.digest,
    )
    known = cut.split_variants(model.universe, _special_units(model, description))
    required = cut.producers_required_by_type(model, description.probe_format, static=description.needs_static)
    doubted, invalid = (
        of(model.unit_of_node[name] for name in names if name in model.unit_of_node)
        for names in (loaded.doubted, () if piece else invalid_nodes(model))
    )
    universe = replace(
        known,
        required_producers=required,
        size_makers=cut.makers_of_open_sizes(model) if description.needs_static else {},
        advertised=description.ops,
        doubted=doubted,
        invalid=invalid,
    )
    if not description.probe_format.folds:
        constant = cut.producers_of_constants(model)
        required = {it: required.get(it, 0) | constant.get(it, 0) for it in sorted({*required, *constant})}
        universe = cut.split_variants_by_producers(replace(universe, required_producers=required))
    if description.weights_matter or description.values_matter:
        # Units of one solo now have equal keys; variants stay, so they are still asked together.
        keyer = _keyer(model, description)
        numbers: dict[tuple[int, str], int] = {}
        told = tuple(
            numbers.setdefault((solo, keyer.key(1 << unit)), len(numbers)) for unit, solo in enumerate(universe.solo)
        )
        universe = replace(universe, solo=told, weightless=universe.solo)
    return SearchContext(
        loaded=loaded,
        description=description,
        target=target,
        universe=universe,
        samples=samples,
        piece=piece,
    )


def _keyer(model: Model, description: Description) -> Keyer:
    special = _special_units(model, description)
    return Keyer(model, weights=description.weights_matter, special_units=special, values=description.values_matter)


def _special_units(model: Model, description: Description) -> frozenset[int]:
    """The units that this target may treat otherwise than equal units elsewhere in the model."""
    return cut.unguarded_outputs(model, description.probe_format.covered) | cut.touching(model, description.named)
