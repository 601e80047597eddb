"""`diagnose`: searches a model for the parts that a compiler refuses."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from threading import Lock

from onnx_bisect.alternatives import other_options, tried
from onnx_bisect.backend_choice import BackendChoice, chosen_backend
from onnx_bisect.cancellation import Cancellation
from onnx_bisect.driver import Budget, Driver, Ended
from onnx_bisect.events import Note, Progress, SearchEnded
from onnx_bisect.models import Shapes, Source, loaded
from onnx_bisect.reproducing import started_from
from onnx_bisect.result import Result, with_repro
from onnx_bisect.searching import Searches, Searching
from onnxbisect.alternatives import Alternative
from onnxbisect.errors import BackendUnusableError, ModelError, OptionError
from onnxbisect.job import CompilesAfter
from onnxbisect.preflight import NEWER_THAN_TOOL
from onnxbisect.remedies import Found
from onnxbisect.report import model_explorer
from onnxbisect.report.contents import Report
from onnxbisect.report.document import document
from onnxbisect.report.graph import network_of
from onnxbisect.session import Ending
from onnxbisect.verdict import Status
from onnxbisect_backends import contract
from onnxbisect_backends.contract import Backend
from onnxbisect_backends.other_options import Wanted
from onnxbisect_backends.probing.changed_files import compiles_after, may_be_changed
from onnxbisect_backends.probing.confirming import Told, confirmed
from onnxbisect_backends.probing.inquiry import Inquiry, inquire
from onnxbisect_backends.probing.intake import Intake
from onnxbisect_backends.probing.repair_compiler import RepairCompiler
from onnxbisect_backends.sandbox.working_folder import working_folder


def diagnose(
    model: Source,
    *,
    backend: BackendChoice,
    options: Mapping[str, object] | None = None,
    input_shapes: Shapes | None = None,
    jobs: int = 1,
    budget_calls: int | None = None,
    budget_seconds: float | None = None,
    timeout: float | None = None,
    recheck: bool = False,
    calibration: str | PathLike[str] | None = None,
    cache: bool = True,
    files: bool = True,
    artifacts: str | PathLike[str] | None = None,
    as_is: bool = False,
    alternatives: Wanted | None = None,
    confirm_causes: int = 0,
    progress: Progress | None = None,
    cancellation: Cancellation | None = None,
) -> Result:
    """Find every part of the model that the compiler refuses, and prove that nothing else is wrong.

    If the model fails and the preflight found a problem that a change of the whole file can solve, such as an IR
    version that is too new, up to four changed files are compiled first. If one of them compiles, the result names the
    change (`compiles_after`) and the parts are not searched. `as_is` skips this step.

    `model` is the path of an ONNX file, or an `Intake` of it, which several calls may share. `backend` is the name of a
    backend (`backends()` lists them), the path of a TOML file, an object with the protocol
    `onnxbisect_backends.contract.Backend`, or a function that takes the path of a model and returns whether it
    compiles, as a bool or a Verdict.

    `options` are passed to the backend. `input_shapes` binds dynamic dimensions of inputs. `jobs` is the number of
    compiles at a time; a function is called from as many threads. When the budget of calls or seconds is used up, the
    search ends and the result says what is known. `timeout` limits each compile, in seconds. `recheck` repeats the
    compiles that decide the result until their verdicts agree. `calibration` is a file or folder with samples of the
    model's inputs. With `cache`, verdicts are read from and stored in the user's verdict base, but never those of a
    function. With `files`, every culprit's own file is compiled, so that it can be saved. `artifacts` is a folder for
    the compiler's output on the whole model, if it compiles; if its verdict is cached, it is compiled once more.

    `alternatives` are other values of options, such as `{"precision": ["fp16", "bf16"]}`. After the search, each
    culprit's own file is compiled with each of these values, and the whole model if all culprits compile. An empty
    list, as in `{"version": []}`, stands for the values that the backend suggests; `"all"` stands for the suggested
    values of all options.

    With `confirm_causes`, up to so many more compiles are made after the search, of culprits with one property
    changed. The causes then name changes that compile, such as `Gather with indices of rank 1`.

    `progress` is called with each event; `cancellation` ends the search from another thread (docs/library.md). Raises
    OptionError for wrong arguments, ModelError for an invalid model, BackendUnusableError if the compiler cannot be
    called, and ShortageError if this machine runs out of a resource, such as disk space.
    """
    chosen = usable_backend(backend, options or {}, jobs)
    others = other_options(backend, options or {}, alternatives)
    samples = None if calibration is None else Path(calibration)
    intake = loaded(model, {**contract.input_shapes(chosen), **(input_shapes or {})})
    inquiry = inquire(intake, chosen, samples)
    tell = progress or (lambda event: None)
    if calibration is not None and inquiry.samples is None:
        tell(Note(sentence=f"{chosen.name} takes no input samples; calibration changes nothing for it."))
    for finding in inquiry.findings:
        if finding.id in NEWER_THAN_TOOL:  # before the search, so that the user can stop it and change the model
            tell(Note(sentence=f"{finding.detail}. {finding.why} {finding.fix}"))
    searching = Searching(
        backend=chosen,
        jobs=jobs,
        timeout=timeout,
        recheck=recheck,
        cache=cache,
        progress=tell,
        cancellation=cancellation or Cancellation(),
    )
    kept = None if artifacts is None else Path(artifacts)
    budget = Budget(calls=budget_calls, seconds=budget_seconds)
    with working_folder() as folder:
        culprit_files = inquiry.culprit_files(folder)
        digests = (lambda pieces: {units: culprit_files.digest(units) for units in pieces}) if files else None
        with searching.driver(inquiry, folder, budget, digests, kept) as driver:
            after = None if as_is else _compiles_after(driver, inquiry, searching, samples)
            # if a changed file compiles, only the recorded verdict of the whole model is needed
            ended = driver.run() if after is None else driver.ask_whole()
            if kept is not None and ended.diagnosis.verdict is Status.PASS and not kept.exists():
                ended = _compiled_again(driver, ended, tell)
        if after is not None:
            unsearched = replace(ended.diagnosis, culprits=(), needs_context=())
            ended = replace(ended, diagnosis=unsearched, ending=Ending.COMPILES_AFTER)
        asked: tuple[Alternative, ...] = ()
        if others is not None and ended.diagnosis.verdict is not Status.PASS:
            asked = tried(others, inquiry.intake, ended.diagnosis, searching, samples, driver.budget_left)
        job = inquiry.job(ended.diagnosis, ended.records, ended.stats)
        job = replace(job, compiles_after=after, alternatives=asked)
        if confirm_causes and ended.ending is Ending.FINISHED:
            left = driver.budget_left.without(calls=sum(it.calls for it in asked), seconds=0)
            job = confirmed(
                job,
                inquiry.intake,
                partial(_told, Searches(searching.quiet, None, left)),
                folder,
                most=confirm_causes,
                tell=lambda sentence: tell(Note(sentence=sentence)),
            )
        tell(SearchEnded(ending=ended.ending))
        report = document(job)
        if files:
            culprits = ended.diagnosis.culprits
            report = with_repro(report, [culprit_files.is_seen(culprit, ended.answers) for culprit in culprits])
        if (place := started_from(searching.backend)) is not None:
            report["reproduce"] = place
    return Result.of(report, _OwnFiles(inquiry, searching.backend, ended, report), ending=ended.ending, job=job)


def _compiles_after(
    driver: Driver, inquiry: Inquiry, searching: Searching, calibration: Path | None
) -> CompilesAfter | None:
    """The change of the whole file after which the model compiles, if one is found (`changed_files.compiles_after`).

    Its compiler calls are added to those of `driver`.
    """
    if not may_be_changed(inquiry):
        return None
    ended = driver.ask_whole()
    whole = Found(job=inquiry.job(ended.diagnosis, ended.records, ended.stats))
    if ended.ending is Ending.CANCELLED or whole.diagnosis.verdict is not Status.FAIL:
        return None
    with working_folder() as folder:
        compiler = RepairCompiler(
            intake=inquiry.intake,
            search=Searches(searching.quiet, calibration, driver.budget_left),
            inquire=lambda intake, piece: inquire(intake, searching.backend, None if piece else calibration),
            folder=folder,
        )
        found = compiles_after(whole, inquiry, compiler, lambda sentence: searching.progress(Note(sentence=sentence)))
    driver.spend(compiler.calls)
    return found


def _told(searches: Searches, neighbour: Path) -> Told:
    try:
        found = searches(Intake(neighbour, {}), piece=True, whole=True)
    except ModelError:  # the target cannot be given this model
        return Told(status=Status.UNRESOLVED)
    return Told(status=found.diagnosis.verdict, calls=found.job.stats.compiler_calls, stopped=found.stopped)


def _compiled_again(driver: Driver, ended: Ended, tell: Progress) -> Ended:
    """Compile the whole model again for its artifacts: its verdict came from the cache, which keeps no artifacts."""
    asked = driver.probes.ask(driver.universe.everything, driver.budget_left.seconds)
    if asked.answer is None or not asked.answer.verdict.passed:
        said = asked.answer.verdict.message if asked.answer is not None else "the budget has ended."
        tell(Note(sentence=f"The model is known to compile, but compiling it again for its artifacts failed: {said}"))
    return replace(ended, stats=replace(ended.stats, compiler_calls=ended.stats.compiler_calls + 1))


def usable_backend(backend: BackendChoice, options: Mapping[str, object], jobs: int) -> Backend:
    """Create the backend and check that its compiler can be called.

    Raises OptionError for a wrong argument, BackendUnusableError if the compiler cannot be called.
    """
    if jobs < 1:
        raise OptionError(f"jobs is {jobs}; at least one compiler has to run.")
    chosen = chosen_backend(backend, options)
    if complaint := chosen.check():
        raise BackendUnusableError(complaint)
    return chosen


class _OwnFiles:
    """The attachments of a diagnosis in this process, cut again from the model file, which must not have changed."""

    def __init__(self, inquiry: Inquiry, backend: Backend, ended: Ended, report: Report) -> None:
        self._inquiry = inquiry
        self._backend = backend
        self._ended = ended
        self._report = report
        self._cutting = Lock()

    def of_culprit(self, number: int, folder: Path) -> Mapping[str, Path | bytes]:
        culprit = self._ended.diagnosis.culprits[number - 1]
        with self._cutting:
            return self._inquiry.culprit_files(folder, self._backend).files(culprit, self._ended.answers)

    def pictures(self) -> Mapping[str, bytes]:
        return model_explorer.files(network_of(self._inquiry.intake.model), self._report)
