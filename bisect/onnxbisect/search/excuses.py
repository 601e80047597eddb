"""Which context of a suspect of a small model passes most likely, after those in which it failed.

What fails alone may pass beside some units, its *excuse*, unless another one is there. Each of these has a likelihood.
A failing probe excludes the excuses that it holds without what would spoil them, so the next probe is the one that
shows the likeliest of those left, until none is worth a call.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, combinations

from onnxbisect.search.context import FUSED, connected
from onnxbisect.search.oracle import Oracle
from onnxbisect.search.state import Suspect
from onnxbisect.unitset import UnitSet, full, is_subset, members, of, size, union
from onnxbisect.universe import Universe, remembered

#: How likely a suspect is excused by a unit apart from it, by one next to it, by two and by three units that it
#: reaches.
_EXCUSED_BY = (0.24, 0.4, 0.2, 0.16)
#: How likely these excuse it whatever else is there, unless some other op is there, and only if nothing else is.
_EXCUSED_BESIDE = (0.3, 0.4, 0.3)
#: How likely what no log names is excused by all of the model but one op, and by all but two that fail alone.
_EXCUSED_BY_NEARLY_ALL = 0.05
#: The least likelihood of an excuse that is worth a call, where a log names the suspect and where none does.
_WORTH_A_CALL, _WORTH_UNNAMED = 0.014, 0.004
#: Most of these probes for an op that is named beside all that no log names, in a model of fewest units and of more.
_FEW_ASKED, _MORE_ASKED = 3, 5
#: Most units of a model that is asked the fewer.
_FEWEST_UNITS = 7
#: Most ops of a model of which the single units, and not all of an op, are taken for what may keep one from passing.
_FEW_OPS = 3
#: Most ops that a probe leaves out of a small model.
_MOST_LEFT_OUT = 2


def open_context(
    universe: Universe,
    oracle: Oracle,
    units: UnitSet,
    suspects: Sequence[Suspect],
    *,
    named: bool,
    beside_all: bool = False,
) -> UnitSet:
    """The next probe of a suspect at this place of a small model, none that holds another interaction; 0 if none is
    worth a call.

    `named`: a log names what it refuses there, so less is in doubt. A few are enough for an op that is named
    `beside_all` that no log names.
    """
    masked = union(it.everywhere for it in suspects if it.single) & ~units
    places = [list(map(of, it.occurrences)) for it in suspects if it.interaction]
    others = [place for alike in places if units not in alike for place in alike if not place & units]

    def possible(probe: UnitSet) -> bool:
        return oracle.look(probe) is None and not any(is_subset(it, probe) for it in others)

    excuses = _excuses(universe, units, masked, 0 if named else _EXCUSED_BY_NEARLY_ALL)
    excluded = union(_shown(excuses.pairs, it, masked) for it in oracle.failing if is_subset(units, it))
    enough = _FEW_ASKED if len(universe) <= _FEWEST_UNITS else _MORE_ASKED
    if beside_all and sum(not possible(it) for it in excuses.probes) >= enough:
        return 0
    best, most = 0, _WORTH_A_CALL if named else _WORTH_UNNAMED
    for probe, shown in excuses.probes.items():
        left = shown & ~excluded
        likelihood = sum(each * size(left & those) for those, each in excuses.likelihoods)
        if likelihood > most and possible(probe):
            best, most = probe, likelihood
    return best


@dataclass(frozen=True)
class _Excuses:
    """What may make a suspect pass: `pairs` of what has to be beside it, and of what must not be there.

    Sets of them are integers, as sets of units are. `likelihoods` are those of each pair of a set. `probes` are the
    probes that could show some pairs, with these.
    """

    pairs: tuple[tuple[UnitSet, UnitSet], ...]
    likelihoods: tuple[tuple[int, float], ...]
    probes: dict[UnitSet, int]


@remembered(256)
def _excuses(universe: Universe, units: UnitSet, masked: UnitSet, by_nearly_all: float) -> _Excuses:
    """The excuses of a suspect at one place, beside `masked` units, which fail by themselves.

    `by_nearly_all` is the likelihood of all of the model but one op, and that of all but two masked ones.
    """
    rest = universe.everything & ~units
    ones = [1 << it for it in members(rest)]
    apart = rest & ~universe.neighbours(units)
    reached = connected(universe, units, FUSED)
    helpers = [[it for it in ones if it & apart]]
    helpers += [[it & ~units for it in reached if size(it) == size(units) + count] for count in (1, 2, 3)]
    ops = [it & rest for it in universe.variant_members if it & rest]
    spoilers = ops if len(ops) > _FEW_OPS else ones
    pairs: list[tuple[UnitSet, UnitSet]] = []
    likelihoods = []
    for excused, alike in zip(_EXCUSED_BY, helpers, strict=True):
        anywhere = [(it, 0) for it in alike]
        without_one = [(it, spoiler & ~it) for it in alike for spoiler in spoilers if spoiler & ~it]
        by_itself = [(it, rest & ~it) for it in alike]
        for beside, found in zip(_EXCUSED_BESIDE, (anywhere, without_one, by_itself), strict=True):
            if found:
                likelihoods.append((full(len(found)) << len(pairs), excused * beside / len(found)))
                pairs += found
    nearly_all: list[tuple[UnitSet, UnitSet]] = []
    two = [union(those) for those in combinations([it & masked for it in ops if it & masked], 2)]
    for left_out in (spoilers, two) if by_nearly_all else ():
        if found := [(rest & ~it, it) for it in left_out]:
            likelihoods.append((full(len(found)) << len(pairs), by_nearly_all / len(found)))
            pairs += found
            nearly_all += found
    probes = [
        *reached,
        *(universe.ball(units, steps) for steps in (1, 2, 3)),
        *(units | it for it in ones),
        *(units | it for it, _ in nearly_all),
    ]
    for few in chain.from_iterable(combinations(spoilers, count) for count in range(_MOST_LEFT_OUT + 1)):
        without = rest & ~masked & ~union(few) | units
        probes += [without, *(without | it for it in ones if it & masked)]
    return _Excuses(
        tuple(pairs),
        tuple(likelihoods),
        {it: _shown(pairs, it, masked) for it in dict.fromkeys(probes) if it not in (units, universe.everything)},
    )


def _shown(pairs: Iterable[tuple[UnitSet, UnitSet]], probe: UnitSet, masked: UnitSet) -> int:
    """The excuses for which the probe would pass, as far as masked units are not what fails in it."""
    hidden = probe & masked
    return of(
        index
        for index, (helper, spoiler) in enumerate(pairs)
        if is_subset(helper, probe) and not spoiler & probe and is_subset(hidden, helper)
    )
