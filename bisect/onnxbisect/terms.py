"""The terms of searches and repairs: the settings that users give on the command line, in programs and over REST.

Each field stands here once, with its default, bounds and documentation. From it come the options of commands, the
keywords of `onnx_bisect.diagnose`, `fix` and `precision`, the request of the REST API, the fields of the page for a new
job, and the stored request. To add a field, write it here (in the class, and in the `...Keywords` below it) and read it
where it acts. A module of its own, because processes that do not load ONNX use it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, is_dataclass
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, TypeVar, get_args, get_type_hints

from onnxbisect.exactness import Exactness
from onnxbisect.input_value import InputValues as BoundValues
from onnxbisect.language import marked
from onnxbisect.precision.wanted import Low, Metric

Kind = TypeVar("Kind")

# The groups of options in the help of commands.
SEARCH = "Search"
LIMITS = "Limits"
PROOF = "Samples and tolerances"
INPUTS = "Inputs of the model"
PRECISION = "Nodes that must stay precise"

#: Other values by option of a backend (empty: those that it marks as worth trying), or all marked values of all.
OtherValues = Literal["all"] | Mapping[str, Sequence[object]]
#: What a webhook is sent: the signed event, or a message of a chat.
WebhookFormat = Literal["json", "feishu", "dingtalk", "wecom", "slack", "teams"]
#: A file or a folder.
AnyPath = str | PathLike[str]


class Term(NamedTuple):  # made in a tenth of the time of a dataclass, which every command would pay
    """How users see a field, and its bounds.

    `group` and `metavar` are for the command line, `option` names the option where it is not called like the field.
    `json` is the field's place in a request of the REST API where that is not its name. `above` and `least` hold
    everywhere, `most` on a server. A field with a `label` is on the page for a new job, under *More*; there `hint` is
    below it, and `empty` in it while it has no value.
    """

    doc: str
    group: str | None = None
    metavar: str | None = None
    option: str | None = None
    json: str = ""
    above: float | None = None
    least: float | None = None
    most: float | None = None
    label: str = ""
    hint: str = ""
    empty: str = ""


InputShapes = Annotated[
    Mapping[str, Sequence[int]] | None,
    Term(
        doc="An input's shape, in place of the file's.",
        group=INPUTS,
        metavar="NAME=1,3,224,224",
        option="--input-shape",
    ),
]
InputValues = Annotated[
    BoundValues | None,
    Term(
        doc="A value that an input always has: it becomes a constant.",
        group=INPUTS,
        metavar="NAME=16000",
        option="--input-value",
    ),
]
BudgetCalls = Annotated[
    int | None,
    Term(
        doc="End after N compiler calls.",
        group=LIMITS,
        metavar="N",
        json="budget.calls",
        least=1,
        most=10**9,
        label=marked("Compiler calls at most"),
        hint=marked("For each compiler; the search then ends with what it knows."),
        empty=marked("no bound"),
    ),
]
BudgetSeconds = Annotated[
    float | None,
    Term(
        doc="End after S seconds.",
        group=LIMITS,
        metavar="S",
        json="budget.seconds",
        above=0,
        most=1e9,
        label=marked("Seconds at most"),
        hint=marked("For each compiler, likewise."),
        empty=marked("no bound"),
    ),
]
Timeout = Annotated[
    float | None,
    Term(
        doc="Kill a compile that takes longer.",
        group=LIMITS,
        metavar="SECONDS",
        json="seconds",
        above=0,
        most=1e9,
        label=marked("Seconds for one compile"),
    ),
]
SAMPLES = Term(
    doc="A folder, zip or tar of samples of the inputs, .npz keyed by their names.", group=PROOF, metavar="PATH"
)
SampleCount = Annotated[int, Term(doc="Random inputs, and as many with edge values.", group=PROOF, least=1, most=64)]
Alternatives = Annotated[
    OtherValues | None,
    Term(
        doc="Then ask about the culprits with other values of an option; where all pass, about the whole model. "
        "KEY alone: the values that are worth trying; all: those of all options. Repeatable.",
        group=SEARCH,
        metavar="KEY=VALUE,…|KEY|all",
        option="--try",
    ),
]


@dataclass(frozen=True, kw_only=True)
class CallTerms:
    """How often and how long a compiler is asked: the terms of every search, `regress` and `fix` among them."""

    budget_calls: BudgetCalls = None
    budget_seconds: BudgetSeconds = None
    timeout: Timeout = None
    recheck: Annotated[
        bool,
        Term(
            doc="For a non-deterministic compiler: repeat deciding probes until their answers agree.",
            group=SEARCH,
            label=marked("Repeat deciding probes"),
            hint=marked("For a non-deterministic compiler: until their answers agree."),
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class SearchTerms(CallTerms):
    """The terms of a diagnosis."""

    as_is: Annotated[
        bool,
        Term(
            doc="Search the file as it is, without trying changes of the whole file first.",
            group=SEARCH,
            label=marked("Search the file as it is"),
            hint=marked("Else changed copies are tried first, such as one of a lower IR version."),
        ),
    ] = False
    confirm_causes: Annotated[
        int,
        Term(
            doc="Spend up to N more calls on culprits with one property changed, to confirm why they fail.",
            group=SEARCH,
            metavar="N",
            least=0,
            most=100,
        ),
    ] = 0


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """Numbers agree if they differ by at most `absolute` plus `relative` times the largest magnitude in their array.

    Sums over numbers of that magnitude leave its rounding error in small results too, so `relative` does not refer to
    each number's own magnitude. Infinities agree only with themselves, NaN with NaN. For integers, which may be indices
    or classes, `relative` is ignored.
    """

    absolute: Annotated[float, Term(doc="Difference allowed to every number.", group=PROOF, least=0, most=1e9)] = 1e-6
    relative: Annotated[
        float,
        Term(
            doc="Further difference allowed, as a share of the output's largest magnitude.",
            group=PROOF,
            least=0,
            most=1e9,
        ),
    ] = 1e-4


@dataclass(frozen=True, kw_only=True)
class RepairTerms:
    """The terms of a repair, and of its proof on samples, on `count` random inputs and as many with edge values."""

    allow: Annotated[
        Exactness,
        Term(doc="The least exact replacements that may be used ('onnx-bisect rules' shows what each promises)."),
    ] = Exactness.ROUNDING
    samples: Annotated[AnyPath | None, SAMPLES] = None
    count: SampleCount = 4
    tolerance: Tolerance = field(default_factory=Tolerance)
    alternatives: Alternatives = None

    @property
    def sample_path(self) -> Path | None:
        """Where the samples are."""
        return None if self.samples is None else Path(self.samples)


@dataclass(frozen=True, kw_only=True)
class PrecisionGoal:
    """What low precision is to reach (docs/precision.md)."""

    low: Annotated[
        Low,
        Term(
            doc="The low precision.",
            group=PRECISION,
            label=marked("Find the nodes that must stay precise"),
            hint=marked("In this low precision, after the search and the repair; the result goes with the report."),
            empty=marked("no"),
        ),
    ] = Low.INT8
    metric: Annotated[
        str,
        Term(
            doc="How near the outputs are to those in full precision, at the worst sample. A function, which no "
            "server takes, gets the outputs in full precision, the outputs and the sample, each by name, and returns "
            "a number.",
            group=PRECISION,
            metavar="sqnr|cosine|maxabs|FILE.py:FUNCTION",
            label=marked("By the metric"),
            hint=marked("sqnr: signal to noise in dB. cosine: of the angle. maxabs: the largest difference."),
        ),
    ] = Metric.SQNR.value
    at_least: Annotated[
        float | None,
        Term(
            doc="What is enough; sqnr: 30 dB, cosine: 0.999.",
            group=PRECISION,
            metavar="X",
            label=marked("Enough is"),
            hint=marked("At least so much of sqnr (30 dB) or cosine (0.999); at most so much of maxabs."),
            empty=marked("as said below"),
        ),
    ] = None
    at_most: Annotated[
        float | None, Term(doc="What is enough, where smaller is better, as maxabs.", group=PRECISION, metavar="X")
    ] = None


@dataclass(frozen=True, kw_only=True)
class PrecisionTerms(PrecisionGoal):
    """The terms of a search for nodes that must stay precise, as a stage of a job."""

    calls: Annotated[
        int | None,
        Term(
            doc="End after N measurements.",
            group=PRECISION,
            metavar="N",
            option="--precision-calls",
            json="budget.calls",
            least=1,
            most=10**9,
        ),
    ] = None
    seconds: Annotated[
        float | None,
        Term(
            doc="End after S seconds, counted from the first measurement.",
            group=PRECISION,
            metavar="S",
            option="--precision-seconds",
            json="budget.seconds",
            above=0,
            most=1e9,
        ),
    ] = None


# The same as keywords of functions, for type checkers, which cannot derive them; a test compares both.


class CallKeywords(TypedDict, total=False):
    """The fields of `CallTerms`."""

    budget_calls: BudgetCalls
    budget_seconds: BudgetSeconds
    timeout: Timeout
    recheck: bool


class SearchKeywords(CallKeywords, total=False):
    """The fields of `SearchTerms`."""

    as_is: bool
    confirm_causes: int


class RepairKeywords(CallKeywords, total=False):
    """The fields of `CallTerms` and `RepairTerms`."""

    allow: Exactness
    samples: AnyPath | None
    count: SampleCount
    tolerance: Tolerance | None
    alternatives: Alternatives


class PrecisionKeywords(TypedDict, total=False):
    """The fields of `PrecisionGoal`."""

    low: str
    metric: str
    at_least: float | None
    at_most: float | None


class TermField(NamedTuple):
    """One field of terms; those of a nested value, such as `Tolerance`, stand for themselves."""

    name: str
    kind: Any
    default: Any
    term: Term

    @property
    def path(self) -> tuple[str, ...]:
        """Its place in a request of the REST API."""
        return tuple((self.term.json or self.name).split("."))

    @property
    def is_flag(self) -> bool:
        """Whether it is either set or not."""
        return self.kind is bool


def terms_of(kind: Any) -> Iterator[TermField]:
    """The fields of terms, in their order."""
    for each, type_ in typed(kind):
        if is_dataclass(type_):
            yield from terms_of(type_)
        else:
            type_, term = get_args(type_)
            yield TermField(name=each.name, kind=type_, default=each.default, term=term)


@cache
def typed(kind: Any) -> list[tuple[Field[Any], Any]]:
    """The fields of terms with their types, nested terms as one."""
    types = get_type_hints(kind, include_extras=True)
    return [(each, types[each.name]) for each in fields(kind)]


def made(kind: type[Kind], values: Mapping[str, Any]) -> Kind:
    """The terms with these values, those of nested ones under their own names; None and what is missing is default."""
    own: dict[str, Any] = {}
    whole: Any = kind
    for each, type_ in typed(whole):
        if is_dataclass(type_) and values.get(each.name) is None:
            own[each.name] = made(type_, values)  # type: ignore[arg-type] # it is a class
        elif values.get(each.name) is not None:
            own[each.name] = values[each.name]
    return kind(**own)


def values_of(terms: object) -> dict[str, Any]:
    """The values by name, those of nested terms beside the others: `made` takes them."""
    found: dict[str, Any] = {}
    for each in fields(terms):  # type: ignore[arg-type] # terms are dataclasses
        value = getattr(terms, each.name)
        found |= values_of(value) if is_dataclass(value) else {each.name: value}
    return found


def requested(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """What a request of the REST API has for these values; nothing for a default."""
    document: dict[str, Any] = {}
    for each in terms_of(kind):
        if each.name in values and values[each.name] != each.default:
            *groups, name = each.path
            place = document
            for group in groups:
                place = place.setdefault(group, {})
            place[name] = values[each.name]
    return document
