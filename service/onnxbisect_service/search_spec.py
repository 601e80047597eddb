"""A job's request besides model and targets, which the database stores as `Job.request`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from pydantic import TypeAdapter

from onnxbisect.input_value import InputValues
from onnxbisect.terms import PrecisionTerms, RepairTerms, SearchTerms, Tolerance, requested

#: Further options to try on each target: values by option (if empty, those that the backend suggests), or `all`.
Alternatives = Literal["all"] | Mapping[str, Sequence[str]] | None

#: The fields that are stored even if they say nothing, as of the first version.
_ALWAYS = ("input_shapes", "timeout", "budget_calls", "budget_seconds", "recheck", "calibration")
_ALWAYS_OF_REPAIR = ("allow", "samples", "count", "tolerance")
#: The name of `timeout` in stored requests, and in those of the REST API.
_SECONDS = "seconds"


@dataclass(frozen=True, kw_only=True)
class RepairSpec(RepairTerms):
    """The terms of a repair. `samples` maps file names to the SHA-256 of stored files."""

    samples: Mapping[str, str] = field(default_factory=dict)  # type: ignore[assignment] # no files of this machine
    alternatives: Alternatives = None


@dataclass(frozen=True, kw_only=True)
class SearchSpec(SearchTerms):
    """The settings of a job's searches, the same on each target.

    The budget limits the search on one target together with its repair. `calibration` maps file names to the SHA-256
    of stored files: samples of the model's inputs, like a folder for `--samples`.
    """

    input_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    input_values: InputValues = field(default_factory=dict)
    calibration: Mapping[str, str] = field(default_factory=dict)
    repair: RepairSpec | None = None
    precision: PrecisionTerms | None = None
    #: Whether only the whole model is compiled, and its parts are not searched.
    whole: bool = False
    #: Units of pieces, in hexadecimal: only these are compiled, and the whole model if all of them pass.
    pieces: tuple[str, ...] = ()
    #: Whether the model is a piece of another, with inputs of its own.
    piece: bool = False
    #: Whether to search in brief (`onnxbisect.search.plan`).
    brief: bool = False
    #: Names of nodes that the search leaves out first, since they were refused before the model was repaired.
    doubted: tuple[str, ...] = ()

    @property
    def files(self) -> frozenset[str]:
        """The SHA-256 of all stored files that the spec names."""
        repair = RepairSpec() if self.repair is None else self.repair
        return frozenset([*self.calibration.values(), *repair.samples.values()])

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values, for `from_json`. Later additions are left out where they say nothing."""
        left_out: dict[str, Any] = _silent(self, SearchSpec(), _ALWAYS)
        if self.repair is not None:
            left_out["repair"] = _silent(self.repair, RepairSpec(), _ALWAYS_OF_REPAIR)
        document: dict[str, Any] = _adapter().dump_python(self, mode="json", exclude=left_out)
        document[_SECONDS] = document.pop("timeout")
        if self.repair is not None:
            document["repair"] |= document["repair"].pop("tolerance")
        if self.precision is not None:
            always = {"low": self.precision.low, "metric": self.precision.metric}
            document["precision"] = always | requested(PrecisionTerms, vars(self.precision))
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "SearchSpec":
        """The spec that `to_json` wrote."""
        fields = {"timeout" if name == _SECONDS else name: value for name, value in document.items()}
        if (repair := fields.get("repair")) is not None:
            tolerance = {name: repair[name] for name in Tolerance.__annotations__ if name in repair}
            others = {name: value for name, value in repair.items() if name not in tolerance}
            fields["repair"] = {**others, "tolerance": tolerance}
        if (precision := fields.get("precision")) is not None:
            budget = precision.get("budget", {})
            fields["precision"] = {name: value for name, value in precision.items() if name != "budget"} | budget
        return _adapter().validate_python(fields)


def _silent(spec: object, default: object, always: Sequence[str]) -> dict[str, Any]:
    """The fields that are as in `default`, and not stored `always`."""
    return {name: True for name, value in vars(default).items() if name not in always and getattr(spec, name) == value}


@cache
def _adapter() -> TypeAdapter[SearchSpec]:
    return TypeAdapter(SearchSpec)
