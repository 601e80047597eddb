"""How likely each atom is to blame, so that the search can halve probability instead of count."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onnxbisect.unitset import UnitSet, size

#: Chance from which an atom is compiled alone at once: that probe is needed anyway and probably confirms it.
HOT = 0.5
#: Odds of an op that the target does not advertise, or that a log has named; and of one that it does advertise.
NAMED_ODDS = 9.0
ADVERTISED_FACTOR = 0.1
#: Prior odds that an interaction is to blame and no bad atom, and how many atoms it has, each number equally likely.
INTERACTION = 0.2
_ATOMS = np.array([2, 3, 5, 8, 12])
#: Chance of an interaction from which on atoms are asked together with the passing set, and not alone.
LIKELY = 0.55
#: Chance that all atoms pass from which on all are asked: half of them would leave a second call more often.
ALL = 0.36
#: Prior odds of it in a failing group while it is less likely than that.
_UNLIKELY = 0.02
#: Factor on the odds of an atom that passed alone; it may still be part of an interaction.
ACQUITTED_FACTOR = 0.05


@dataclass(frozen=True)
class Atom:
    """Units that the search moves together: all of one variant, or fewer once a variant has been split."""

    units: UnitSet
    variant: int


class BlameOdds:
    """A posterior over which atoms are to blame, each independently with odds `theta * weight`.

    `theta`, the overall density of blame, is unknown: each value of a grid is weighted by how well it explains the
    atoms known to be safe, those known to be bad, and the failing group that is being split (hierarchical Bayes; with
    one theta and equal weights this is Hwang's generalised binary splitting, JASA 67, 1972).
    """

    def __init__(
        self,
        weights: Mapping[Atom, float],
        named: Mapping[Atom, float],
        acquitted: frozenset[Atom] = frozenset(),
        passing: int = 0,
        interactions: int = 0,
    ) -> None:
        """`passing`: how many atoms are in the passing set; `interactions`: how many of connected units were found."""
        self._weights = weights
        self._named = named
        self._acquitted = acquitted
        count = max(len(weights), 2)
        # Half an atom to half of all atoms to blame, equally likely on a logarithmic scale.
        self._theta = np.geomspace(0.5 / count, 1.0, 16)
        self._density = np.full(16, 1 / 16)
        #: P(what is known of safe and bad atoms, and theta).
        self._known = self._density
        self._bad = 0
        self._passing = passing
        self._interactions = interactions

    def observe(self, safe: Sequence[Atom], bad: Sequence[Atom], failing: Sequence[Atom]) -> None:
        """Weight the densities by what is known; `failing` is a group with at least one bad atom."""
        self._bad = len(bad)
        log = np.zeros_like(self._theta)
        if safe:
            log += np.log1p(-self._chance(safe, acquitted=False)).sum(axis=1)
        if bad:
            log += np.log(self._chance(bad)).sum(axis=1)
        self._known = np.exp(log) / len(log)
        if failing:
            log += np.log(self._some(failing))
        density = np.exp(log - log.max())
        self._density = density / density.sum()

    def _chance(self, atoms: Sequence[Atom], acquitted: bool = True) -> NDArray[np.float64]:
        """P(atom is bad | theta), one row for each theta; `acquitted=False` ignores that atoms passed alone."""
        weights = [
            self._weights[atom] * (ACQUITTED_FACTOR if acquitted and atom in self._acquitted else 1.0) for atom in atoms
        ]
        odds = np.outer(self._theta, weights)
        named = np.array([self._named.get(atom, 0.0) for atom in atoms])
        odds = np.where(named > 0, named, odds)
        return np.asarray(np.clip(odds / (1 + odds), 1e-6, 0.95), dtype=np.float64)

    def chance(self, atoms: Sequence[Atom], failing: Sequence[Atom] = ()) -> list[float]:
        """P(atom is bad), given that `failing`, if it has the atom, has at least one bad atom."""
        if not atoms:
            return []
        chances = self._chance(atoms)
        if failing:
            # Bayes for each density: P(bad and group fails) is P(bad) for a member of the group.
            inside = set(failing)
            member = np.array([atom in inside for atom in atoms])
            chances = np.where(member, np.minimum(chances / self._some(failing)[:, None], 1.0), chances)
        return [float(chance) for chance in self._density @ chances]

    def _some(self, atoms: Sequence[Atom]) -> NDArray[np.float64]:
        """P(at least one of these is bad | theta)."""
        return np.asarray(-np.expm1(np.log1p(-self._chance(atoms)).sum(axis=1)), dtype=np.float64)

    def even_split(self, atoms: Sequence[Atom], failing: bool) -> int:
        """How many of the first atoms to compile together, so that pass and fail are equally likely.

        All of them, if they pass with a chance of `ALL`; of few atoms, the number that saves most calls. `failing`: at
        least one of the atoms is bad; then at least one is left out.
        """
        log_clean = np.cumsum(np.log1p(-self._chance(atoms)), axis=1)
        clean = np.exp(log_clean)
        if failing:
            some = 1 - clean[:, -1:]
            # The more of its likely members passed alone, the likelier is an interaction, of which any part passes.
            left = some / -np.expm1(np.log1p(-self._chance(atoms, acquitted=False)).sum(axis=1, keepdims=True))
            together = _UNLIKELY / (_UNLIKELY + left)
            passing = self._density @ (together + (1 - together) * (clean - clean[:, -1:]) / some)
        else:
            passing = self._density @ clean
        if not failing and passing[-1] >= ALL:
            return len(atoms)
        last = len(atoms) - 1 if failing else len(atoms)
        count = 1 + int(np.argmin(np.abs(passing[:last] - 0.5)))
        if count != 2 or not self._acquitted.isdisjoint(atoms[:3]):
            return count
        # A bad atom is compiled alone in any case, so asking one by one wastes calls only on clean atoms: a group that
        # passes saves one call for each member, and costs one. A pair seldom saves as much as one or three do.
        saved = [1.0, *(few * passing[few - 1] for few in (2, 3) if few <= last)]
        return 1 + int(np.argmax(saved))

    def interaction(self, failing: Sequence[Atom]) -> float:
        """P(an interaction is to blame, and no bad atom), where the passing set fails with these atoms.

        The more atoms pass, the less likely is a bad one among those left, and the likelier is it that the last atom of
        an interaction is one of them. A compiler that refuses ops together often does so again.
        """
        within = self._within(len(failing))
        # Where no bad atom was found, there may be none at all.
        known = float(self._known.sum()) if self._bad else 1.0
        bad_atom = float(self._known @ self._some(failing))
        prior = INTERACTION * (1 + self._interactions) / (1 + self._bad)
        odds = prior * known * float(within[-1] - within[0]) / bad_atom
        return odds / (1 + odds)

    def joint_split(self, failing: Sequence[Atom]) -> int:
        """As `even_split` of a failing group, where an interaction is likely."""
        together = self.interaction(failing)
        within = self._within(len(failing))
        clean = np.exp(np.cumsum(np.log1p(-self._chance(failing)), axis=1))
        singles = self._density @ ((clean - clean[:, -1:]) / (1 - clean[:, -1:]))
        incomplete = (within[-1] - within[1:]) / (within[-1] - within[0])
        passing = together * incomplete + (1 - together) * singles
        return 1 + int(np.argmin(np.abs(passing[:-1] - 0.5)))

    def _within(self, count: int) -> NDArray[np.float64]:
        """P(the passing set with 0, 1, … `count` more atoms contains all atoms of an interaction)."""
        shares = (self._passing + np.arange(count + 1)) / max(len(self._weights) - self._bad, self._passing + count)
        return np.asarray((shares[:, None] ** _ATOMS).mean(axis=1), dtype=np.float64)

    def surprise(self, atoms: Sequence[Atom]) -> float:
        """Bits still unknown about these atoms: a lower bound on the remaining calls."""
        return sum(-(p * math.log2(p) + (1 - p) * math.log2(1 - p)) for p in self.chance(atoms) if 0 < p < 1)


def rarity(units: UnitSet) -> float:
    """Relative odds of an atom by its frequency: compilers rarely lack the ops that models mostly consist of."""
    return 1 / math.sqrt(size(units))
