"""What a job asks for besides model and targets: the fields of `Job.request`, the same for REST and for workers."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

#: Other options of each target: their values, none for those that are worth trying; or all of these.
Alternatives = Literal["all"] | Mapping[str, Sequence[str]] | None


@dataclass(frozen=True, kw_only=True)
class RepairSpec:
    """What a repair may do, and how it is proven: the fields of `onnxbisect_backends.probing.repairing.Terms`.

    `samples` maps file names to the SHA-256 of stored files. The `alternatives` are asked about the culprits.
    """

    allow: str = "rounding"
    samples: Mapping[str, str] = field(default_factory=dict)
    count: int = 4
    absolute: float = 1e-6
    relative: float = 1e-4
    alternatives: Alternatives = None


@dataclass(frozen=True, kw_only=True)
class SearchSpec:
    """`seconds` bounds one compile, `budget_calls` and `budget_seconds` the search on each target, with its `repair`
    where one is to follow.

    `calibration` maps file names to the SHA-256 of stored files: samples of the model's inputs, as `--calibration`
    takes them in a folder.
    """

    input_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    seconds: float | None = None
    budget_calls: int | None = None
    budget_seconds: float | None = None
    recheck: bool = False
    calibration: Mapping[str, str] = field(default_factory=dict)
    repair: RepairSpec | None = None
    #: Whether no changed copies of the file are asked about before its parts are searched.
    as_is: bool = False
    #: How many calls may be made for neighbours of culprits, before the report.
    confirm_causes: int = 0
    #: Whether only the model as a whole is asked about, and not which parts of it fail.
    whole: bool = False
    #: Units of pieces, in hexadecimal: these are asked about, and the whole model where all of them pass, and no more.
    pieces: tuple[str, ...] = ()
    #: Whether it is enough to know which nodes fail (`onnxbisect.search.plan`).
    brief: bool = False

    @property
    def files(self) -> frozenset[str]:
        """The stored files that it speaks of."""
        repair = RepairSpec() if self.repair is None else self.repair
        return frozenset([*self.calibration.values(), *repair.samples.values()])

    def to_json(self) -> dict[str, Any]:
        """What `from_json` reads."""
        fields = asdict(self)
        if self.repair is None:
            del fields["repair"]
        elif self.repair.alternatives is None:
            del fields["repair"]["alternatives"]
        for name in ("as_is", "confirm_causes", "whole", "pieces", "brief"):
            if not fields[name]:
                del fields[name]
        return fields

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "SearchSpec":
        """The request that `to_json` wrote."""
        shapes = {name: tuple(shape) for name, shape in fields.get("input_shapes", {}).items()}
        repair = None if fields.get("repair") is None else RepairSpec(**fields["repair"])
        pieces = tuple(fields.get("pieces", ()))
        return cls(**{**fields, "input_shapes": shapes, "repair": repair, "pieces": pieces})
