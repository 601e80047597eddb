"""What a compiler may mind of a file whatever its nodes are: its boundary, where its weights lie, and its versions."""

from dataclasses import dataclass
from enum import StrEnum

#: Bytes of a name that hardly any compiler minds, and to which names are shortened where longer ones are refused; and
#: where names of so many are refused, too.
PLAIN_NAME, SHORT_NAME = 60, 24

#: The ranks that every compiler takes at a boundary.
LOWEST_PLAIN_RANK, HIGHEST_PLAIN_RANK = 2, 4


class TraitKind(StrEnum):
    """What a compiler may mind of a graph input or output."""

    RANK = "rank"
    DTYPE = "dtype"
    NAME = "name"
    CHARACTERS = "characters"
    EMPTY = "empty"
    COUNT = "count"
    EXTERNAL = "external"
    IR = "ir"
    OPSET = "opset"


#: Versions that every current compiler reads, by what a trait may name instead.
PLAIN_VERSIONS = {TraitKind.IR: 8, TraitKind.OPSET: 13}


@dataclass(frozen=True, kw_only=True, order=True)
class Trait:
    """`value` is the dtype, the name's length in bytes, the characters of names, how many there are, or the version; of
    ranks 0, 1, and those above 4.
    """

    what: TraitKind
    output: bool
    value: str

    @property
    def is_high_rank(self) -> bool:
        """Whether it is a rank above those that every compiler takes."""
        return self.what is TraitKind.RANK and int(self.value) > HIGHEST_PLAIN_RANK

    @property
    def is_low_rank(self) -> bool:
        """Whether it is a rank below those that every compiler takes."""
        return self.what is TraitKind.RANK and int(self.value) < LOWEST_PLAIN_RANK

    @property
    def is_version(self) -> bool:
        """Whether it is about the file, and not about its boundary."""
        return self.what in PLAIN_VERSIONS

    def __str__(self) -> str:
        side = "outputs" if self.output else "inputs"
        match self.what:
            case TraitKind.RANK:
                return f"{side} of rank {self.value}"
            case TraitKind.DTYPE:
                return f"{self.value} {side}"
            case TraitKind.NAME:
                return f"{side} with names of {self.value} bytes"
            case TraitKind.EMPTY:
                return f"{side} without elements"
            case TraitKind.COUNT:
                return f"{self.value} {side}"
            case TraitKind.EXTERNAL:
                return "weights in other files"
            case TraitKind.IR:
                return f"IR version {self.value}"
            case TraitKind.OPSET:
                return f"operator set {self.value}"
        return f"{side} with {self.value!r} in their names"


#: Weights that lie in a file beside the model, which has no side.
EXTERNAL = Trait(what=TraitKind.EXTERNAL, output=False, value="")
