"""What a signal does to a run, and which exit code it then has."""

import signal
import time

import pytest

from onnxbisect_cli.exit_status import stopping


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


def test_a_signal_that_is_sent_twice_at_once_is_one_and_a_later_one_does_not_wait() -> None:
    """`timeout` signals the process and its group, `uv run` forwards what the terminal has sent already."""
    stops: list[None] = []
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with stopping(lambda: stops.append(None)) as interruption:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            assert stops == [None]
            time.sleep(0.15)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert interruption.exit_code == 128 + signal.SIGTERM
