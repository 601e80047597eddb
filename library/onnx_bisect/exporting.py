"""`export`: asks which modules of a PyTorch model cannot be exported to ONNX, and writes the parts that can."""

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TypedDict, Unpack

import onnx

from onnx_bisect.backend_choice import BackendChoice
from onnx_bisect.diagnosing import diagnose
from onnxbisect.errors import OptionError
from onnxbisect.export.failure import CodeLine, Failure, cause_of, first_sentence, remedy
from onnxbisect.export.plan import (
    ROOT,
    ExportAnswer,
    ExportingModule,
    ExportOutcome,
    FailingModule,
    Module,
    Question,
    Tree,
    plan,
)
from onnxbisect.export.report import Blamed, Component, ExportedPart, ExportReport, Tried, html, markdown, sarif
from onnxbisect.json_form import to_json
from onnxbisect.language import ENGLISH, english, within
from onnxbisect.report.files import put
from onnxbisect.report.text import clip, listed, slug
from onnxbisect_backends.exporting.checking import ExportCheck, check, write_samples
from onnxbisect_backends.exporting.probe import Described, ExportProcess, How, Line, active_python, changed, settings_of
from onnxbisect_backends.exporting.probe import Exported as Answered
from onnxbisect_backends.folders import working_folder

TRAINING = english("The model was in training mode; it was exported in evaluation mode.")

#: Why a module could not be asked, by the problem's name.
_UNDECIDED = {
    "never": english("The model does not call it with these settings."),
    "stand-in": english("{detail} returns no tensor, so that no stand-in can replace it."),
    "version": english(
        "torch {detail} has no stand-ins for the newer exporter: each part is proven, the whole is not; torch 2.8 has "
        "them, and so has --set exporter=legacy."
    ),
}

#: Called with a line about each export.
Tell = Callable[[str], None]


class ExportSettings(TypedDict, total=False):
    """The arguments of `export` beside source and folder."""

    python: str | PathLike[str] | None
    settings: Mapping[str, str] | None
    tries: Sequence[str]
    components: bool
    backend: BackendChoice | None
    options: Mapping[str, object] | None
    timeout: float
    memory: int
    progress: Tell | None


@dataclass(frozen=True, kw_only=True)
class _Evidence:
    """One export: what the probe said, its file, and the comparison of its numbers."""

    answered: Answered
    file: Path
    check: ExportCheck

    @property
    def answer(self) -> ExportAnswer:
        """The evidence as the search sees it."""
        problem, failure = self.answered.problem, self.answered.failure
        if problem in _UNDECIDED or problem == "probe":
            return ExportAnswer(exports=False, undecided=True)
        if problem or self.check.differs:
            return ExportAnswer(exports=False)
        if failure:
            return ExportAnswer(exports=False, suspect=failure.suspect, undecided=failure.stand_in)
        return ExportAnswer(exports=True)

    @property
    def failure(self) -> Failure:
        """Why it does not export, for people."""
        if self.answered.problem in _UNDECIDED:
            return Failure(message=_UNDECIDED[self.answered.problem].format(detail=self.answered.detail))
        if self.answered.problem == "time":
            return Failure(message=f"it did not end within {self.answered.detail} s", types=("TimeLimit",))
        if self.answered.problem:
            return Failure(message=self.answered.detail or self.answered.problem, types=("Crash",))
        warned = tuple(
            (CodeLine(file=it.file, line=it.line, source=it.source), it.message) for it in self.answered.warnings
        )
        if refusal := self.answered.failure:
            return Failure(
                message=refusal.message, types=refusal.types, op=refusal.op, place=_place(refusal), warned=warned
            )
        said = f"the export succeeds and is wrong: {self.check.differs}"
        return Failure(message=said, differs=self.check.differs, warned=warned, lost=self.check.lost)


