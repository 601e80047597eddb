"""Find why units are refused: what refused units have in common and no passing unit has. Makes no compiler call.

The noun is the **condition**: a property of a unit, such as "an input of rank 6 or more". Which units meet it is a row
of bits, so a condition is judged for a model of thousands of units at the price of an AND. A cause is one condition or
two, besides the op, that culprits meet together and no passing unit meets. `explain.causes` chooses the cheapest set
of causes that covers every culprit which can be explained at all.

`features` reads the properties of a node, `table` makes the rows and the minimal explanations, `explain` chooses among
them, `condition` says them as sentences. `terms` has the words of reports, for processes that do not load ONNX. Start
with `explain.causes`.
"""
