"""An answer of a search as workers hand it to the processes that read models, which have no database."""

from dataclasses import dataclass

from onnxbisect.job import ProbeRecord


@dataclass(frozen=True, kw_only=True)
class Answered(ProbeRecord):
    """One answered question of a search, and the id under which its log is."""

    probe_id: str
    engine_seconds: float
