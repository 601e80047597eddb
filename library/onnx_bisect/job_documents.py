"""What a client submits, and types of the REST API's responses, as the client uses them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NotRequired, TypedDict

from onnxbisect.input_value import InputValues
from onnxbisect.terms import PrecisionTerms, RepairTerms, SearchKeywords, WebhookFormat


@dataclass(frozen=True, kw_only=True)
class RemoteTarget:
    """A backend of the server, with its options."""

    backend: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Part:
    """One of several models, with its own inputs. `label` names it in tables and names its folder."""

    label: str
    model: Path
    input_shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    input_values: InputValues = field(default_factory=dict)
    calibration: Path | None = None


class Webhook(TypedDict):
    """Where the events of a job are sent; `secret` is that of a Feishu, Lark or DingTalk robot."""

    url: str
    format: NotRequired[WebhookFormat]
    secret: NotRequired[str]


class JobTerms(SearchKeywords, total=False):
    """The settings of a job: one `backend` with its `options`, or several `targets`.

    The terms of `onnxbisect.terms.SearchTerms` are those of `diagnose`; docs/api.md describes `labels`, `webhook` (a
    URL, or one with a format) and `priority`. With `repair`, culprits are repaired as by `fix`, and with
    `precision` the nodes that must stay precise are searched on the samples, the model's `calibration`.
    """

    backend: str | None
    options: Mapping[str, str] | None
    targets: Sequence[RemoteTarget]
    labels: Mapping[str, str] | None
    webhook: str | Webhook | None
    priority: int
    repair: RepairTerms | None
    precision: PrecisionTerms | None


class RepairStatus(TypedDict):
    """The state of a requested repair; `url` is the address of its result, None if there is none."""

    state: str
    url: str | None
    problem: str


class PrecisionStatus(TypedDict):
    """The state of a requested search for nodes that must stay precise; `url` is the address of precision.json."""

    state: str
    url: str | None
    problem: str
    keep: int
    asks: int


class TargetStatus(TypedDict):
    """The fields of a job's target that this client reads. `fault` is "request" if the request caused the failure."""

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
    precision: NotRequired[PrecisionStatus | None]


class JobStatus(TypedDict):
    """The fields of a job (docs/api.md) that this client reads. Servers of earlier versions send no `page`."""

    id: str
    url: str
    page: NotRequired[str]
    state: str
    problem: str
    fault: NotRequired[str | None]
    targets: list[TargetStatus]
