"""What several test modules share, by the folder of tests that it serves first. `tests` is on the path."""

from pathlib import Path

#: The folder `tests`: the programs of this package run as `python -m support...` with it on their path.
TESTS = Path(__file__).parents[1]
