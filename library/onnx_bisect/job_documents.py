"""What a client sends to the REST API to make a job, and what the API answers about one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NotRequired, TypedDict

from onnx_bisect.remote_repair import RepairTerms


@dataclass(frozen=True, kw_only=True)
class RemoteTarget:
    """A backend that the server has, with its options."""

    backend: str
    options: Mapping[str, str] = field(default_factory=dict)


class JobTerms(TypedDict, total=False):
    """What is asked of models: for the `backend` with its `options`, or for several `targets`.

    The bounds, `recheck`, `as_is` and `confirm_causes` are those of `diagnose`; docs/api.md says what `labels`,
    `webhook` and `priority` are. With `repair`, what is refused is repaired, as `fix` does.
    """

    backend: str | None
    options: Mapping[str, str] | None
    targets: Sequence[RemoteTarget]
    budget_calls: int | None
    budget_seconds: float | None
    timeout: float | None
    recheck: bool
    as_is: bool
    confirm_causes: int
    labels: Mapping[str, str] | None
    webhook: str | None
    priority: int
    repair: RepairTerms | None


class RepairStatus(TypedDict):
    """What became of a repair that was asked for; `url` is where it is, None where there is none."""

    state: str
    url: str | None
    problem: str


class TargetStatus(TypedDict):
    """One target of a job, as far as this client reads it; `fault` says whose it is that it failed."""

    number: int
    backend: str
    state: str
    verdict: str | None
    problem: str
    fault: NotRequired[str | None]
    calls: int
    expected: float
    culprits: list[object]
    files: dict[str, str]
    repair: NotRequired[RepairStatus | None]


class JobStatus(TypedDict):
    """A job as the server describes it (docs/api.md), as far as this client reads it. Servers of earlier versions have
    no `page`.
    """

    id: str
    url: str
    page: NotRequired[str]
    state: str
    problem: str
    fault: NotRequired[str | None]
    targets: list[TargetStatus]
