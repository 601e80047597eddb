"""A job's request besides model and targets, which the database stores as `Job.request`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from pydantic import TypeAdapter

from onnxbisect.input_value import InputValues

#: Further options to try on each target: values by option (if empty, those that the backend suggests), or `all`.
Alternatives = Literal["all"] | Mapping[str, Sequence[str]] | None

_ADDED = ("input_values", "repair", "as_is", "confirm_causes", "whole", "pieces", "brief", "doubted")


@dataclass(frozen=True, kw_only=True)
class RepairSpec:
    """Settings of a repair and its proof: the fields of `onnx_bisect.steps.repairing.Terms`.

    `samples` maps file names to the SHA-256 of stored files. `alternatives` are other options to compile the culprits
    with.
    """

    allow: str = "rounding"
    samples: Mapping[str, str] = field(default_factory=dict)
    count: int = 4
    absolute: float = 1e-6
    relative: float = 1e-4
    alternatives: Alternatives = None


@dataclass(frozen=True, kw_only=True)
class SearchSpec:
    """The settings of a job's searches, the same on each target.

    `seconds` limits one compile; `budget_calls` and `budget_seconds` limit the search on one target together with its
    repair. `calibration` maps file names to the SHA-256 of stored files: samples of the model's inputs, like a folder
    for `--calibration`.
    """

    input_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    input_values: InputValues = field(default_factory=dict)
    seconds: float | None = None
    budget_calls: int | None = None
    budget_seconds: float | None = None
    recheck: bool = False
    calibration: Mapping[str, str] = field(default_factory=dict)
    repair: RepairSpec | None = None
    #: Whether to skip changed copies of the file and search its parts at once.
    as_is: bool = False
    #: Most compiler calls for slightly changed culprits, made before the report to confirm causes.
    confirm_causes: int = 0
    #: Whether only the whole model is compiled, and its parts are not searched.
    whole: bool = False
    #: Units of pieces, in hexadecimal: only these are compiled, and the whole model if all of them pass.
    pieces: tuple[str, ...] = ()
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
        left_out: dict[str, Any] = {name: True for name in _ADDED if not getattr(self, name)}
        if self.repair is not None and self.repair.alternatives is None:
            left_out["repair"] = {"alternatives"}
        fields: dict[str, Any] = _adapter().dump_python(self, mode="json", exclude=left_out)
        return fields

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "SearchSpec":
        """The spec that `to_json` wrote."""
        return _adapter().validate_python(dict(fields))


@cache
def _adapter() -> TypeAdapter[SearchSpec]:
    return TypeAdapter(SearchSpec)
