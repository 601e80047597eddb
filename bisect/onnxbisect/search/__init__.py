"""The planner: from a universe and the verdicts so far to the probes worth asking next, or the diagnosis."""

from onnxbisect.answer import Ask
from onnxbisect.search.plan import Plan, Verdicts
from onnxbisect.search.planner import next_asks, plan

__all__ = ["Ask", "Plan", "Verdicts", "next_asks", "plan"]
