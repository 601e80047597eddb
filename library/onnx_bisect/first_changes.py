"""Changes of the whole file, tried before the parts of a model are searched."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from onnx_bisect.driver import Driver
from onnx_bisect.events import Note, Progress
from onnx_bisect.searching import Searches, Searching
from onnxbisect.errors import ModelError
from onnxbisect.file_remedies import Candidate
from onnxbisect.job import CompilesAfter
from onnxbisect.remedies import Found
from onnxbisect.rewrites import Exactness
from onnxbisect.session import Ending
from onnxbisect.verdict import Status
from onnxbisect_backends.probing.inquiry import Inquiry, inquire
from onnxbisect_backends.probing.repair_compiler import RepairCompiler
from onnxbisect_backends.probing.repairing import changed_files, may_be_changed
from onnxbisect_backends.sandbox.working_folder import working_folder


def compiles_after(
    driver: Driver, inquiry: Inquiry, searching: Searching, calibration: Path | None
) -> CompilesAfter | None:
    """The first change of the whole file after which the compiler takes the model; None where it takes it as it is,
    nothing was found that a change would answer, or none helps.

    The calls are added to those of `driver`, which asks about the model as it is. No numbers are compared, and nothing
    is kept of the changed files but the verdicts.
    """
    if not may_be_changed(inquiry):
        return None
    ended = driver.ask_whole()
    whole = Found(job=inquiry.job(ended.diagnosis, ended.records, ended.stats))
    if ended.ending is Ending.CANCELLED or whole.diagnosis.verdict is not Status.FAIL:
        return None
    for line in whole.hints.unfolded:
        searching.progress(Note(sentence=f"{inquiry.target.tool} says: {line}"))
    with working_folder() as folder:
        compiler = RepairCompiler(
            intake=inquiry.intake,
            search=Searches(searching.quiet, calibration, driver.budget_left),
            inquire=partial(inquire, backend=searching.backend, calibration=calibration),
            folder=folder,
        )
        changed = _first(changed_files(inquiry, Exactness.DOMAIN, whole.hints), compiler, searching.progress)
    driver.spend(compiler.calls)
    if changed is None:
        return None
    return CompilesAfter(
        sentence=changed.sentence,
        remedies=tuple(dict.fromkeys(it.remedy for it in changed.applied)),
        exactness=changed.exactness,
        domain="; ".join(dict.fromkeys(it.domain for it in changed.applied if it.domain)),
        calls=compiler.calls,
    )


def _first(files: Iterable[Candidate], compiler: RepairCompiler, tell: Progress) -> Candidate | None:
    """The first of these files that the compiler takes."""
    for changed in files:
        tell(Note(sentence=f"asking the compiler about the model after this: {changed.sentence}"))
        try:
            answer = compiler.whole(changed.proto)
        except ModelError:  # it takes no such model
            continue
        if answer.compiles:
            return changed
        if answer.stopped:
            break
    return None
