"""How many examples of a property are tried: all in `make test-all`, a share in `make test` (the profile `quick`)."""

from hypothesis import settings

#: What the profile `patient` has, and what the numbers of tests are meant for.
WHOLE = 100
#: What the profile `quick` has.
SHARE = 20


def examples(count: int) -> int:
    """So many of `count` as the profile in use tries; a few at least."""
    return max(min(count, 5), count * settings().max_examples // WHOLE)
