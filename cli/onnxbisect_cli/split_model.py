"""`onnx-bisect split`: divides the model into pieces for the NPU and for the host, based on a report."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from onnxbisect.errors import BackendUnusableError, OptionError
from onnxbisect.finished import translated
from onnxbisect.input_value import InputValue
from onnxbisect.language import _
from onnxbisect.model import Model
from onnxbisect.model.loadable import lowered
from onnxbisect.model.read import original
from onnxbisect.model.wording import some
from onnxbisect.report import words
from onnxbisect.report.contents import Report
from onnxbisect.report.ranges import chosen
from onnxbisect.report.text import clean, plural
from onnxbisect.split import RUNNER, SHARE, Manifest, PieceKind, WrittenPiece, split
from onnxbisect.unitset import UnitSet, of
from onnxbisect.verdict import Status
from onnxbisect_backends import registry
from onnxbisect_backends.calibration import first_sample
from onnxbisect_backends.commands.any_command import CommandBackend
from onnxbisect_backends.contract import Backend, Limits, for_model, input_shapes
from onnxbisect_backends.custom_ops import CustomOps
from onnxbisect_backends.probing.loaded_model import LoadedModel
from onnxbisect_backends.probing.piece_compiler import COMPILED, PieceCompiler
from onnxbisect_backends.probing.search_context import search_context
from onnxbisect_backends.sandbox.process import kill_running
from onnxbisect_backends.sandbox.working_folder import working_folder
from onnxbisect_cli import reports, table
from onnxbisect_cli.signals import stopping
from onnxbisect_cli.speech import spoken

#: The folder of a split, in that of `--out`.
FOLDER = "split"


@dataclass(frozen=True, kw_only=True)
class SplitRequest:
    """The user's request. `backend` or `command` compile the NPU's pieces; without them none is compiled."""

    model: Path
    report: Path
    out: Path | None = None
    input_shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    input_values: Mapping[str, InputValue] = field(default_factory=dict)
    share: float | None = None
    backend: str | None = None
    command: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    seconds: float | None = None
    calibration: Path | None = None
    custom_ops: CustomOps = field(default_factory=CustomOps)


def run(request: SplitRequest) -> int:
    """Write and show the split; returns the exit status, 1 if it is not proven or a piece was refused."""
    report = reports.read(request.report)
    backend = _backend(request, report)
    shapes = {} if backend is None else input_shapes(backend)
    shapes = {**shapes, **request.input_shapes}
    sample = first_sample(request.custom_ops.samples, "--samples") or first_sample(request.calibration)
    loaded = LoadedModel(request.model, shapes, input_values=request.input_values, sample=sample)
    passed = _passed(report, loaded.model, request.report)
    if loaded.model.unbound:
        raise OptionError(f"Bind the dynamic dimensions of {some(loaded.model.unbound)} with --input-shape.")
    if note := lowered(loaded.model.proto):
        print(clean(f"onnx-bisect: {note}"), file=sys.stderr)
    folder = (request.out or (request.report if request.report.is_dir() else request.report.parent)) / FOLDER
    with stopping(_stop) as interruption:
        try:
            manifest = _split(request, loaded, passed, folder, backend, report)
        except KeyboardInterrupt:
            print("onnx-bisect: interrupted; nothing was written.", file=sys.stderr)
            return interruption.exit_code
    with spoken():
        _show(manifest, folder, report, asked=backend is not None)
    return 1 if manifest.refused or not manifest.proof.proven else 0


def _stop() -> NoReturn:
    kill_running()
    raise KeyboardInterrupt


def _split(
    request: SplitRequest,
    loaded: LoadedModel,
    passed: Sequence[UnitSet],
    folder: Path,
    backend: Backend | None,
    report: Report,
) -> Manifest:
    share = SHARE if request.share is None else request.share
    samples = request.custom_ops.for_proof(loaded.model, original(loaded.model))
    if backend is None:
        return split(loaded.model, passed, folder, share=share, target=report["target"], samples=samples)
    context = search_context(loaded, backend, request.calibration)
    with working_folder() as scratch:
        compiler = PieceCompiler(
            backend=for_model(backend, loaded.model.proto.graph),
            folder=scratch,
            limits=Limits() if request.seconds is None else Limits(seconds=request.seconds),
            samples=None if context.samples is None else context.samples.write,
        )
        probe_format = context.description.probe_format
        return split(
            loaded.model,
            passed,
            folder,
            share=share,
            probe_format=probe_format,
            target=report["target"],
            compile_piece=compiler,
            samples=samples,
        )


def _backend(request: SplitRequest, report: Report) -> Backend | None:
    """The compiler for the pieces, which must be the report's target."""
    if request.command:
        if request.backend is not None or request.options:
            raise OptionError("A command after '--' is the backend itself: leave --backend and --option out.")
        backend: Backend = CommandBackend(request.command)
    elif request.backend is not None:
        backend = registry.make(request.backend, dict(request.options))
    elif request.options:
        raise OptionError("--option is for a backend: name it with --backend.")
    else:
        return None
    same = backend.name == report["target"]["backend"] and _plain(backend.options) == report["target"]["options"]
    if not same:
        raise OptionError(f"The report is of another target: {words.target(report['target'])}. Name that one, or none.")
    if complaint := backend.check():
        raise BackendUnusableError(complaint)
    return backend


