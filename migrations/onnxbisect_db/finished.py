"""What the event `job.finished` says of each target: the verdict, and what is refused."""

from collections.abc import Sequence
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from onnxbisect.verdict import Status
from onnxbisect_db.tables import Search


class _Said(BaseModel):
    model_config = ConfigDict(frozen=True)


class RefusedRow(_Said):
    """Culprits of the same ops that are refused in the same words, as one row of the report has them."""

    ops: tuple[str, ...]
    places: int
    #: The first line of what the compiler says.
    message: str
    #: Under which condition it refuses them; empty where no more is known than the ops.
    cause: str = ""


class Findings(_Said):
    """The report of a target in short, stored with its search."""

    headline: str = ""
    refused: tuple[RefusedRow, ...] = ()
    #: How many rows are left out of `refused`.
    more: int = 0


class FinishedTarget(Findings):
    """A target of a job that has a verdict."""

    backend: str
    options: dict[str, Any]
    tool: str
    version: str
    #: None for a target that failed, as `problem` says.
    verdict: Status | None
    problem: str
    #: The verdict of the repaired model; None without a repair.
    repaired: Status | None
    #: What is known of nodes that must stay precise, or why nothing is; empty where it was not asked for.
    precision: str = ""

    @classmethod
    def of(cls, search: Search) -> Self:
        """From the stored search of the target."""
        return cls(
            **dict(Findings.model_validate(search.findings or {})),
            backend=search.backend,
            options=search.options,
            tool=search.tool,
            version=search.version,
            verdict=None if search.verdict is None else Status(search.verdict),
            problem=search.problem,
            precision=(search.precision or {}).get("headline") or (search.precision or {}).get("problem", ""),
            repaired=Status(search.repair["verdict"]) if search.repair and search.repair["verdict"] else None,
        )


class FinishedJob(_Said):
    """What `job.finished` says beside the facts that every event of a job has."""

    targets: tuple[FinishedTarget, ...]

    @classmethod
    def of(cls, searches: Sequence[Search]) -> "FinishedJob":
        """From the stored searches of the targets."""
        return cls(targets=tuple(map(FinishedTarget.of, searches)))
