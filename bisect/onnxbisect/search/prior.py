"""How likely each atom is to blame: what lets the search halve probability instead of count."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onnxbisect.unitset import UnitSet, size

#: From here on an atom is asked alone at once: the answer is needed anyway and probably the confirming one.
HOT = 0.5
#: Odds of an op that the target does not advertise, or that a log has named; and of one that it does advertise.
NAMED_ODDS = 9.0
ADVERTISED_FACTOR = 0.1
#: Odds that a failing group has no bad atom but an interaction, before anything is known of its atoms.
INTERACTION = 0.02
#: What an atom that passed alone keeps of its odds: it may still be part of an interaction.
ACQUITTED_FACTOR = 0.05


@dataclass(frozen=True)
class Atom:
    """Units that the search moves together: those of one variant, or fewer once a variant has been taken apart."""

    units: UnitSet
    variant: int


class Beliefs:
    """A posterior over which atoms are to blame, each independently with odds `theta * weight`.

    `theta`, the overall density of blame, is unknown: a grid of values is weighted by how well each explains the
    atoms known to be safe, those known to be bad, and the failing group that is being split (hierarchical Bayes;
    with one theta and equal weights this is Hwang's generalised binary splitting, JASA 67, 1972).
    """

    def __init__(
        self, weights: Mapping[Atom, float], named: Mapping[Atom, float], acquitted: frozenset[Atom] = frozenset()
    ) -> None:
        self._weights = weights
        self._named = named
        self._acquitted = acquitted
        count = max(len(weights), 2)
        # Half an atom to half of all atoms to blame, equally likely on a logarithmic scale.
        self._theta = np.geomspace(0.5 / count, 1.0, 16)
        self._density = np.full(16, 1 / 16)

    def observe(self, safe: Sequence[Atom], bad: Sequence[Atom], failing: Sequence[Atom]) -> None:
        """Weigh the densities by what is known; `failing` is a group known to hold at least one bad atom."""
        log = np.zeros_like(self._theta)
        if safe:
            log += np.log1p(-self._chance(safe, acquitted=False)).sum(axis=1)
        if bad:
            log += np.log(self._chance(bad)).sum(axis=1)
        if failing:
            log += np.log(self._some(failing))
        density = np.exp(log - log.max())
        self._density = density / density.sum()

    def _chance(self, atoms: Sequence[Atom], acquitted: bool = True) -> NDArray[np.float64]:
        """P(atom is bad | theta), one row for each theta; `acquitted=False` forgets what passed alone."""
        weights = [
            self._weights[atom] * (ACQUITTED_FACTOR if acquitted and atom in self._acquitted else 1.0) for atom in atoms
        ]
        odds = np.outer(self._theta, weights)
        named = np.array([self._named.get(atom, 0.0) for atom in atoms])
        odds = np.where(named > 0, named, odds)
        return np.asarray(np.clip(odds / (1 + odds), 1e-6, 0.95), dtype=np.float64)

    def chance(self, atoms: Sequence[Atom], failing: Sequence[Atom] = ()) -> list[float]:
        """P(atom is bad), given that `failing` holds a bad one where the atom is in it."""
        if not atoms:
            return []
        chances = self._chance(atoms)
        if failing:
            # Bayes, density by density: P(bad and group fails) is P(bad) for a member of the group.
            inside = set(failing)
            member = np.array([atom in inside for atom in atoms])
            chances = np.where(member, np.minimum(chances / self._some(failing)[:, None], 1.0), chances)
        return [float(chance) for chance in self._density @ chances]

    def _some(self, atoms: Sequence[Atom]) -> NDArray[np.float64]:
        """P(at least one of these is bad | theta)."""
        return np.asarray(-np.expm1(np.log1p(-self._chance(atoms)).sum(axis=1)), dtype=np.float64)

    def even_split(self, atoms: Sequence[Atom], failing: bool) -> int:
        """How many of the first atoms to ask together: passing is as likely as failing, or, of few, most is saved.

        `failing`: the atoms are known to hold a bad one; then at least one is left out.
        """
        log_clean = np.cumsum(np.log1p(-self._chance(atoms)), axis=1)
        clean = np.exp(log_clean)
        if failing:
            some = 1 - clean[:, -1:]
            # The more of its likely members passed alone, the likelier the group fails as a whole: any part passes.
            left = some / -np.expm1(np.log1p(-self._chance(atoms, acquitted=False)).sum(axis=1, keepdims=True))
            together = INTERACTION / (INTERACTION + left)
            passing = self._density @ (together + (1 - together) * (clean - clean[:, -1:]) / some)
        else:
            passing = self._density @ clean
        last = len(atoms) - 1 if failing else len(atoms)
        count = 1 + int(np.argmin(np.abs(passing[:last] - 0.5)))
        if count != 2 or not self._acquitted.isdisjoint(atoms[:3]):
            return count
        # What is to blame is asked alone in any case, so one by one costs a call only for what is clean: a group
        # saves its number of calls where it passes, and costs one. A pair seldom saves as much as one or three do.
        saved = [1.0, *(few * passing[few - 1] for few in (2, 3) if few <= last)]
        return 1 + int(np.argmax(saved))

    def surprise(self, atoms: Sequence[Atom]) -> float:
        """Bits still unknown about these atoms: a lower bound on the calls that remain."""
        return sum(-(p * math.log2(p) + (1 - p) * math.log2(1 - p)) for p in self.chance(atoms) if 0 < p < 1)


def rarity(units: UnitSet) -> float:
    """Relative odds of an atom by how often it occurs: what compilers lack is rarely what models are made of."""
    return 1 / math.sqrt(size(units))
