"""Find why units are refused: what refused units have in common and no passing unit has. Makes no compiler call.

A condition such as "an input of rank 6 or more" is a set of units (`table`). The explanation (`explain`) is the
cheapest set of conditions that covers every culprit and no unit that passed. `wording` says it in a sentence.
"""
