"""`onnx-bisect split`: divides the model into pieces for the NPU and for the host, based on a report."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from onnx_bisect import split
from onnxbisect.finished import translated
from onnxbisect.language import _
from onnxbisect.report import words
from onnxbisect.report.contents import Report
from onnxbisect.report.text import clean, plural
from onnxbisect.split import RUNNER, Manifest, PieceKind
from onnxbisect_backends.contract import Backend
from onnxbisect_backends.probing.prober import COMPILED
from onnxbisect_backends.sandbox.process import kill_running
from onnxbisect_cli import reports
from onnxbisect_cli.exit_status import stopping
from onnxbisect_cli.speech import show_line, show_table, spoken

#: The folder of a split, in that of `--out`.
FOLDER = "split"


def run(model: Path, place: Path, out: Path | None, backend: Backend | None, **settings: Any) -> int:
    """Write and show the split; returns the exit status, 1 if it is not proven or a piece was refused.

    The report is at `place`; `settings` are those of `onnx_bisect.split`.
    """
    report = reports.read(place)
    with stopping(_stop) as interruption:
        try:
            made = split(
                model,
                report,
                (out or (place if place.is_dir() else place.parent)) / FOLDER,
                backend=backend,
                **settings,
                progress=lambda event: show_line(f"onnx-bisect: {event}"),
            )
        except KeyboardInterrupt:
            print("onnx-bisect: interrupted; nothing was written.", file=sys.stderr)
            return interruption.exit_code
    with spoken():
        _show(made.manifest, made.folder, report, asked=backend is not None)
    return 1 if made.refused or not made.proven else 0


def _stop() -> NoReturn:
    kill_running()
    raise KeyboardInterrupt


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
    proof = manifest.proof
    proven = clean(_("not proven: {reason}", reason=translated(proof.reason)))
    if proof.proven:
        proven = _(
            "proven: one after the other they give the model's outputs, bit for bit ({samples}, {runtime})",
            samples=plural(proof.samples, "sample"),
            runtime=translated(proof.runtime),
        )
    print(f"  {proven}")
    print()
    columns = (_("file"), _("nodes"), _("work"), _("in"), _("out"), _("compiles"))
    rows = []
    for piece in manifest.pieces:
        said = _("no") if piece.refused else _("yes") if piece.compiled else _("not known")
        size = (str(len(piece.nodes)), f"{piece.share:.1%}", str(len(piece.inputs)), str(len(piece.outputs)))
        rows.append((piece.file, *size, "" if piece.compiled is None else said))
    show_table(columns, rows)
    print()
    for sentence in _to_do(manifest, folder, asked=asked):
        print(clean(sentence))


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
