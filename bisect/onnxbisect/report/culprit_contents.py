"""What the report's JSON says of a culprit: its cause, evidence, surroundings and alternatives (see `contents`)."""

from typing import Annotated, Literal, NotRequired

from typing_extensions import TypedDict

from onnxbisect.causes.terms import Aspect, CauseState, Relation
from onnxbisect.diagnosis import Certainty, CulpritKind
from onnxbisect.exactness import Exactness
from onnxbisect.json_form import Where
from onnxbisect.unitset import is_spelled
from onnxbisect.verdict import Kind, Status

Role = Literal["culprit", "before", "after", "input", "output"]
#: Text that `unitset.spell` has written.
UnitRanges = Annotated[str, Where(is_spelled)]
#: At least one name.
SomeNames = Annotated[list[str], Where(bool)]


class ConditionEntry(TypedDict):
    """Something that holds for a unit: `an input of rank 6 or more`."""

    text: str
    op: str | None
    """The op whose units it speaks of; null for units of any op."""
    aspect: Aspect
    name: str
    """Of the input or the attribute; `tensor`, `input` and `output` stand for any, empty for the unit itself."""
    relation: Relation
    value: int | str


class ContrastEntry(TypedDict):
    """Units that passed and miss one condition of a cause."""

    condition: str
    """The condition that is missed."""
    passes: str
    """What passed: `Gather with indices of rank 1`."""
    places: int
    """Units that passed so; 0 for a culprit with one thing changed, which was asked on its own."""
    nodes: list[str]
    """A few of them."""
    probe: str | None


class CausePlaces(TypedDict):
    """How many units meet the conditions of a cause."""

    refused: int
    unknown: int


class CauseEntry(TypedDict):
    """What some culprits have in common and nothing that passed has."""

    text: str
    """What is refused: `tensors of rank 6 or more`, `Gather with scalar indices`."""
    state: CauseState
    """`confirmed`: a culprit with one thing changed was asked about and passed. `observed`: units of the same ops that
    miss the conditions passed in this model. `no_contrast`: nothing of these ops passed. `unexplained`: no conditions
    on single units tell these culprits from what passed; they are merely alike."""
    telling: bool
    """Whether it says more than which ops are refused."""
    established: bool
    """Whether one of its culprits is confirmed."""
    culprits: list[str]
    """Ids of the culprits that it explains. Each culprit is in one cause."""
    conditions: list[ConditionEntry]
    """They all hold, for each of these culprits and for nothing that passed."""
    refused_units: UnitRanges
    places: CausePlaces
    """Units that meet the conditions: those of confirmed culprits (of all where none is confirmed), and those that
    neither are nor passed."""
    nothing_passed: str
    """That nothing which meets the conditions passed, in words; empty where there are no conditions."""
    contrast: list[ContrastEntry]
    """What passed and misses just one of the conditions."""
    fits_too: list[str]
    """Other conditions that tell the same culprits from what passed: the record does not decide between them."""


class Subgraph(TypedDict):
    """What entries for a part of the model have in common."""

    ops: list[str]
    nodes: list[str]


class Complaint(TypedDict):
    """How something fails: what entries for culprits have in common."""

    failure: Kind
    fingerprint: str
    message: str


class AtMost(TypedDict):
    """The target takes `allowed` of the nodes that are counted, which are `among`."""

    allowed: int
    among: int


class EvidenceEntry(TypedDict):
    """Probes: it fails; every part of it passes; `context` passes, and `blame`, the same with the culprit, fails."""

    fails: str | None
    subsets: list[str | None]
    """Passing probes: each holds all of the culprit but one unit."""
    context: str | None
    blame: str | None


class LargestPassing(TypedDict):
    """The largest piece that passed."""

    size: int
    units: UnitRanges


class OriginEntry(TypedDict):
    """A place in the user's source; null where the exporter left no trace."""

    node: str
    """The first node that came from here."""
    file: str | None
    """As the exporter saw it."""
    line: int | None
    function: str | None
    code: str | None
    """The source line."""
    scope: str | None
    """Path of the module."""
    module: str | None
    """Class of the module."""
    nodes: NotRequired[int]
    """How many of the culprit's nodes come from here; absent from reports of earlier versions."""


class Difference(TypedDict):
    """What two units of one op are given differently; null where one of them has nothing there."""

    what: str
    """`attribute axis`, `input 1`"""
    culprit: str | None
    passes: str | None


class VariantFact(TypedDict):
    """What a variant of an op is given that others of the op are given differently; null where it has nothing there."""

    what: str
    """`attribute axis`, `input 1`"""
    value: str | None


