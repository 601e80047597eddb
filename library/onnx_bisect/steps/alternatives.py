"""Compiles a model's culprits with other options of the backend."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnxbisect.alternatives import CulpritsThenWhole
from onnxbisect.diagnosis import Alternative, ProbeRecord
from onnxbisect.errors import BackendUnusableError, ModelError
from onnxbisect.unitset import UnitSet
from onnxbisect_backends.contract import Backend
from onnxbisect_backends.probing.loaded_model import LoadedModel
from onnxbisect_backends.probing.search_context import SearchContext, search_context


@dataclass(frozen=True, kw_only=True)
class CulpritVerdicts:
    """The verdicts on the probes of a `CulpritsThenWhole`; `problem` is empty, or why they are incomplete."""

    records: Sequence[ProbeRecord]
    calls: int
    problem: str = ""


#: Compiles the probes of a model with the backend.
AskOthers = Callable[[SearchContext, Backend, CulpritsThenWhole], CulpritVerdicts]


def asked_with(
    changed: Mapping[str, str],
    backend: Backend,
    loaded: LoadedModel,
    pieces: Sequence[UnitSet],
    calibration: Path | None,
    ask: AskOthers,
) -> Alternative:
    """Compile pieces of the model, and if all pass the whole, with a backend whose options `changed`.

    `ask` compiles the probes. Errors of the backend or the model are returned as `Alternative.problem`.
    """
    try:
        if complaint := backend.check():
            return Alternative(options=changed, problem=complaint)
        other = search_context(loaded, backend, calibration)
    except (BackendUnusableError, ModelError) as error:
        return Alternative(options=changed, problem=str(error))
    planner = CulpritsThenWhole(
        culprits=[other.universe.with_required_producers(units) for units in pieces],
        called=", ".join(f"{key}={value}" for key, value in changed.items()),
    )
    asked = ask(other, backend, planner)
    verdicts = {record.units: record.verdict for record in sorted(asked.records, key=lambda record: record.attempt)}
    *culprits, whole = planner.answers(other.universe, verdicts)
    wanted = {*planner.culprits, other.universe.everything}
    return Alternative(
        options=changed,
        tool=other.description.tool,
        version=other.description.version,
        culprits=tuple(culprits),
        whole=whole,
        problem=asked.problem,
        calls=asked.calls,
        cached=len({record.units for record in asked.records if record.cached and record.units in wanted}),
    )
