"""Confirms why culprits are refused: compiles neighbours of them that differ in one property."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path

import onnx

from onnxbisect.causes.condition import AskedNeighbour, RefusalConditions
from onnxbisect.causes.explain import causes
from onnxbisect.causes.features import Features
from onnxbisect.causes.table import RowIndex
from onnxbisect.cut import write
from onnxbisect.diagnosis import Certainty, CompletedDiagnosis, CulpritKind
from onnxbisect.model.facts import TensorFacts
from onnxbisect.neighbours import Neighbour, neighbours
from onnxbisect.unitset import UnitSet, lowest, size, union
from onnxbisect.verdict import Status
from onnxbisect_backends.probing.loaded_model import LoadedModel

#: Most culprits of one cause for which neighbours are made.
_MOST_EXAMPLES = 8


@dataclass(frozen=True, kw_only=True)
class Answered:
    """A compiler's answer on a model, and the calls it took. `stopped`: no further call is allowed."""

    status: Status
    calls: int = 0
    stopped: bool = False


def confirmed(
    job: CompletedDiagnosis,
    loaded: LoadedModel,
    ask: Callable[[Path], Answered],
    folder: Path,
    *,
    most: int,
    tell: Callable[[str], None] = lambda sentence: None,
) -> CompletedDiagnosis:
    """Compile neighbours of one culprit of each cause until one of these passes; the job with the answers.

    Causes take turns, so each gets its first neighbour before any gets a second one. The search ends after `most`
    compiler calls. `ask` compiles a file in `folder`, `tell` gets a sentence. Equal answers lead to equal calls.
    """
    passing = [record.units for record in job.probes if record.verdict.passed]
    alone = union(units for units in passing if size(units) == 1)
    found = [it for it in causes(job.model, job.diagnosis, union(passing), alone=alone) if it.conditions]
    queues = [_neighbours(cause, job, loaded, folder, tell) for cause in found]
    asked: list[AskedNeighbour] = []
    calls = 0
    for culprit, neighbour in filter(None, chain.from_iterable(zip_longest(*queues))):
        if any(it.passed for it in asked if it.culprit == culprit):
            continue
        path = folder / "neighbour.onnx"
        tell(f"asking the compiler about {neighbour.text}")
        path.write_bytes(neighbour.proto.SerializeToString(deterministic=True))
        answer = ask(path)
        calls += answer.calls
        if answer.status is not Status.UNRESOLVED:
            passes = answer.status is Status.PASS
            asked.append(AskedNeighbour(culprit=culprit, text=neighbour.text, row=neighbour.row, passed=passes))
        if answer.stopped or calls >= most:
            break
    stats = replace(job.stats, compiler_calls=job.stats.compiler_calls + calls)
    return replace(job, neighbours=tuple(asked), stats=stats)


def _neighbours(
    cause: RefusalConditions, job: CompletedDiagnosis, loaded: LoadedModel, folder: Path, tell: Callable[[str], None]
) -> list[tuple[int, Neighbour]]:
    """The neighbours of one culprit; those that lack a condition of the cause come first.

    It is the first confirmed culprit with such a neighbour, or else the first with any.
    """
    made: list[tuple[int, Neighbour]] = []
    if cause.in_company and cause.contrast:  # what passed beside other ops than the culprits have, by itself
        model, contrast, piece = loaded.model, cause.contrast[0], folder / "alone.onnx"
        unit = lowest(contrast.units)
        write(loaded.cutter.cut(1 << unit), model, piece, self_contained=True)
        row = Features(TensorFacts.of(model), model.known).of(model.proto.graph.node[model.units[unit].node])
        alone = Neighbour(text=f"{contrast.passes}, alone", proto=onnx.load(piece), row=row)
        made.append((cause.culprits[0], alone))
    sure = [it for it in cause.culprits if job.diagnosis.culprits[it].certainty is Certainty.CONFIRMED]
    for number in [it for it in sure if job.diagnosis.culprits[it].kind is CulpritKind.SINGLE][:_MOST_EXAMPLES]:
        found = [(number, it) for it in _of_culprit(job.diagnosis.culprits[number].units, loaded, folder, tell)]
        missing = [it for it in found if not all(RowIndex([it[1].row]).meeting(one) for one in cause.conditions)]
        if missing:
            return [*made, *missing, *(it for it in found if it not in missing)]
        made = made or found
    return made


def _of_culprit(units: UnitSet, loaded: LoadedModel, folder: Path, tell: Callable[[str], None]) -> list[Neighbour]:
    model = loaded.model
    piece = folder / "culprit.onnx"
    try:
        write(loaded.cutter.cut(units), model, piece, self_contained=True)
        alone = LoadedModel(piece, {}).model
        node = model.proto.graph.node[model.units[lowest(units)].node]
        return list(neighbours(alone, Features(TensorFacts.of(model), model.known).of(node)))
    except Exception as error:  # an invalid node, or no valid model when cut out
        op = model.universe.op[lowest(units)]
        tell(f"nothing like {op} can be asked about: {type(error).__name__}: {error}")
        return []
