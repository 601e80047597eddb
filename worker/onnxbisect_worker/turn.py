"""Taking a turn of a search when the queue rings, and ringing for what the tenant had to wait with meanwhile."""

from collections.abc import Iterator
from contextlib import contextmanager

from onnxbisect_db import turns
from onnxbisect_db.searches import Turn
from onnxbisect_db.states import Stage
from onnxbisect_db.turns import Taker
from onnxbisect_worker.place import Place


@contextmanager
def next_turn(place: Place, search_id: str, stage: Stage) -> Iterator[Turn | None]:
    """It was rung for the search: the turn that is next by right at the stage, which may be another one's, while the
    context lasts. None where there is none to take.
    """
    seconds = place.service.settings.lease_seconds
    taker = Taker(worker=place.worker, seconds=seconds, hands=place.hands)
    database = place.service.database
    taken = None if place.stopping.is_set() else database.run(lambda s: turns.take(s, search_id, stage, taker))
    if taken is None:
        yield None
        return
    turn = taken.turn
    if taken.again:
        place.ring_search(search_id, stage, turn.backend)
    yield turn
    if place.stopping.is_set():
        return
    bell = database.run(lambda session: turns.room(session, turn, taker))
    if bell is not None:
        place.service.bell.search(bell)
