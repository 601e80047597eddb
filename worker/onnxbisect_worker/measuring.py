"""The search for nodes that must stay precise, as a step of a worker."""

import hashlib
import json
import logging
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from uuid import uuid4

from sqlalchemy.orm import Session

from onnxbisect.errors import OnnxBisectError
from onnxbisect.report.text import clean, clip
from onnxbisect_db import measurements, searches
from onnxbisect_db.answers import MeasuredSet
from onnxbisect_db.database import now
from onnxbisect_db.searches import ClaimedSearch
from onnxbisect_service.search_spec import SearchSpec
from onnxbisect_worker.lease_keeper import LeaseKeeper
from onnxbisect_worker.model_processes.pool import processes_folder
from onnxbisect_worker.model_requests.layout import temporary
from onnxbisect_worker.model_requests.protocol import ProcessLostError, this_version
from onnxbisect_worker.repairing import BudgetLeft, stored

#: Most measurements of a target, and most characters of the names of nodes that one keeps, because a model that has
#: taken over its process could tell of them for ever.
MOST_MEASUREMENTS, MOST_CHARACTERS = 20_000, 4 << 20
_HEADLINE, _DOCUMENT = 600, "precision/precision.json"

log = logging.getLogger(__name__)


def measure(keeper: LeaseKeeper[ClaimedSearch]) -> None:
    """Continue the search of a claimed target for nodes that must stay precise."""
    claimed = keeper.claimed
    question = question_of(claimed, keeper.spec)

    def begun(session: Session) -> tuple[tuple[MeasuredSet, ...], BudgetLeft]:
        """What was measured before, and the rest of the budget."""
        terms, spent = keeper.spec.precision, measurements.spent(session, claimed, question)
        calls, seconds = (None, None) if terms is None else (terms.calls, terms.seconds)
        passed = 0.0 if spent.since is None else (now(session) - spent.since).total_seconds()
        left = BudgetLeft(
            calls=None if calls is None else max(calls - spent.calls, 0),
            seconds=None if seconds is None else max(seconds - passed, 0.0),
        )
        return measurements.known(session, claimed, question), left

    def keep(measured: MeasuredSet) -> None:
        if sum(map(len, measured.keep)) > MOST_CHARACTERS:
            raise OnnxBisectError(f"A measurement keeps nodes whose names have more than {MOST_CHARACTERS} characters.")
        # the other end may be taken over; a database refuses NUL and lone surrogates
        on, shown, why = map(clean, (measured.arithmetic, measured.shown, measured.why))
        lines = replace(measured, arithmetic=on, shown=shown, why=why)
        if keeper.write(lambda session: measurements.add(session, claimed, question, lines)) >= MOST_MEASUREMENTS:
            raise OnnxBisectError(f"It was given up after {MOST_MEASUREMENTS} measurements.")

    known, left = keeper.write(begun)
    with temporary(processes_folder(keeper.service.settings) / uuid4().hex) as folder:
        with keeper.process() as process:
            came = process.precision(known, Path(folder), calls=left.calls, seconds=left.seconds, tell=keep)
        if came.ending is None:
            keeper.write(lambda session: searches.give_back(session, claimed))
            return
        if _DOCUMENT not in came.files:
            raise ProcessLostError("The process that had the model wrote no precision.json.")
        files = stored(keeper.service.files, came.files)
    outcome = measurements.PreciseNodes(
        ending=came.ending.value, headline=clip(came.headline, _HEADLINE), keep=came.keep, asks=came.asks
    )
    keeper.write(lambda session: searches.end_measuring(session, claimed, outcome.to_json(), files))
    log.info("search %s: done with measuring precision", claimed.search.id)


def question_of(claimed: ClaimedSearch, spec: SearchSpec) -> str:
    """Equal where all measurements are comparable, whatever threshold is wanted of them.

    Whatever the target is, onnxruntime quantises its models, or is asked first.
    """
    terms = spec.precision
    parts = [
        *(this_version(), version("onnxruntime")),
        *(claimed.onnx, sorted(claimed.data.items()), claimed.search.identity),
        *(sorted(spec.input_shapes.items()), sorted(spec.input_values.items()), sorted(spec.calibration.items())),
        *(("", "") if terms is None else (terms.low, terms.metric)),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
