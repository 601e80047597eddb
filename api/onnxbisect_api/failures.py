"""Wrong tokens, counted by the address that they come from."""

import hashlib
from collections import OrderedDict
from threading import Lock

from onnxbisect_api.client_address import counted_address
from onnxbisect_api.rates import Counters, Rate

_REMEMBERED = 4096


class Failures:
    """Beyond the limit no token from an address is looked at, except those that were good here before: whoever shares
    the address with someone who guesses, as all do behind a proxy, goes on working.
    """

    def __init__(self, counters: Counters, rate: Rate) -> None:
        self._counters = counters
        self._rate = rate
        self._good: OrderedDict[bytes, None] = OrderedDict()
        self._lock = Lock()

    def demand_few(self, address: str, text: str) -> None:
        """A 429 where this token is not to be looked at."""
        with self._lock:
            known = _digest(text) in self._good
        if not known:
            self._counters.demand(self._rate, counted_address(address))

    def right(self, text: str) -> None:
        """This token is good."""
        with self._lock:
            self._good[_digest(text)] = None
            self._good.move_to_end(_digest(text))
            if len(self._good) > _REMEMBERED:
                self._good.popitem(last=False)

    def wrong(self, address: str) -> None:
        """A token from there was not; a 429 where that is one too many."""
        self._counters.count(self._rate, counted_address(address))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()
