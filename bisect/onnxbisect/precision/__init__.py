"""The fewest nodes that must stay in high precision so that the numbers are right (docs/precision.md).

The noun is the **kept set**: the nodes that one measurement keeps in high precision. Errors of single nodes do not add
up, so a ranking of layers misleads where two nodes matter together. `plan.plan` searches a set instead: it asks for the
metric with chosen nodes kept high, and every member of the result was shown to be needed. It measures nothing itself.

`wanted` says what is enough, `low` in which order nodes are suspected, `tensors` and `reasons` what their values say of
it, `equivalents.rewritten` changes a model so that fewer nodes need to be kept, `report.PrecisionReport` is the
document and `pictures` draws it. Start with `plan`.
"""
