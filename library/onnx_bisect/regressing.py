"""`regress`: finds the compiler version since which each part of a model is refused or accepted."""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Unpack

from onnx_bisect.backend_choice import texts
from onnx_bisect.diagnosing import diagnose
from onnx_bisect.driver import Budget
from onnx_bisect.events import Note, Progress
from onnx_bisect.keywords import with_keywords
from onnx_bisect.models import InputValues, Shapes, Source, load_model
from onnx_bisect.searching import Cancellation, Searching
from onnx_bisect.steps.alternatives import asked_with
from onnxbisect.diagnosis import DiagnosedCulprit
from onnxbisect.errors import BackendUnusableError, OptionError
from onnxbisect.report.history import VersionedPart, VersionHistory, next_version
from onnxbisect.terms import CallKeywords, CallTerms, made
from onnxbisect.unitset import UnitSet, members
from onnxbisect.verdict import Status, Verdict
from onnxbisect_backends import registry
from onnxbisect_backends.calibration import first_sample
from onnxbisect_backends.options import unknown
from onnxbisect_backends.probing.loaded_model import LoadedModel
from onnxbisect_backends.toolchains import series
from onnxbisect_backends.toolchains.toolchain import VERSION, Toolchain, toolchains, version_order


@with_keywords(CallTerms)
def regress(
    model: Source,
    *,
    backend: str | PathLike[str],
    versions: tuple[str, str],
    options: Mapping[str, object] | None = None,
    input_shapes: Shapes | None = None,
    input_values: InputValues | None = None,
    jobs: int = 1,
    calibration: str | PathLike[str] | None = None,
    cache: bool = True,
    progress: Progress | None = None,
    cancellation: Cancellation | None = None,
    **terms: Unpack[CallKeywords],
) -> VersionHistory:
    """Find the version that changed the verdict on each part of the model that one of two compiler versions refuses.

    `versions` are the first and the last; "" stands for the oldest or newest on the package index. Both are diagnosed.
    Then versions between them are installed, if they are not, and compile all parts, until every change lies between
    two neighbouring versions; this takes about log2 of their number. The other arguments are those of `diagnose`.

    Raises the errors of `diagnose`, and OptionError for a backend whose compiler this program does not install.
    """
    given, name = texts(options or {}), fspath(backend)
    if VERSION in given:
        raise OptionError("The versions are given by themselves: leave the option 'version' out.")
    toolchain = getattr(registry.make(name, given), "toolchain", None)
    if not isinstance(toolchain, Toolchain):
        raise OptionError(f"'{name}' is no compiler of which 'onnx-bisect backends install' makes versions.")
    tell, samples = progress or (lambda event: None), None if calibration is None else Path(calibration)
    with ExitStack() as stack:
        compiler = toolchain.name
        there = _Versions(compiler, stack, tell)
        known, (first, last) = there.names, versions
        for end in filter(None, versions):
            if end not in known:
                raise OptionError(unknown(f"version of {compiler} on the package index or here", end, known))
        chosen = known[known.index(first) if first else 0 : known.index(last) + 1 if last else None]
        if len(chosen) < 2:
            raise OptionError(f"Give two versions of {compiler}, the older one first; there are {', '.join(known)}.")
        return _Regression(
            loaded=load_model(model, input_shapes, input_values, first_sample(samples)),
            backend=name,
            options=given,
            there=there,
            versions=chosen,
            calibration=samples,
            terms=made(CallTerms, terms),
            jobs=jobs,
            cache=cache,
            progress=tell,
            cancellation=cancellation or Cancellation(),
        ).run()


class _Versions:
    """The versions of one compiler: those of the toolchain catalogue and, if it can be read, the package index."""

    def __init__(self, compiler: str, stack: ExitStack, tell: Progress) -> None:
        self.compiler, self._tell = compiler, tell
        self._index: series.Index | None = None
        there: tuple[str, ...] = ()
        if compiler in series.SERIES:
            try:
                self._index = stack.enter_context(series.opened(compiler, self._say))
                there = self._index.versions()
            except BackendUnusableError as error:
                tell(Note(sentence=f"{error} Only versions that are known here are asked."))
        here = (one.version for one in toolchains().get(compiler, ()))
        self.names = tuple(sorted({*here, *there}, key=version_order))
        self.installs = 0

    def install(self, version: str) -> None:
        """Install the version if it is not installed. Raises BackendUnusableError if that fails."""
        one = next((it for it in toolchains().get(self.compiler, ()) if it.version == version), None)
        if one is None:
            if self._index is None:
                raise BackendUnusableError(f"{self.compiler} {version} is not known here.")
            one = self._index.define(version)
        if not one.installed:
            one.install(self._say)
            self.installs += 1

    def _say(self, line: str) -> None:
        self._tell(Note(sentence=line))


