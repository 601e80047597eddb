"""How much of a property is tried: all in `make test-all`, a share in `make test` (the profile `quick`)."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from hypothesis import settings

#: What the profile `patient` has, and what the numbers of tests are meant for.
WHOLE = 100
#: What the profile `quick` has.
SHARE = 10

#: Models of many nodes, each of which takes as long as all small ones together.
_LARGE = {
    "bert_base12_h256_dyn__ts17",
    "c7_chain1000_10bad",
    "timm_repvit_m0_9__ts17",
    "timm_vit_tiny_patch16_224__ts17",
}


def examples(count: int) -> int:
    """So many of `count` as the profile in use tries; a few at least."""
    return max(min(count, 5), count * settings().max_examples // WHOLE)


def models(paths: Iterable[Path]) -> list[ParameterSet]:
    """A parameter for each model; the large ones are tried in `make test-all`."""
    return [pytest.param(path, id=path.stem, marks=[pytest.mark.long] if path.stem in _LARGE else []) for path in paths]