@dataclass(frozen=True, kw_only=True)
class ExportResult:
    """The result of an export; `report` has the contents of export.json (docs/export.md)."""

    report: ExportReport
    folder: Path | None = field(default=None, compare=False)

    @property
    def headline(self) -> str:
        """The outcome in one sentence."""
        return self.report.headline

    @property
    def exports(self) -> bool:
        """Whether the whole model exports as it is."""
        return self.report.proven and not self.report.culprits


def export(
    source: str,
    *,
    python: str | PathLike[str] | None = None,
    out: str | PathLike[str] | None = None,
    settings: Mapping[str, str] | None = None,
    tries: Sequence[str] = (),
    components: bool = False,
    backend: BackendChoice | None = None,
    options: Mapping[str, object] | None = None,
    timeout: float = 300.0,
    memory: int = 8192,
    progress: Tell | None = None,
) -> ExportResult:
    """Find every module of a PyTorch model that cannot be exported to ONNX, and prove that the rest can.

    `source` is `FILE.py:FUNCTION`. The function returns `(model, args)`, `(model, args, kwargs)` or
    `(model, [(args, kwargs), …])`, and runs in `python`, by default the active environment's, which has torch. Or it is
    `hf:ID`, a model of transformers by its configuration, with random weights, where that Python has transformers. Each
    export runs in a child process for at most `timeout` seconds and with `memory` MB more than the loaded model. An
    export whose numbers differ from the module's, on its inputs or on perturbed ones, counts as a failure.

    `settings` are those of the exporter: `exporter` (dynamo or legacy), `opset`, `strict`, `attention`, `use_cache`.
    `tries` are other settings to ask the culprits with, such as `"attention=eager"`, or `"all"`. With `out`, parts that
    export are written there, with samples and a manifest for `onnx-bisect run`. With `components`, modules directly in
    the model become parts of their own; with a `backend`, each part is compiled.

    Raises OptionError for a source that cannot be used and for a Python without torch.
    """
    began = time.monotonic()
    how = settings_of(settings or {})
    others = changed(how, tries)
    file = Path(source.rpartition(":")[0])
    if not source.startswith("hf:"):
        if not file.name or not source.rpartition(":")[2].isidentifier():
            raise OptionError(f"'{clip(source, 100)}' names no function; say FILE.py:FUNCTION, such as model.py:build.")
        if not file.is_file():
            raise OptionError(f"There is no file {clip(str(file), 200)}.")
    chosen = Path(python) if python else active_python()
    with working_folder() as work, ExportProcess(chosen, source, seconds=timeout, memory=memory) as probe:
        there = probe.described.settings
        for name in ("attention", "use_cache"):
            if name not in there and getattr(how, name) is not None:
                raise OptionError(
                    english("The model has no setting {name}: models of transformers have it.", name=name)
                )
            others = {it: one for it, one in others.items() if name in there or getattr(one, name) is None}
        asking = _Asking(probe, work, how, progress or (lambda line: None))
        outcome = asking.search()
        if components:
            outcome = asking.with_components(outcome)
        tried = {it: asking.tried(it, others) for it in outcome.culprits}
        folder = work / "out" if out is None else Path(out)
        files = {} if out is None and backend is None else asking.files(outcome, folder)
        compiled = {} if backend is None else _compiled(files, folder, backend, options)
        named = {} if out is None else {part: str(path.relative_to(folder)) for part, path in files.items()}
        report = asking.report(source, outcome, tried, named, compiled)
    report = replace(report, seconds=round(time.monotonic() - began, 1))
    if out is not None:
        put(Path(out) / "export.json", json.dumps(to_json(report), indent=2, ensure_ascii=False).encode() + b"\n")
        put(Path(out) / "export.md", markdown(report).encode())
        put(Path(out) / "export.html", html(report).encode())
        put(Path(out) / "export.sarif", sarif(report, str(Path.cwd())).encode())
    return ExportResult(report=report, folder=None if out is None else Path(out))


