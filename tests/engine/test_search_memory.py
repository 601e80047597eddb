"""What a search computed about a model ends with it: a model of 50 000 units takes hundreds of megabytes."""

import gc

from onnxbisect.unitset import of
from onnxbisect.universe import Universe
from support.engine.worlds import World, chain, monotone


def test_no_search_keeps_a_universe_alive() -> None:
    gc.collect()
    before = sum(isinstance(thing, Universe) for thing in gc.get_objects())
    for length in (6, 16):  # of few units and of more, which are searched in different ways
        _search(length)
    gc.collect()
    assert sum(isinstance(thing, Universe) for thing in gc.get_objects()) == before


def _search(length: int) -> None:
    refused = {of([1]), of([2, length - 2])}
    world = World(chain(list(range(length))), monotone(refused))
    assert {culprit.units for culprit in world.diagnose(2).diagnosis.culprits} == refused
    World(world.universe, monotone(refused)).diagnose(recheck=True)
    World(world.universe, monotone(refused)).diagnose(brief=True)
