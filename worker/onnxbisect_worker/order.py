"""What a job asks for besides model and targets: the fields of `Job.request`, the same for REST and for workers."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Order:
    """`seconds` bounds one compile, `budget_calls` and `budget_seconds` the search on each target.

    `calibration` maps file names to the SHA-256 of stored files: samples of the model's inputs, as `--calibration`
    takes them in a folder.
    """

    input_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    seconds: float | None = None
    budget_calls: int | None = None
    budget_seconds: float | None = None
    recheck: bool = False
    calibration: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """What `from_json` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Order":
        """The order that `to_json` wrote."""
        shapes = {name: tuple(shape) for name, shape in fields.get("input_shapes", {}).items()}
        return cls(**{**fields, "input_shapes": shapes})
