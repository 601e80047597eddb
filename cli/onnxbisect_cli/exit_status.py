"""Exit statuses of `run`: this program's own, or those that `git bisect run` reads."""

from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise

OPTION = "--exit-status"
#: git tests another commit.
_CANNOT_BE_TESTED = 125
#: From here on git ends the bisection, as after Ctrl-C.
_ENDS = 128


class ExitStatus(StrEnum):
    """Whose exit statuses to use."""

    USUAL = "usual"
    GIT_BISECT = "git-bisect"


def for_git_bisect(arguments: Sequence[str]) -> bool:
    """Whether the command line asks for the exit statuses of `git bisect run`.

    It is read here and not by the parser, because a command line that cannot be parsed is no bad commit either.
    """
    before = list(arguments[: arguments.index("--")] if "--" in arguments else arguments)
    return f"{OPTION}={ExitStatus.GIT_BISECT}" in before or (OPTION, ExitStatus.GIT_BISECT) in pairwise(before)


def as_git_bisect_reads(code: int) -> int:
    """0 for a model that compiles, 1 for one that does not, 125 without an answer: mistakes, too."""
    return code if code in (0, 1) or code >= _ENDS else _CANNOT_BE_TESTED
