"""The planner: from a universe and the verdicts so far to the probes worth asking next, or the diagnosis.

The whole search is ordinary code that is replayed from its start against the verdicts on record; where one is missing,
the question is noted and that line of thought ends. So it needs no state, a crash loses nothing, and the same verdicts
give the same diagnosis on any machine. Start with `search.SearchReplay`; docs/engine.md says what each module does.
"""

from onnxbisect.answer import Ask, Verdicts
from onnxbisect.search.planner import Plan, next_asks, plan

__all__ = ["Ask", "Plan", "Verdicts", "next_asks", "plan"]