def export_each(
    sources: str,
    *,
    out: str | PathLike[str] | None = None,
    **settings: Unpack[ExportSettings],
) -> tuple[ExportResult, ...]:
    """`export` for each function of `FILE.py:FUNCTION,FUNCTION`; each has a folder of its own in `out`."""
    file, _, functions = sources.rpartition(":")
    names = list(dict.fromkeys(functions.split(","))) if file and file != "hf" else [functions]
    folders = {name: None if out is None else Path(out) / name if len(names) > 1 else Path(out) for name in names}
    return tuple(export(f"{file}:{name}" if file else name, out=folders[name], **settings) for name in names)


def _place(line: Line) -> CodeLine | None:
    return CodeLine(file=line.file, line=line.line, source=line.source) if line.file else None


class _Asking:
    """Asks the probe, as `how` says, and keeps the evidence."""

    def __init__(self, probe: ExportProcess, work: Path, how: How, tell: Tell) -> None:
        self._probe, self._work, self._how, self._tell = probe, work, how, tell
        self._evidence: dict[tuple[Question, How], _Evidence] = {}
        self.described: Described = probe.described
        self.tree = Tree([Module(**it.model_dump(exclude={"calls", "defined"})) for it in self.described.modules])
        self._defined = {it.path: _place(it.defined) for it in self.described.modules}

    def search(self) -> ExportOutcome:
        """Ask until nothing is open."""
        answers: dict[Question, ExportAnswer] = {}
        while isinstance(step := plan(self.tree, answers), Question):
            answers[step] = self.ask(step).answer
        return step

    def ask(self, question: Question, other: How | None = None) -> _Evidence:
        """The evidence of one export, made once; with `other` settings, if they are given."""
        how = other or self._how
        if (question, how) not in self._evidence:
            file = self._work / f"{len(self._evidence)}.onnx"
            answered = self._probe.export(question, how, file)
            fine = not answered.problem and not answered.failure
            found = _Evidence(answered=answered, file=file, check=check(file, answered) if fine else ExportCheck())
            self._evidence[question, how] = found
            without = f" without {', '.join(sorted(question.stand_ins))}" if question.stand_ins else ""
            verdict = "exports" if found.answer.exports else "does not export"
            self._tell(f"{question.module or 'the model'}{without}: {verdict}, {answered.seconds:.1f} s")
        return self._evidence[question, how]

    def with_components(self, outcome: ExportOutcome) -> ExportOutcome:
        """The outcome, with each module directly in the model that exports as a part of its own."""
        blamed = {place for it in outcome.culprits for place in it.places}
        known = {it.path for it in outcome.parts}
        more = []
        for path in self.tree.children(ROOT):
            question = Question(module=path)
            clear = path not in known and blamed.isdisjoint(self.tree.reached(path))
            if clear and self.ask(question).answer.exports:
                more.append(ExportingModule(path=path, without=frozenset(), asked=(question,)))
        return ExportOutcome(culprits=outcome.culprits, undecided=outcome.undecided, parts=(*outcome.parts, *more))

    def tried(self, culprit: FailingModule, others: Mapping[str, How]) -> tuple[Tried, ...]:
        """The answers for other settings, with the reason where it is another one."""
        found, known = [], first_sentence(self.ask(culprit.asked).failure.message)
        for setting, other in others.items():
            evidence = self.ask(culprit.asked, other)
            exports = evidence.answer.exports
            why = "" if exports else evidence.check.differs or first_sentence(evidence.failure.message)
            found.append(Tried(setting=setting, exports=exports, message="" if why == known else clip(why, 300)))
        return tuple(found)

    def files(self, outcome: ExportOutcome, folder: Path) -> dict[ExportingModule, Path]:
        """Write the parts, their samples, and the manifest of those without stand-ins."""
        (folder / "parts").mkdir(parents=True, exist_ok=True)
        manifest, found = [], {}
        for part in outcome.parts:
            name = slug(part.path.replace(".", "-"), 64) if part.path else "model"
            evidence = next(it for (question, _), it in self._evidence.items() if question == part.asked[0])
            path = folder / "parts" / f"{name}{'-with-stand-ins' if part.without else ''}.onnx"
            for made in (evidence.file, evidence.file.with_name(evidence.file.name + ".data")):
                if made.is_file():
                    shutil.copyfile(made, path.with_name(path.name + made.name[len(evidence.file.name) :]))
            samples = write_samples(evidence.file, evidence.answered, folder / "samples" / name)
            found[part] = path
            if _for_compilers(part, path):
                calibration = f'calibration = "samples/{name}"\n' if samples else ""
                manifest.append(f'[[part]]\nname = "{name}"\nmodel = "parts/{path.name}"\n{calibration}')
        if manifest:
            put(folder / "parts.toml", "\n".join(manifest).encode())
        return found

    def report(
        self,
        source: str,
        outcome: ExportOutcome,
        tried: Mapping[FailingModule, tuple[Tried, ...]],
        files: Mapping[ExportingModule, str],
        compiled: Mapping[ExportingModule, str],
    ) -> ExportReport:
        """The document."""
        failing = [place for it in outcome.culprits for place in it.places]
        whole = next((it for it in outcome.parts if it.path == ROOT), None)
        own = {it.module for it in outcome.undecided} | set(failing)
        foreign = self.described.foreign
        with within(ENGLISH):
            names = listed(foreign)
        alone = english("Not asked alone, since they take or return other things than tensors: {names}.", names=names)
        return ExportReport(
            source=source,
            model=self.tree.modules[ROOT].cls,
            torch=self.described.torch,
            settings=self._how.words,
            modules=len(self.tree.modules),
            exports=len(self._evidence),
            seconds=0.0,
            proven=whole is not None,
            culprits=tuple(self._blamed(it, tried[it]) for it in outcome.culprits),
            undecided=tuple((it.module, self.ask(it).failure.message) for it in outcome.undecided),
            parts=tuple(
                ExportedPart(
                    path=it.path,
                    cls=self.tree.modules[it.path].cls,
                    without=tuple(sorted(it.without)),
                    samples=sum(self.ask(asked).check.samples for asked in it.asked),
                    unchecked=next((why for asked in it.asked if (why := self.ask(asked).check.problem)), ""),
                    file=files.get(it, ""),
                    compiles=compiled.get(it, ""),
                )
                for it in outcome.parts
            ),
            components=tuple(
                Component(
                    path=path,
                    cls=self.tree.modules[path].cls,
                    exports=path not in own,
                    failing=tuple(it for it in failing if it in self.tree.reached(path) and it != path),
                )
                for path in self.tree.children(ROOT)
            ),
            never=self.described.never,
            methods=self.described.methods,
            notes=(*([TRAINING] if self.described.training else []), *([alone] if foreign else [])),
        )

    def _blamed(self, culprit: FailingModule, tried: tuple[Tried, ...]) -> Blamed:
        failure = self.ask(culprit.asked).failure
        cause = cause_of(failure)
        module = self.tree.modules[culprit.path]
        return Blamed(
            path=culprit.path,
            cls=module.cls,
            places=culprit.places,
            signature=module.signatures[culprit.asked.signature],
            kind=cause.kind,
            place=cause.place or self._defined.get(culprit.path),
            message=clip(first_sentence(failure.message), 200),
            remedy=remedy(cause, failure),
            tried=tried,
        )


def _for_compilers(part: ExportingModule, file: Path) -> bool:
    """Whether a compiler can be asked about the part: a method that returns constants makes a file without nodes."""
    return not part.without and bool(onnx.load(file, load_external_data=False).graph.node)


def _compiled(
    files: Mapping[ExportingModule, Path], folder: Path, backend: BackendChoice, options: Mapping[str, object] | None
) -> dict[ExportingModule, str]:
    """What the compiler says of each part without stand-ins."""
    found = {}
    for part, file in files.items():
        samples = folder / "samples" / file.stem
        if _for_compilers(part, file):
            calibration = samples if samples.is_dir() else None
            result = diagnose(file, backend=backend, options=options, calibration=calibration, files=False)
            found[part] = result.headline
    return found
