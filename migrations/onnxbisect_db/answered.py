"""An answer as everybody hands it on: processes that read models have it, too, and no database."""

from dataclasses import dataclass

from onnxbisect.unitset import UnitSet
from onnxbisect.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class Answered:
    """One answered question of a search, as a report's `ProbeRecord` has it, and the id under which its log is."""

    probe_id: str
    units: UnitSet
    attempt: int
    verdict: Verdict
    why: str
    round: int
    key: str
    cached: bool
    file_sha256: str
    engine_seconds: float
