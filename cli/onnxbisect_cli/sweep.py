"""Asks a compiler about many small models that have nothing to do with each other: several at a time, each once."""

import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import onnx

from onnx_bisect.verdict_base import VerdictBase
from onnxbisect.answer import Answer
from onnxbisect.cut.output_guard import guard_outputs
from onnxbisect.cut.required_producers import runtime_dtype
from onnxbisect.errors import OnnxBisectError
from onnxbisect.key import Keyer
from onnxbisect.model import Model
from onnxbisect.model.allowance import directly
from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect_backends.contract import Backend, Description, Limits
from onnxbisect_backends.probing.loaded_model import LoadedModel, probe_writer
from onnxbisect_backends.probing.prober import Prober, ProbeResult
from onnxbisect_backends.probing.sampling import sampling
from onnxbisect_backends.sandbox.process import kill_running

#: In the place of an answer to what is no question, as the compiler takes no such model whatever its ops.
_NO_QUESTION = Verdict(status=Status.UNRESOLVED, kind=Kind.INVALID, message="not a model that the compiler takes")

#: Called with each answer, and whether it was known before.
OnAnswer = Callable[[Verdict, bool], None]


@dataclass(kw_only=True)
class Sweep:
    """One compiler, many questions. What it answered before, in any run, is not asked again.

    `until` is the moment (`time.monotonic`) from which on nothing more is asked.
    """

    backend: Backend
    description: Description
    base: VerdictBase
    folder: Path
    limits: Limits
    jobs: int = 1
    until: float | None = None

    def __post_init__(self) -> None:
        self._stopping = Event()

    def stop(self) -> None:
        """End now: compiles are killed and forgotten. Safe in a signal handler."""
        self._stopping.set()

    @property
    def stopped(self) -> bool:
        """Whether `stop` ended it."""
        return self._stopping.is_set()

    def ask(self, models: Iterable[onnx.ModelProto], on_answer: OnAnswer) -> list[Verdict | None]:
        """The verdicts in order; None for models that the end came before."""
        verdicts: list[Verdict | None] = []
        running: dict[Future[ProbeResult], str] = {}
        waiting: dict[str, list[int]] = {}

        def collect(room: int) -> None:
            while len(running) > room:
                done, _ = wait(running, timeout=0.2, return_when=FIRST_COMPLETED)
                if self.stopped:
                    kill_running()  # again and again: a thread may only now be starting its compiler
                for future in done:
                    key = running.pop(future)
                    answer = None if self.stopped else future.result().answer
                    numbers = waiting.pop(key)
                    if answer is not None:
                        self.base.put(key, 0, answer)
                        for number in numbers:
                            note(number, answer, number != numbers[0])

        def note(number: int, answer: Answer, known: bool) -> None:
            verdicts[number] = answer.verdict
            on_answer(answer.verdict, known)

        with ThreadPoolExecutor(self.jobs) as pool:
            try:
                for model in models:
                    number = len(verdicts)
                    verdicts.append(None)
                    if self.stopped:
                        continue
                    if (loaded := self._take_in(model)) is None:
                        verdicts[number] = _NO_QUESTION
                        continue
                    everything = loaded.model.universe.everything
                    key = Keyer(loaded.model, weights=self.description.weights_matter).key(everything)
                    answer = self.base.get(key, 0)
                    if answer is not None:
                        note(number, answer, True)
                    elif key in waiting:
                        waiting[key].append(number)
                    elif self.until is None or time.monotonic() < self.until:
                        waiting[key] = [number]
                        running[pool.submit(self._prober(loaded).ask, everything)] = key
                        collect(self.jobs - 1)
                collect(0)
            except BaseException:
                self.stop()  # or the pool would wait for what still compiles
                collect(0)
                raise
        return verdicts

    def _take_in(self, model: onnx.ModelProto) -> LoadedModel | None:
        covered = onnx.ModelProto()
        covered.CopyFrom(model)
        guard_outputs(covered.graph, self.description.probe_format.covered, own=())
        with tempfile.TemporaryDirectory(prefix="question-", dir=self.folder) as folder:
            path = Path(folder) / "model.onnx"
            onnx.save(covered, path)
            try:
                loaded = LoadedModel(path, {}, bounded=directly)
            except OnnxBisectError:
                return None
        return loaded if self._takes(loaded.model) else None

    def _takes(self, model: Model) -> bool:
        """Whether the compiler takes the inputs, so that what it says is about the op."""
        if model.unbound and not self.description.dynamic_shapes:
            return False
        dtypes = self.description.probe_format.input_dtypes
        return dtypes is None or all(runtime_dtype(value.type) in dtypes for value in model.proto.graph.input)

    def _prober(self, loaded: LoadedModel) -> Prober:
        samples = sampling(loaded.model, None, self.description.samples)
        return Prober(
            write=probe_writer(loaded, self.description.probe_format),
            backend=self.backend,
            limits=self.limits,
            objection=lambda units, probe: None,  # onnx's own model, whole: there is nothing to doubt
            folder=self.folder,
            samples=None if samples is None else samples.write,
        )
