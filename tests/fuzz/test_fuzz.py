"""Six hundred hostile models: none is a fault, a hang, a crash or more memory than was allowed."""

import pytest

from support.fuzz.fuzzing import fuzz
from support.fuzz.victim import outcome

COUNT = 600  # a minute beside three other test processes on two cores


@pytest.mark.long
def test_hostile_models_end_in_a_sentence_or_a_diagnosis() -> None:
    """`make fuzz` shows twenty thousand, to `share`, too."""
    counts = fuzz(range(COUNT), every=False)
    print(counts.table())
    assert counts.wrong == []
    assert counts.outcomes.total() == COUNT
    for command in ("inspect", "run"):  # most are models still, or nothing but the gate would be looked at
        refused = sum(number for (it, _, what), number in counts.outcomes.items() if (it, what) == (command, "refused"))
        assert refused < 0.35 * COUNT


def test_what_is_wrong_is_told_apart() -> None:
    """Otherwise nothing would ever be found."""
    assert outcome(3, "onnx-bisect: this is a bug in onnx-bisect (KeyError: 1); please report it.") == "fault"
    assert outcome(-1, "Traceback (most recent call last):") == "fault"
    assert outcome(2, "onnx-bisect: Tensor 'w' is none\x1b[2J.") == "fault"
    assert outcome(2, "onnx-bisect: Tensor 'w' is none.") == "refused"
