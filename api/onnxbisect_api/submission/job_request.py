"""The request for a job, as clients send it."""

from collections.abc import Callable
from functools import reduce
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StringConstraints,
    create_model,
    field_validator,
    model_validator,
)

from onnxbisect.errors import OptionError
from onnxbisect.precision.wanted import Metric, wanted
from onnxbisect.report.text import clip
from onnxbisect.terms import PrecisionTerms, RepairTerms, SearchTerms, made, terms_of
from onnxbisect_api.parameters import LABEL_NAME, ONE_LINE, SHA256_PATTERN, BackendName
from onnxbisect_db.states import EventType, WebhookFormat
from onnxbisect_service.chat_messages import WITH_SECRET
from onnxbisect_service.search_spec import RepairSpec

#: The largest dimension; ONNX stores dimensions as int64.
_LARGEST = 2**63 - 1

LabelName = Annotated[str, StringConstraints(pattern=LABEL_NAME, max_length=64)]
LabelValue = Annotated[str, StringConstraints(pattern=ONE_LINE, min_length=1, max_length=255)]
_OptionName = Annotated[str, StringConstraints(pattern=ONE_LINE, min_length=1, max_length=128)]
_OptionText = Annotated[str, StringConstraints(pattern=ONE_LINE, max_length=4096)]
_Number = Annotated[float, Field(allow_inf_nan=False)]
_InputName = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
_Dimensions = Annotated[tuple[Annotated[int, Field(ge=0, le=_LARGEST)], ...], Field(max_length=64)]
_SampleFile = Annotated[
    str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f./\\][^\x00-\x1f\x7f/\\]*\.np[yz]$", max_length=255)
]
_Sha256 = Annotated[str, StringConstraints(pattern=SHA256_PATTERN)]
_Value = StrictBool | StrictInt | Annotated[float, Field(allow_inf_nan=False, strict=True)]
InputShapes = dict[_InputName, _Dimensions]
InputValues = dict[_InputName, _Value | Annotated[tuple[_Value, ...], Field(max_length=4096)]]
Calibration = dict[_SampleFile, _Sha256]
WebhookEvent = Literal[
    "job.started",
    "culprit.found",
    "job.repaired",
    "job.measured",
    "job.finished",
    "job.failed",
    "culprit.fixed",
    "culprit.returned",
]
_Alternatives = Annotated[
    dict[_OptionName, Annotated[tuple[_OptionText, ...], Field(max_length=32)]], Field(min_length=1, max_length=32)
]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


_Model = TypeVar("_Model", bound=_Request)


class TargetRequest(_Request):
    """One compiler and its options."""

    backend: BackendName = Field(description="a name that `GET /v1/backends` lists", examples=["onnxruntime"])
    options: dict[_OptionName, _OptionText] = Field(
        default={}, max_length=100, description="as after `--option`; numbers and true or false may be written as such"
    )

    @field_validator("options", mode="before", json_schema_input_type=dict[_OptionName, bool | int | _Number | str])
    @classmethod
    def _as_typed(cls, value: object) -> object:
        """Numbers and booleans in the syntax of `--option`; other values unchanged, for validation."""
        if not isinstance(value, dict):
            return value
        return {key: str(it).lower() if isinstance(it, int | float) else it for key, it in value.items()}


def _with_terms(kind: type, group: tuple[str, ...] = ()) -> Callable[[type[_Model]], type[_Model]]:
    """Give a request the fields of the terms that stand in this group of its document and that it does not declare."""

    def with_terms(model: type[_Model]) -> type[_Model]:
        own: dict[str, Any] = {}
        for field in terms_of(kind):
            *place, name = field.path
            if tuple(place) == group and name not in model.model_fields:
                term = field.term
                known = Field(
                    default=field.default,
                    gt=term.above,
                    ge=term.least,
                    le=term.most,
                    allow_inf_nan=False if float in (field.kind, *get_args(field.kind)) else None,
                    description=term.doc,
                    validation_alias=None if name == field.name or place else AliasChoices(name, field.name),
                )
                own[name] = (field.kind, known)
        return create_model(model.__name__, __base__=model, __module__=model.__module__, __doc__=model.__doc__, **own)

    return with_terms


@_with_terms(SearchTerms, ("budget",))
class BudgetRequest(_Request):
    """Limits of the search on each target. At a limit the search ends and reports what it has found."""


@_with_terms(RepairTerms)
class RepairRequest(_Request):
    """A repair like that of `onnx-bisect fix`: proven in onnxruntime, and compiled."""

    samples: dict[_SampleFile, _Sha256] = Field(
        default={},
        max_length=100,
        description="samples of the inputs for the proof: file name to SHA-256, as `PUT /v1/files` answered",
    )
    alternatives: Literal["all"] | _Alternatives | None = Field(
        default=None,
        description="other options of each target to ask about its culprits: values by option, none for those that are "
        "worth trying; or `all` of these",
        examples=[{"precision": ["fp32", "bf16"], "version": []}],
    )

    @property
    def spec(self) -> RepairSpec:
        """The terms of the repair, as they are stored."""
        return made(RepairSpec, _values(RepairTerms, self))


@_with_terms(PrecisionTerms, ("budget",))
class PrecisionBudgetRequest(_Request):
    """Limits of the measurements on each target. At a limit the smallest set that was measured to suffice is told."""


