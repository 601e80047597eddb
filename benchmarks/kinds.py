"""The generated graphs that are measured, with the calls that a search of each may take."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import comb, log2

from generate import Generated, adjacent_pair, at_most, branches, far_pairs, pattern, pattern_in_layers, singles
from simulated import Log

_OPAQUE = (Log.OPAQUE,)
_NAMING = (Log.OPAQUE, Log.FIRST, Log.FIRST_NODE, Log.ALL)
#: Layers of equal structure, units and ops of each: 1008 units.
_LAYERS, _LENGTH, _OPS = 24, 42, 20
#: Calls for one, two and three far pairs that a simulated search by halving of hypotheses needs.
_FAR_PAIRS = {1: 18, 2: 35, 3: 53}


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of graph: `n` units of `m` variants, `k` culprits apart from occurrences; limits are on means.

    `rounds` is the limit on rounds with 16 workers, who may also make no more than twice the calls of one.
    `few` are the seeds that are also searched with several workers.
    """

    name: str
    n: int
    m: int
    k: int
    make: Callable[[int], Generated]
    limits: Mapping[Log, float]
    logs: tuple[Log, ...] = _OPAQUE
    rounds: float | None = None
    seeds: int = 20
    few: int = 5


def kinds() -> list[Kind]:
    """All that goes into the document."""
    return [
        _singles(1000, 60, 4, logs=_NAMING, rounds=7.4),
        _singles(1000, 60, 10, logs=_NAMING, rounds=11.8),
        _singles(10_000, 200, 6, logs=_NAMING),
        _singles(100, 20, 1),
        _singles(1000, 60, 1),
        _singles(1000, 60, 4, skewed=True),
        _singles(1000, 60, 20, limit=_dense(60, 20)),
        _singles(1000, 60, 30, limit=_dense(60, 30)),
        _singles(10_000, 60, 4),
        _singles(10_000, 200, 6, skewed=True),
        _branches(),
        _adjacent_pair(),
        *[_far_pairs(k, copies) for copies in (1, 4) for k in _FAR_PAIRS],
        *[_pattern(p) for p in (3, 5, 7, 9, 12)],
        *[_pattern_in_layers(p) for p in (3, 5, 7, 9, 12)],
        *[_at_most(most) for most in (2, 4)],
    ]


def quick() -> list[Kind]:
    """A few of them."""
    return [_singles(1000, 60, 4, logs=_NAMING), _branches(), _adjacent_pair(), _far_pairs(1, 1), _pattern(5)]


def _information(m: int, k: int) -> float:
    return 1.15 * (log2(comb(m, k)) + k + 1) + 4


def _dense(m: int, k: int) -> float:
    return 1.1 * (m + k / 4 + 2)


def _named(m: int, k: int) -> dict[Log, float]:
    return {Log.OPAQUE: _information(m, k), Log.FIRST: 2 * k + 6, Log.ALL: 2 * k + 6}


def _singles(
    n: int,
    m: int,
    k: int,
    *,
    skewed: bool = False,
    logs: tuple[Log, ...] = _OPAQUE,
    limit: float | None = None,
    rounds: float | None = None,
) -> Kind:
    return Kind(
        name=f"singles{', skewed' if skewed else ''}",
        n=n,
        m=m,
        k=k,
        make=lambda seed: singles(n, m, k, seed, skewed=skewed),
        limits=_named(m, k) if limit is None else {Log.OPAQUE: limit},
        logs=logs,
        rounds=rounds,
    )


def _branches() -> Kind:
    return Kind(
        name="8 branches",
        n=1000,
        m=60,
        k=4,
        make=lambda seed: branches(1000, 60, 4, seed),
        limits=_named(60, 4),
        logs=_NAMING,
    )


def _adjacent_pair() -> Kind:
    make: Callable[[int], Generated] = lambda seed: adjacent_pair(1000, 60, seed)  # noqa: E731
    return Kind(name="adjacent pair", n=1000, m=60, k=1, make=make, limits={Log.OPAQUE: 18})


def _far_pairs(k: int, copies: int) -> Kind:
    return Kind(
        name="far pairs" if copies == 1 else f"far pairs, each op {copies} times",
        n=1000,
        m=60,
        k=k,
        make=lambda seed: far_pairs(1000, 60, k, seed, copies),
        limits={Log.OPAQUE: _FAR_PAIRS[k]},
    )


def _pattern(p: int) -> Kind:
    return _of_pattern(f"pattern of {p}", 1000, 60, p, lambda seed: pattern(1000, 60, p, seed))


def _pattern_in_layers(p: int) -> Kind:
    name, n = f"pattern of {p} in {_LAYERS} layers", _LAYERS * _LENGTH
    return _of_pattern(name, n, _OPS, p, lambda seed: pattern_in_layers(_LAYERS, _LENGTH, _OPS, p, seed))


def _of_pattern(name: str, n: int, m: int, p: int, make: Callable[[int], Generated]) -> Kind:
    limit = 2 * log2(n) + 2 * p + 6
    limits = {Log.OPAQUE: limit, Log.CRASH: limit}
    return Kind(name=name, n=n, m=m, k=1, make=make, limits=limits, logs=tuple(limits))


def _at_most(most: int) -> Kind:
    return Kind(
        name=f"at most {most} of {_LAYERS}",
        n=_LAYERS * _LENGTH,
        m=_LENGTH,
        k=1,
        make=lambda seed: at_most(most, _LAYERS, _LENGTH, seed),
        limits={Log.OPAQUE: 20},
        few=1,
    )
