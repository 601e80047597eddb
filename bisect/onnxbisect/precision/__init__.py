"""The fewest nodes that must stay in high precision so that the numbers are right (docs/precision.md).

Errors of single nodes do not add up, so a ranking of layers misleads where two nodes matter together. `plan` searches a
set: it asks for the metric with chosen nodes kept high, and every member of the result was shown to be needed. It
measures nothing itself. `reasons` says from a tensor's values why a node does not bear low precision.
"""
