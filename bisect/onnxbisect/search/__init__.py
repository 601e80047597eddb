"""The planner: from a universe and the verdicts so far to the probes worth asking next, or the diagnosis."""
