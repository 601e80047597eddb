"""Models in a store, hosts for them, and whole searches through a host: what `run` does, with a child process."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from onnx_bisect.driver import Driver
from onnx_bisect.verdict_base import InMemoryVerdictBase
from onnxbisect.answer import Answer
from onnxbisect.diagnosis import ProbeRecord, Stats
from onnxbisect.model.external import locations
from onnxbisect.search import plan
from onnxbisect.unitset import UnitSet
from onnxbisect_backends.probing.prober import ProbeResult
from onnxbisect_db.answers import AnsweredProbe
from onnxbisect_db.files import Files
from onnxbisect_service.search_spec import SearchSpec
from onnxbisect_service.settings import Settings
from onnxbisect_worker.model_processes.pool import ModelPool
from onnxbisect_worker.model_requests.protocol import Case, ModelProcess, Prepared, StepProgress
from support import TESTS

MODELS = TESTS / "models"
#: A search without answers.
NOTHING = StepProgress(answers=[], stats=Stats.of([], calls=0, rounds=0, engine_seconds=0.0, wall_seconds=0.0))


@dataclass(frozen=True, kw_only=True)
class Place:
    """A data folder with its files."""

    settings: Settings
    files: Files

    @classmethod
    def at(cls, folder: Path, **settings: object) -> "Place":
        # compilers of tests write down what they do beside their TOML file, which those that are isolated cannot
        made = Settings.model_validate({"data": folder, "isolation": "none", **settings})
        return cls(settings=made, files=Files(made.files_folder, floor=0))

    def store(self, path: Path) -> str:
        return self.files.put([path.read_bytes()]).sha256

    def case(self, model: Path | bytes, backend: str = "whitelist", **fields: object) -> Case:
        """A case for a model with all of its files; bytes are a model that nobody has looked at."""
        data: dict[str, str] = {}
        if isinstance(model, Path):
            proto = onnx.load(model, load_external_data=False)
            data = {str(path.relative_to(model.parent)): self.store(path) for path in locations(proto, model.parent)}
        known = {
            "onnx": self.store(model) if isinstance(model, Path) else self.files.put([model]).sha256,
            "model_name": model.name if isinstance(model, Path) else "model.onnx",
            "files": data,
            "backend": backend,
            "options": {"deny": "Sinh"} if backend == "whitelist" else {},
            "spec": SearchSpec(),
        }
        return Case(**{**known, **fields})  # type: ignore[arg-type]

    @contextmanager
    def hosts(self, **bounds: Any) -> Iterator[ModelPool]:
        made = ModelPool(self.settings, self.files, **bounds)
        try:
            yield made
        finally:
            made.close()


@dataclass(frozen=True, kw_only=True)
class Searched:
    """What became of a search: what the database would have of it."""

    begun: StepProgress
    logs: dict[str, str]


class _Probes:
    def __init__(self, host: ModelProcess) -> None:
        self._host = host

    def ask(self, units: UnitSet, seconds_left: float | None) -> ProbeResult:
        return self._host.ask(units, seconds_left=seconds_left)


def searched(host: ModelProcess, prepared: Prepared) -> Searched:
    """The driver of `run`, one question at a time, with a host to cut, compile, and see culprits' files fail."""

    def answered(records: Sequence[ProbeRecord], answers: dict[UnitSet, Answer]) -> list[AnsweredProbe]:
        return [
            AnsweredProbe(
                probe_id=str(number),
                units=it.units,
                attempt=it.attempt,
                verdict=it.verdict,
                why=it.why,
                round=it.round,
                key=it.key,
                cached=it.cached,
                file_sha256=answers[it.units].file_sha256,
                engine_seconds=0.0,
            )
            for number, it in enumerate(records)
        ]

    def digests(pieces: Sequence[UnitSet]) -> dict[UnitSet, str]:
        return dict(zip(pieces, host.digests(pieces), strict=True))

    driver = Driver(
        universe=prepared.universe,
        planner=plan,
        probes=_Probes(host),
        base=InMemoryVerdictBase(),
        key=host.key,
        progress=lambda event: None,
        digests=digests,
    )
    ended = driver.run()
    known = answered(ended.records, ended.answers)
    logs = {it.probe_id: ended.answers[it.units].log for it in known if it.verdict.failed}
    return Searched(begun=StepProgress(answers=known, stats=ended.stats), logs=logs)
