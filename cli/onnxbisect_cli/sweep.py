"""Compiles many small independent models: several at a time, each once."""

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

#: The answer for models with inputs that the compiler does not accept, whatever their ops.
_NO_QUESTION = Verdict(status=Status.UNRESOLVED, kind=Kind.INVALID, message="not a model that the compiler takes")

#: Called with each answer, and whether it was known before.
OnAnswer = Callable[[Verdict, bool], None]


@dataclass(kw_only=True)
class Sweep:
    """One compiler, many models. Answers of earlier runs are reused.

    `until` is the time (`time.monotonic`) after which no compile starts.
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
        """End now: compiles are killed and their results dropped. Safe in a signal handler."""
        self._stopping.set()

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping.is_set()

    def ask(self, models: Iterable[onnx.ModelProto], on_answer: OnAnswer) -> list[Verdict | None]:
        """Compile the models; returns verdicts in their order, None for those not compiled before `until` or `stop`."""
        verdicts: list[Verdict | None] = []
        running: dict[Future[ProbeResult], str] = {}
        waiting: dict[str, list[int]] = {}

        def collect(room: int) -> None:
            while len(running) > room:
                done, _ = wait(running, timeout=0.2, return_when=FIRST_COMPLETED)
                if self.stopped:
                    kill_running()  # repeatedly, because a thread may only now start its compiler
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
                self.stop()  # otherwise the pool would wait for running compiles
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
        """Whether the compiler accepts the inputs, so that its answer is about the op."""
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
            objection=lambda units, probe: None,  # onnx's own test models are valid
            folder=self.folder,
            samples=None if samples is None else samples.write,
        )
