"""`fix`: changes a model so that the compiler accepts it, proves the changes, and reports what it could not repair."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Unpack

from onnx_bisect.backend_choice import BackendChoice, texts
from onnx_bisect.diagnosing import usable_backend
from onnx_bisect.events import Note, Progress
from onnx_bisect.keywords import with_keywords
from onnx_bisect.models import InputValues, Shapes, Source, load_model
from onnx_bisect.result import ShownRepair
from onnx_bisect.searching import Cancellation, Searches, Searching, other_options
from onnx_bisect.steps.repair_compiler import REPAIRED, NamedOptions, RepairCompiler, copy_data
from onnx_bisect.steps.repairing import REPORT, repair_model, written
from onnxbisect.diagnosis import Alternative, Diagnosis
from onnxbisect.errors import OptionError
from onnxbisect.remedies import Repair, SearchedModel
from onnxbisect.remedies.document import RepairDocument
from onnxbisect.report.files import put
from onnxbisect.terms import CallTerms, RepairKeywords, RepairTerms, made
from onnxbisect_backends import contract
from onnxbisect_backends.calibration import first_sample
from onnxbisect_backends.custom_ops import CustomOps
from onnxbisect_backends.folders import working_folder
from onnxbisect_backends.other_options import OtherOptions
from onnxbisect_backends.probing.loaded_model import LoadedModel
from onnxbisect_backends.probing.search_context import search_context


@dataclass(frozen=True, kw_only=True)
class FixResult(ShownRepair):
    """The result of a repair. `document` has the contents of repair.json (docs/fix.md)."""

    document: RepairDocument
    repair: Repair = field(repr=False, compare=False)
    source: Path = field(repr=False, compare=False)

    @property
    def compiles(self) -> bool:
        """Whether the compiler accepts the model, after repairs if any were needed."""
        return self.repair.compiles

    @property
    def repaired(self) -> bool:
        """Whether there is a repaired model; it may still have culprits (`document.left`)."""
        return self.repair.model is not None

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the repaired model, and beside it the data files of the original. Returns the path.

        Raises OptionError if nothing was repaired or the file cannot be written.
        """
        path = Path(path)
        if self.repair.model is None:
            raise OptionError(f"There is no repaired model: {self.headline}")
        try:
            copy_data(self.repair.model, self.source.parent, path.parent)
            return put(path, self.repair.model.SerializeToString(deterministic=True))
        except OSError as error:
            raise OptionError(f"{path} cannot be written: {error.strerror or error}.") from error

    def write(self, folder: str | PathLike[str]) -> list[str]:
        """Write the files of `onnx-bisect fix` into a folder, and return their names: the repaired model, if there is
        one; the report on remaining culprits, if there are any; and the applied changes as Markdown and JSON.

        Raises OptionError or OSError if a file cannot be written.
        """
        out = Path(folder)
        out.mkdir(parents=True, exist_ok=True)
        for name in (REPAIRED, REPORT):
            (out / name).unlink(missing_ok=True)  # it may be of an earlier repair
        files = written(self.repair, self.document)
        for name, content in files.items():
            if name == REPAIRED:
                self.save(out / name)
            else:
                put(out / name, content)
        return list(files)


@with_keywords(CallTerms, RepairTerms)
def fix(
    model: Source,
    *,
    backend: BackendChoice,
    options: Mapping[str, object] | None = None,
    input_shapes: Shapes | None = None,
    input_values: InputValues | None = None,
    custom_ops: Mapping[str, str] | None = None,
    jobs: int = 1,
    calibration: str | PathLike[str] | None = None,
    cache: bool = True,
    progress: Progress | None = None,
    cancellation: Cancellation | None = None,
    **terms: Unpack[RepairKeywords],
) -> FixResult:
    """Repair a model: diagnose it, replace culprits, prove that the outputs stay the same, compile, and repeat.

    Changes of the whole file are tried first, then rules for single nodes. Changes of lesser exactness than `allow`
    and changes whose proof fails are not applied. A proof runs both models in onnxruntime on `samples` (a folder,
    zip or tar of .npz keyed by input names), on `count` random inputs and on as many inputs with edge values; the
    outputs must agree within `tolerance`. Ops that onnxruntime does not know are computed by the functions of
    `custom_ops` (`domain:name` to `FILE.py:FUNCTION`), or taken from tensors in the samples (docs/custom-ops.md).
    With `alternatives`, the culprits are compiled with other options before they are replaced. The other arguments
    are those of `diagnose`; all compiles share the budgets.

    Raises the errors of `diagnose`, and OptionError for dynamic dimensions that `input_shapes` does not bind.
    """
    wanted = made(RepairTerms, terms)
    chosen = usable_backend(backend, options or {}, jobs)
    others = other_options(backend, options or {}, wanted.alternatives)
    in_messages = OtherOptions.in_messages(backend, texts(options or {}))
    calibration_path = None if calibration is None else Path(calibration)
    sample = first_sample(wanted.sample_path, "--samples") or first_sample(calibration_path)
    loaded = load_model(model, {**contract.input_shapes(chosen), **(input_shapes or {})}, input_values, sample)
    chosen = contract.for_model(chosen, loaded.model.proto.graph)
    tell = progress or (lambda event: None)
    known = CustomOps(samples=wanted.sample_path, functions=custom_ops or {})
    searching = Searching(
        backend=chosen,
        terms=made(CallTerms, terms),
        jobs=jobs,
        cache=cache,
        progress=tell,
        cancellation=cancellation or Cancellation(),
    )
    with working_folder() as work:
        searches = Searches(searching, calibration_path, searching.budget)

        def asked(model: LoadedModel, diagnosis: Diagnosis) -> Sequence[Alternative]:
            if others is None:
                return ()
            answers = searching.tried(others, model, diagnosis, calibration_path, searches.left)
            searches.spend(sum(it.calls for it in answers))
            return answers

        def with_options(model: LoadedModel, _: Mapping[str, str], backend: contract.Backend) -> SearchedModel:
            # an option may make a compile long: the rest of the time is for the repair without it
            found = Searches(replace(searching, backend=backend), calibration_path, searches.left.half)(
                model, piece=False, whole=True
            )
            searches.spend(found.job.stats.compiler_calls)
            return found

        def say(sentence: str) -> None:
            tell(Note(sentence=sentence))

        compiler = RepairCompiler(
            loaded=loaded,
            search=searches,
            context_of=lambda loaded, piece: search_context(
                loaded, chosen, None if piece else calibration_path, piece=piece
            ),
            folder=work,
            named=None if in_messages is None else NamedOptions(options=in_messages, ask=with_options),
            tell=say,
        )
        context = search_context(loaded, chosen, calibration_path)
        found, told = repair_model(compiler, context, wanted, known, asked)
    return FixResult(document=told, repair=found, source=loaded.model.path)
