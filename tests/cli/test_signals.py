"""Which exit code a run has that a signal ended."""

import signal

import pytest

from onnxbisect_cli.signals import stopping


@pytest.mark.parametrize(
    ("first", "second"), [(signal.SIGINT, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT)], ids=["int", "term"]
)
def test_a_second_signal_does_not_change_the_exit_code(first: signal.Signals, second: signal.Signals) -> None:
    stops: list[None] = []
    before = {number: signal.getsignal(number) for number in (first, second)}
    for number in before:
        signal.signal(number, signal.default_int_handler)  # the suite may run where SIGINT is ignored
    try:
        with stopping(lambda: stops.append(None)) as interruption:
            signal.raise_signal(first)
            signal.raise_signal(second)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert interruption.exit_code == 128 + first
    assert stops