@dataclass(kw_only=True)
class _Regression:
    """The arguments and the state of one `regress` call.

    `culprits` are the parts, by their units; `answers` and `unusable` are by the index of the version.
    """

    loaded: LoadedModel
    backend: str
    options: Mapping[str, str]
    there: _Versions
    versions: tuple[str, ...]
    calibration: Path | None
    terms: CallTerms
    jobs: int
    cache: bool
    progress: Progress
    cancellation: Cancellation
    culprits: dict[UnitSet, DiagnosedCulprit] = field(default_factory=dict)
    answers: dict[int, Mapping[UnitSet, Verdict | None]] = field(default_factory=dict)
    unusable: dict[int, str] = field(default_factory=dict)
    calls: int = 0
    began: float = field(default_factory=time.monotonic)

    def run(self) -> VersionHistory:
        """Compile with the last and the first version, then with versions between them."""
        ends = dict.fromkeys((len(self.versions) - 1, 0))
        for end in ends:
            self._diagnose(end)
        for end in ends:
            self._ask(end)
        while (
            not (self.cancellation.cancelled or self._left.calls == 0 or self._left.seconds == 0)
            and (number := self._next()) is not None
        ):
            self._ask(number)
        parts, names = [], self.loaded.model.universe
        for units in self._pieces:
            verdicts = [it for _, answers in sorted(self.answers.items()) if (it := answers.get(units)) is not None]
            message = next((it.message for it in reversed(verdicts) if it.failed), "")
            part = VersionedPart(answers=self._taken(units), message=message)
            if (culprit := self.culprits.get(units)) is not None:
                part = replace(
                    part,
                    ops=tuple(names.op[unit] for unit in members(culprit.units)),
                    nodes=tuple(names.names[unit][0] for unit in members(culprit.units)),
                    places=len(culprit.occurrences),
                )
            parts.append(part)
        return VersionHistory(
            model=self.loaded.model.path.name,
            compiler=self.there.compiler,
            versions=self.versions,
            parts=tuple(parts),
            unusable=self.unusable,
            finished=self._next() is None and all(end in self.answers for end in ends),
            installs=self.there.installs,
            calls=self.calls,
        )

    @property
    def _left(self) -> Budget:
        return Budget(calls=self.terms.budget_calls, seconds=self.terms.budget_seconds).without(
            calls=self.calls, seconds=time.monotonic() - self.began
        )

    @property
    def _pieces(self) -> tuple[UnitSet, ...]:
        return tuple(dict.fromkeys((self.loaded.model.universe.everything, *self.culprits)))

    def _options(self, number: int) -> dict[str, str]:
        return {**self.options, VERSION: self.versions[number]}

    def _next(self) -> int | None:
        return next_version([self._taken(units) for units in self._pieces], frozenset(self.unusable))

    def _taken(self, units: UnitSet) -> dict[int, bool | None]:
        return {number: _taken(verdicts.get(units)) for number, verdicts in self.answers.items()}

    def _diagnose(self, number: int) -> None:
        """Collect the culprits of one version. Raises BackendUnusableError if it cannot be installed or called."""
        self.there.install(self.versions[number])
        self.progress(Note(sentence=f"diagnosing with version {self.versions[number]}"))
        result = diagnose(
            self.loaded,
            backend=self.backend,
            options=self._options(number),
            jobs=self.jobs,
            calibration=self.calibration,
            cache=self.cache,
            files=False,
            as_is=True,
            progress=self.progress,
            cancellation=self.cancellation,
            **vars(replace(self.terms, budget_calls=self._left.calls, budget_seconds=self._left.seconds)),
        )
        assert result.job is not None  # noqa: S101 - it was searched here
        self.calls += result.stats.compiler_calls
        for culprit in result.job.diagnosis.culprits:
            self.culprits.setdefault(culprit.evidence.own, culprit)

    def _ask(self, number: int) -> None:
        """Compile all parts and the whole model with one version."""
        try:
            self.there.install(self.versions[number])
        except (BackendUnusableError, OptionError) as error:
            self.unusable[number] = str(error)
            return
        options = self._options(number)
        backend = registry.make(self.backend, options)
        searching = Searching(
            backend=backend,
            terms=self.terms,
            jobs=self.jobs,
            cache=self.cache,
            progress=self.progress,
            cancellation=self.cancellation,
        )
        changed = {VERSION: self.versions[number]}
        ask = searching.asking(self._left)
        found = asked_with(changed, backend, self.loaded, self._pieces, self.calibration, ask)
        self.calls += found.calls
        if found.problem:
            self.unusable[number] = found.problem
        else:
            self.answers[number] = dict(zip(self._pieces, found.culprits, strict=True))


def _taken(verdict: Verdict | None) -> bool | None:
    return None if verdict is None or verdict.status is Status.UNRESOLVED else verdict.passed