def _plain(options: Mapping[str, object]) -> object:
    """The options after a round trip through JSON, to compare them with those in a report."""
    return json.loads(json.dumps(options))


def _passed(report: Report, model: Model, path: Path) -> list[UnitSet]:
    """The sets of units that always compiled; OptionError if the report cannot be used."""
    about = report["model"]
    if about["sha256"] != model.sha256:
        raise OptionError(
            f"{path} is the report of another model, {about['name']} ({about['sha256'][:12]}…); "
            f"{model.path.name} is {model.sha256[:12]}…. Run the diagnosis of this one."
        )
    if report["verdict"] == Status.PASS:
        raise OptionError(f"{about['name']} compiles as a whole: there is nothing to split.")
    names = [model.proto.graph.node[unit.node].name for unit in model.units]
    verdicts: dict[UnitSet, set[str]] = {}
    try:
        agrees = report["units"]["names"] == names
        for probe in report["probes"]:
            verdicts.setdefault(of(chosen(probe["units"], len(names))), set()).add(probe["verdict"])
    except (AttributeError, KeyError, TypeError, ValueError):
        agrees = False
    if not agrees:
        raise OptionError(f"{path} is damaged, or of another version of onnx-bisect. Run the diagnosis again.")
    return [units for units, seen in verdicts.items() if Status.PASS in seen and Status.FAIL not in seen]


def _show(manifest: Manifest, folder: Path, report: Report, *, asked: bool) -> None:
    counts = [sum((piece.kind is PieceKind.NPU) is npu for piece in manifest.pieces) for npu in (True, False)]
    on_npu = sum(piece.share for piece in manifest.pieces if piece.kind is PieceKind.NPU)
    target = words.target(report["target"])
    print(clean(_("{model}, split for {target}", model=manifest.model.name, target=target)))
    shared = _(
        "{pieces} for the NPU with {share} of the work, {host} for the host, {transfers}",
        pieces=plural(counts[0], "piece"),
        share=f"{on_npu:.1%}",
        host=counts[1],
        transfers=plural(len(manifest.pieces) - 1, "transfer"),
    )
    print(f"  {shared}")
    print(f"  {_proof(manifest)}")
    print()
    columns = (_("file"), _("nodes"), _("work"), _("in"), _("out"), _("compiles"))
    table.show(columns, map(_row, manifest.pieces))
    print()
    for sentence in _to_do(manifest, folder, asked=asked):
        print(clean(sentence))


def _proof(manifest: Manifest) -> str:
    proof = manifest.proof
    if not proof.proven:
        return clean(_("not proven: {reason}", reason=translated(proof.reason)))
    samples = plural(proof.samples, "sample")
    return _(
        "proven: one after the other they give the model's outputs, bit for bit ({samples}, {runtime})",
        samples=samples,
        runtime=proof.runtime,
    )


def _row(piece: WrittenPiece) -> tuple[str, ...]:
    said = _("no") if piece.refused else _("yes") if piece.compiled else _("not known")
    compiles = "" if piece.compiled is None else said
    size = (str(len(piece.nodes)), f"{piece.share:.1%}", str(len(piece.inputs)), str(len(piece.outputs)))
    return (piece.file, *size, compiles)


def _to_do(manifest: Manifest, folder: Path, *, asked: bool) -> Iterator[str]:
    notes: dict[str, list[str]] = {}
    for piece in manifest.pieces:
        if piece.compiled is False:
            notes.setdefault(piece.note, []).append(piece.file)
    for note, files in notes.items():
        yield f"{', '.join(files)}: {translated(note)}"
    if notes and not asked:
        yield _("Name the compiler as for run (--backend, --option, or a command after '--') to compile each piece.")
    if (folder / COMPILED).is_dir():
        yield _("What the compiler made of the pieces is in {folder}.", folder=folder / COMPILED)
    yield _(
        "python {file} runs them in onnxruntime; replace its function run_on_npu by your NPU's runtime.",
        file=folder / RUNNER,
    )
