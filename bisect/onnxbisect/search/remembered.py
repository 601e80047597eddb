"""Remembers results about a universe for as long as that lives. `functools.lru_cache` would keep the universe alive."""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar, TypeVarTuple
from weakref import WeakKeyDictionary, proxy

from onnxbisect.universe import Universe

_Arguments = TypeVarTuple("_Arguments")
_Result = TypeVar("_Result")


def remembered(
    most: int,
) -> Callable[[Callable[[Universe, *_Arguments], _Result]], Callable[[Universe, *_Arguments], _Result]]:
    """Keep the last `most` results for each universe. Results must not refer to the universe."""

    def decorate(work: Callable[[Universe, *_Arguments], _Result]) -> Callable[[Universe, *_Arguments], _Result]:
        caches: WeakKeyDictionary[Universe, Callable[..., _Result]] = WeakKeyDictionary()

        @wraps(work)
        def cached(universe: Universe, /, *arguments: *_Arguments) -> _Result:
            if universe not in caches:
                alive = proxy(universe)
                caches[universe] = lru_cache(most)(lambda *those: work(alive, *those))
            return caches[universe](*arguments)

        return cached

    return decorate