@_with_terms(PrecisionTerms)
class PrecisionRequest(_Request):
    """A search for nodes that must stay precise, like that of `onnx-bisect precision`."""

    budget: PrecisionBudgetRequest = PrecisionBudgetRequest()

    @model_validator(mode="after")
    def _can_be_wanted(self) -> Self:
        terms = self.spec
        if terms.metric not in list(Metric):
            raise ValueError(
                f"There is no metric {clip(terms.metric, 60)!r} on a server, which runs no code of yours: give "
                f"{', '.join(Metric)}, or run `onnx-bisect precision` yourself."
            )
        try:
            wanted(terms.metric, terms.at_least, terms.at_most)
        except OptionError as error:
            raise ValueError(str(error).replace("--at-", "at_")) from None
        return self

    @property
    def spec(self) -> PrecisionTerms:
        """The terms of the search."""
        return made(PrecisionTerms, _values(PrecisionTerms, self))


class WebhookRequest(_Request):
    """A webhook for the events of this job."""

    url: str = Field(max_length=2000)
    events: tuple[WebhookEvent, ...] = Field(
        default=(),
        max_length=8,
        description="none means all; for a chat, the ends of jobs and changes of known culprits",
    )
    format: WebhookFormat = Field(
        default=WebhookFormat.JSON, description="`json` is the signed event, the others are messages of that chat"
    )
    secret: Annotated[str, StringConstraints(min_length=1, max_length=200, pattern="^[!-~]+$")] | None = Field(
        default=None, description="of a Feishu, Lark or DingTalk robot that checks signatures; the chat makes it"
    )

    @model_validator(mode="after")
    def _has_its_own_secret(self) -> Self:
        if self.secret is not None and self.format not in WITH_SECRET:
            raise ValueError("only robots of Feishu, Lark and DingTalk have a secret")
        return self

    @property
    def types(self) -> tuple[EventType, ...]:
        """The types of the requested events."""
        return tuple(sorted({EventType(event) for event in self.events}))


@_with_terms(SearchTerms)
class RequestedTerms(_Request):
    """A request for a job without its model: targets and settings."""

    targets: tuple[TargetRequest, ...] = Field(min_length=1, max_length=32)
    input_shapes: InputShapes = Field(
        default={},
        max_length=256,
        description="dimensions for inputs whose own are not all known",
        examples=[{"x": [1, 3]}],
    )
    input_values: InputValues = Field(
        default={},
        max_length=256,
        description="inputs that always have one value, and become constants; a list has it row by row",
        examples=[{"sr": 16000}],
    )
    calibration: Calibration = Field(
        default={},
        max_length=4096,
        description="samples of the inputs: file name to SHA-256, as `PUT /v1/files` answered",
    )
    budget: BudgetRequest = BudgetRequest()
    repair: RepairRequest | None = Field(default=None, description="repair each target's culprits after the search")
    precision: PrecisionRequest | None = Field(
        default=None, description="then search the nodes that must stay precise, on the samples of `calibration`"
    )
    priority: int = Field(
        default=0,
        ge=-100,
        le=100,
        description="jobs with a higher priority are claimed first; more than 0 needs the scope admin",
    )
    labels: dict[LabelName, LabelValue] = Field(
        default={}, max_length=32, description="labels to find the job by", examples=[{"repo": "net", "branch": "main"}]
    )
    webhook: WebhookRequest | None = Field(
        default=None, description="a URL for events of this job; the response has the signing secret, only this once"
    )

    @field_validator(
        "webhook", mode="before", json_schema_input_type=Annotated[str, Field(max_length=2000)] | WebhookRequest | None
    )
    @classmethod
    def _as_url(cls, value: object) -> object:
        return {"url": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _has_samples(self) -> Self:
        if self.precision is not None and not self._calibrated:
            raise ValueError(
                "precision measures ranges and errors on samples of the inputs: upload some, and name them in "
                "calibration."
            )
        return self

    @property
    def _calibrated(self) -> bool:
        return bool(self.calibration)

    @property
    def search(self) -> SearchTerms:
        """The terms of the searches."""
        return made(SearchTerms, _values(SearchTerms, self))


class PartRequest(_Request):
    """One of several models, with its own settings."""

    model: _Sha256
    input_shapes: InputShapes = Field(default={}, max_length=256, description="beside those of the request")
    input_values: InputValues = Field(default={}, max_length=256, description="likewise")
    calibration: Calibration = Field(default={}, max_length=4096, description="instead of that of the request")


class JobRequest(RequestedTerms):
    """A request for an uploaded model, or for several, with a job for each."""

    model: _Sha256 | None = Field(
        default=None, description="SHA-256 of an uploaded model, as `PUT /v1/models` answered; this or `models`"
    )
    models: tuple[PartRequest, ...] = Field(
        default=(),
        max_length=64,
        description="instead of `model`: the parts of one network, each as SHA-256 or with terms of its own",
    )

    @field_validator(
        "models", mode="before", json_schema_input_type=Annotated[list[_Sha256 | PartRequest], Field(max_length=64)]
    )
    @classmethod
    def _as_parts(cls, value: object) -> object:
        if not isinstance(value, list | tuple):
            return value
        return [{"model": each} if isinstance(each, str) else each for each in value]

    @property
    def _calibrated(self) -> bool:
        return bool(self.calibration) or (bool(self.models) and all(part.calibration for part in self.models))

    @model_validator(mode="after")
    def _has_a_model(self) -> Self:
        if (self.model is None) == (not self.models):
            raise ValueError("say either model or models")
        if len({part.model for part in self.models}) < len(self.models):
            raise ValueError("a model is named twice in models")
        return self


def _values(kind: type, request: _Request) -> dict[str, Any]:
    """The values of terms in a request, by their names."""
    return {field.name: reduce(getattr, field.path, request) for field in terms_of(kind)}