class PassingVariant(TypedDict):
    """A variant of the op of a culprit that passed in this model."""

    op: str
    count: int
    """Units of this variant that passed."""
    nodes: SomeNames
    """A few of them."""
    differs: list[Difference]
    probe: str | None


class DrawnNode(TypedDict):
    """A node of a picture; `op` is empty for the graph's own inputs and outputs."""

    name: str
    op: str
    role: Role


DrawnEdge = TypedDict("DrawnEdge", {"from": int, "to": int, "tensor": str, "type": str})


class Surroundings(TypedDict):
    """A culprit with its direct neighbours. Edges are indices into `nodes`; their `type` is `float[1,3,224,224]`, and
    empty where it is unknown.
    """

    nodes: list[DrawnNode]
    edges: list[DrawnEdge]
    hidden_before: int
    hidden_after: int


class ReplaceBy(TypedDict):
    """What would replace a node of a culprit; neither compiled nor proven yet."""

    rules: list[str]
    """Ids, in the order of their use (docs/rules.md), or `lower-ranks` (docs/file-remedies.md)."""
    gives: list[str]
    """Ops of the new nodes."""
    exactness: Exactness


class InnerNode(TypedDict):
    """A node in a body of an If, Loop or Scan."""

    op: str
    node: str
    """Its name, or if it has none its op and first output."""
    body: str
    """`then_branch`, or `body > else_branch` for a body within a body."""


class CulpritEntry(TypedDict):
    """A minimal failing subgraph."""

    id: str
    """Same in every run, and after edits elsewhere in the model."""
    kind: CulpritKind
    """One unit; several that fail only together; too much of everything: no small part fails; or more of one op than
    the target takes."""
    certainty: Certainty
    confidence: float
    ops: list[str]
    """In topological order; `domain::Op` outside the default domain."""
    nodes: SomeNames
    """Of the occurrence that was asked, in topological order."""
    units: UnitRanges
    occurrences: list[list[str]]
    """Every place in the model, as node names."""
    occurrence_units: list[UnitRanges]
    """The same as unit indices."""
    inferred_units: NotRequired[UnitRanges]
    """The units of occurrences of one op that were not seen to fail where they stand: the op is refused alone, and in
    its context at other places."""
    at_most: NotRequired[AtMost | None]
    """Of kind `count`: the target takes so many of the nodes that are counted."""
    failure: Kind
    fingerprint: str
    """The compiler's message with names, numbers and addresses normalised."""
    message: str
    """The compiler's own words."""
    repro: str | None
    """Smallest model that reproduces it, relative to the folder of the report; null where none was written."""
    evidence: EvidenceEntry
    largest_passing: LargestPassing | None
    """For a capacity culprit: the largest piece that passed."""
    origin: list[OriginEntry]
    variant: NotRequired[list[VariantFact]]
    """What tells it from other culprits of the same op; left out where it is the only one."""
    passes_instead: list[PassingVariant]
    """Variants of the same op that passed in this model, and what they are given differently."""
    surroundings: Surroundings | None
    """Null where the culprit is too large to draw."""
    refused_within: NotRequired[list[InnerNode]]
    """The nodes in the bodies of a refused If, Loop or Scan that the compiler's log names; left out where it names
    none."""
    replace_by: NotRequired[ReplaceBy | None]
    """Null where no rule applies within rounding; left out where none was looked for."""
    cause: NotRequired[int]
    """Which of `causes` explains it, counted from 0."""


class RefusedCulprit(TypedDict):
    """A culprit that fails with other options, too."""

    culprit: str
    message: str


class AlternativeEntry(TypedDict):
    """What the target says with other values of its options."""

    options: dict[str, str]
    """Those that were changed."""
    tool: str
    version: str
    takes: list[str]
    """Culprits whose files compile with these options."""
    refuses: list[RefusedCulprit]
    unknown: list[str]
    """Culprits about which there is no answer."""
    whole: Status | None
    """The verdict on the whole model, null where it was not asked about."""
    message: str
    """What the compiler says of the whole model, where it does not pass."""
    problem: str
    """Why it could not be asked; empty where it was."""
    compiler_calls: int
    cached: int


class PassesWith(TypedDict):
    """Units that pass together."""

    size: int
    units: UnitRanges
    nodes: list[str] | None
    """Null where there are more than 50."""
    probe: str | None


class NeedsContextEntry(TypedDict):
    """Units that fail only where they are cut out."""

    ops: list[str]
    nodes: SomeNames
    units: UnitRanges
    occurrences: list[list[str]]
    occurrence_units: list[UnitRanges]
    fails: str | None
    passes_with: PassesWith | None
    """The smallest surrounding group that was seen to pass; null where only the remainder was."""
    origin: list[OriginEntry]
