"""A culprit on its way to being confirmed."""

from dataclasses import dataclass

from onnxbisect.search.pattern import Occurrence
from onnxbisect.unitset import UnitSet, of


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A minimal failing set, with the places where the same structure occurs.

    `units` is the occurrence that was asked, `fails` the probe that failed (for a single unit that may be a unit
    identical to it), `subsets` the passing probes of its parts, each one unit smaller. `occurrences` are aligned:
    the same position plays the same role. `capacity`: not minimal, but too large a set, with no small part that
    fails. `context` and `blame` are set once it is blamed in context.
    """

    units: UnitSet
    fails: UnitSet
    occurrences: tuple[Occurrence, ...]
    subsets: tuple[UnitSet, ...] = ()
    capacity: bool = False
    context: UnitSet | None = None
    blame: UnitSet | None = None
    verified: bool = False

    @property
    def everywhere(self) -> UnitSet:
        """The units of all occurrences."""
        return of(unit for occurrence in self.occurrences for unit in occurrence)


@dataclass(frozen=True, kw_only=True)
class Artefact:
    """A set that fails when cut out and passes in the model; `occurrences` as in Suspect."""

    units: UnitSet
    occurrences: tuple[Occurrence, ...]
    passes_with: UnitSet | None = None
