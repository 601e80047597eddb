"""Compiles a model's culprits with other options of the same backend, in threads of this process."""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from onnx_bisect.backend_choice import BackendChoice, texts
from onnx_bisect.driver import Budget
from onnx_bisect.events import Event, Note, ProbeAnswered, ProbeStarted
from onnx_bisect.searching import Searching
from onnx_bisect.steps.alternatives import AskOthers, CulpritVerdicts, asked_with
from onnxbisect.alternatives import CulpritsThenWhole
from onnxbisect.diagnosis import Alternative, Diagnosis
from onnxbisect.errors import OptionError
from onnxbisect.session import Ending
from onnxbisect.terms import OtherValues
from onnxbisect_backends.contract import Backend
from onnxbisect_backends.other_options import OtherOptions
from onnxbisect_backends.probing.loaded_model import LoadedModel
from onnxbisect_backends.probing.search_context import SearchContext
from onnxbisect_backends.sandbox.working_folder import working_folder


def other_options(
    backend: BackendChoice, options: Mapping[str, object], wanted: OtherValues | None
) -> OtherOptions | None:
    """The other options to try; None if `wanted` is None.

    Raises OptionError if the backend suggests no values and `wanted` has none.
    """
    if wanted is None:
        return None
    found = OtherOptions.of(backend, texts(options), wanted)
    if not found.wanted:
        raise OptionError(
            f"The backend '{found.name}' says of none of its options which values are worth trying; name them: "
            "--try KEY=VALUE,VALUE."
        )
    return found


def tried(
    others: OtherOptions,
    loaded: LoadedModel,
    diagnosis: Diagnosis,
    searching: Searching,
    calibration: Path | None,
    budget: Budget,
) -> tuple[Alternative, ...]:
    """Compile each culprit's own file with each of the other options, and the whole model if all culprits compile.

    All options share the budget. If the compiler cannot be called with one of them, the others are still tried.
    """
    asked: list[Alternative] = []
    began = time.monotonic()
    culprits = [culprit.evidence.own for culprit in diagnosis.culprits]
    for changed, backend in others.settings([culprit.message for culprit in diagnosis.culprits]):
        left = budget.without(calls=sum(it.calls for it in asked), seconds=time.monotonic() - began)
        if searching.cancellation.cancelled or left.calls == 0 or left.seconds == 0:
            searching.progress(Note(sentence="The search has ended before all of the other options were tried."))
            break
        asked.append(asked_with(changed, backend, loaded, culprits, calibration, asking(searching, left)))
    return tuple(asked)


def asking(searching: Searching, budget: Budget) -> AskOthers:
    """A function that compiles with another backend, otherwise with the settings of `searching`, within the budget."""

    def tell(event: Event) -> None:
        if isinstance(event, Note | ProbeStarted | ProbeAnswered):  # other events describe the search of the target
            searching.progress(event)

    def ask(other: SearchContext, backend: Backend, planner: CulpritsThenWhole) -> CulpritVerdicts:
        with working_folder() as folder:
            own = replace(searching, backend=backend, progress=tell)
            with own.driver(other, folder, budget, planner=planner) as driver:
                ended = driver.run()
        problem = "The search was cancelled." if ended.ending is Ending.CANCELLED else ""
        return CulpritVerdicts(records=ended.records, calls=ended.stats.compiler_calls, problem=problem)

    return ask
