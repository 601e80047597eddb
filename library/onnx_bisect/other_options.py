"""Other options of the same backend: which are asked about a model's culprits, and what they answer."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import Literal

from onnx_bisect.backend_choice import option_text
from onnx_bisect.driver import Budget
from onnx_bisect.events import Event, Note, ProbeAnswered, ProbeStarted
from onnx_bisect.searching import Searching
from onnxbisect.alternatives import Alternative, CulpritsThenWhole
from onnxbisect.diagnosis import Diagnosis
from onnxbisect.errors import BackendUnusableError, ModelError, OptionError
from onnxbisect.session import Ending
from onnxbisect.unitset import UnitSet
from onnxbisect_backends import registry
from onnxbisect_backends.contract import Backend
from onnxbisect_backends.options import OptionHelp, unknown
from onnxbisect_backends.probing.inquiry import Inquiry, inquire
from onnxbisect_backends.probing.intake import Intake
from onnxbisect_backends.sandbox.working_folder import working_folder

#: Values by option, none for those that the backend says are worth trying; or all that it says of all its options.
Wanted = Literal["all"] | Mapping[str, Sequence[object]]


@dataclass(frozen=True, kw_only=True)
class OtherOptions:
    """The alternatives of one target: each changes one of its options."""

    name: str
    options: Mapping[str, str]
    wanted: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, backend: object, options: Mapping[str, str], wanted: Wanted) -> "OtherOptions":
        """Those that are wanted; OptionError where the backend takes no such option or value."""
        if not isinstance(backend, str | PathLike):
            raise OptionError("Other options can be tried of a backend by name or file only.")
        it = cls(name=fspath(backend), options=options, wanted={})
        if isinstance(wanted, str):
            if wanted != "all":
                raise OptionError(f"alternatives cannot be {wanted!r}: give 'all', or values by option.")
            chosen: dict[str, tuple[str, ...]] = {key: () for key, one in it._known.items() if one.worth_trying}
            if not chosen:
                raise OptionError(
                    f"The backend '{it.name}' says of none of its options which values are worth trying; name them: "
                    "--try KEY=VALUE,VALUE."
                )
        else:
            chosen = {key: tuple(option_text(value) for value in values) for key, values in wanted.items()}
        it = replace(it, wanted=chosen)
        it._demand()
        return it

    def settings(self, messages: Sequence[str]) -> Iterator[tuple[dict[str, str], Backend]]:
        """What is changed, and the backend with it. `messages` are what the compiler says of the culprits."""
        effective = registry.make(self.name, dict(self.options)).options
        for key, values in self.wanted.items():
            for value in values or self._worth(key, messages):
                try:
                    made = self._with(key, value)
                except OptionError:  # not in this combination; what the user has named was made before
                    continue
                if made.options != effective:
                    yield {key: value}, made

    @cached_property
    def _known(self) -> dict[str, OptionHelp]:
        return {option.name: option for option in registry.find(self.name).options}

    def _demand(self) -> None:
        for key, values in self.wanted.items():
            if self._known and key not in self._known:
                raise OptionError(unknown(f"option of the backend '{self.name}'", key, self._known))
            if not values and (key not in self._known or not self._known[key].worth_trying):
                raise OptionError(
                    f"The backend '{self.name}' does not say which values of '{key}' are worth trying; name them: "
                    f"--try {key}=VALUE,VALUE."
                )
            for value in values:
                self._with(key, value)

    def _worth(self, key: str, messages: Sequence[str]) -> list[str]:
        option = self._known[key]
        given = self.options.get(key, option.default)
        told = option.alternatives_told(given, messages)
        kept_out = option.worth_trying is not None and option.worth_trying.instead and key not in self.options
        return [*(() if kept_out else option.alternatives), *([told] if told else [])]

    def _with(self, key: str, value: str) -> Backend:
        return registry.make(self.name, {**self.options, key: value})


def tried(
    others: OtherOptions,
    inquiry: Inquiry,
    diagnosis: Diagnosis,
    searching: Searching,
    calibration: Path | None,
    budget: Budget,
) -> tuple[Alternative, ...]:
    """What each of them says of the culprits' own files, and where it takes all, of the whole model.

    The budget is for all of them together. One that cannot be asked keeps none of the others from it.
    """
    asked: list[Alternative] = []
    began = time.monotonic()
    for changed, backend in others.settings([culprit.message for culprit in diagnosis.culprits]):
        left = budget.without(calls=sum(it.calls for it in asked), seconds=time.monotonic() - began)
        if searching.cancellation.cancelled or left.calls == 0 or left.seconds == 0:
            searching.progress(Note(sentence="The search has ended before all of the other options were tried."))
            break
        culprits = [culprit.evidence.own for culprit in diagnosis.culprits]
        asking = replace(searching, backend=backend)
        asked.append(asked_with(changed, inquiry.intake, culprits, asking, calibration, left))
    return tuple(asked)


def asked_with(
    changed: Mapping[str, str],
    intake: Intake,
    pieces: Sequence[UnitSet],
    searching: Searching,
    calibration: Path | None,
    budget: Budget,
) -> Alternative:
    """What the compiler with its options so `changed` says of pieces of the model, and of all of it where it takes them
    all.
    """
    backend = searching.backend
    try:
        if complaint := backend.check():
            return Alternative(options=changed, problem=complaint)
        other = inquire(intake, backend, calibration)
    except (BackendUnusableError, ModelError) as error:
        return Alternative(options=changed, problem=str(error))
    planner = CulpritsThenWhole(
        culprits=[other.universe.with_required_producers(units) for units in pieces],
        called=", ".join(f"{key}={value}" for key, value in changed.items()),
    )

    def tell(event: Event) -> None:
        if isinstance(event, Note | ProbeStarted | ProbeAnswered):  # the rest is about the search of the target itself
            searching.progress(event)

    with working_folder() as folder:
        asking = replace(searching, progress=tell)
        with asking.driver(other, folder, budget, planner=planner) as driver:
            ended = driver.run()
    verdicts = {record.units: record.verdict for record in sorted(ended.records, key=lambda record: record.attempt)}
    *culprits, whole = planner.answers(other.universe, verdicts)
    wanted = {*planner.culprits, other.universe.everything}
    return Alternative(
        options=changed,
        tool=other.description.tool,
        version=other.description.version,
        culprits=tuple(culprits),
        whole=whole,
        problem="The search was cancelled." if ended.ending is Ending.CANCELLED else "",
        calls=ended.stats.compiler_calls,
        cached=len({record.units for record in ended.records if record.cached and record.units in wanted}),
    )
