"""The documents of this package as types: what `report.json`, `overview.json` and a comparison hold.

Typed dictionaries, since every reader takes them as JSON has them: to make values of all of it first, a report of 300
units would take 2.6 times as long to read, and one of 28 000 units 1.6 times. The JSON Schema is generated from these
types and docstrings (`onnx_bisect.report_schema`). Keys that may be missing are those that reports of earlier versions
lack. In a document that was read from a file, the members of enumerations are plain strings, so compare them with `==`.

This module needs no ONNX: pages show reports in processes that read no model.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NotRequired, get_args

from typing_extensions import TypedDict

from onnxbisect.causes.terms import CauseState
from onnxbisect.diagnosis import CertificateStatus, TargetEntry
from onnxbisect.exactness import Exactness
from onnxbisect.finding import Severity
from onnxbisect.input_value import InputValue
from onnxbisect.json_form import Where
from onnxbisect.report.culprit_contents import (
    AlternativeEntry,
    CauseEntry,
    CulpritEntry,
    NeedsContextEntry,
    SomeNames,
    UnitRanges,
)
from onnxbisect.report.text import slug
from onnxbisect.unitset import UnitSet
from onnxbisect.verdict import Kind, Status

#: The value of a report's `format`; an incompatible change increments the number.
FORMAT: Final = "onnx-bisect/report@1"

#: Longer lists of nodes are given as ranges of units alone.
LISTED: Final = 50

OpVerdict = Literal["fail", "mixed", "unknown", "needs_context", "pass"]
UnitState = Literal["culprit", "suspected", "needs_context", "pass", "unknown"]


class ModelEntry(TypedDict):
    """The model that was diagnosed."""

    sha256: str
    """Of the uploaded bytes, external data included."""
    name: str
    """The file name."""
    path: NotRequired[str]
    """As it was given, where that is a path below the folder of the command; left out elsewhere."""
    nodes: int
    """Nodes of the graph, Constant nodes included."""
    units: int
    """Smallest parts that can be cut out: a node with the Constant nodes that feed it."""
    variants: int
    """Distinct support questions among the units."""
    opsets: dict[str, int]
    """Opset version by domain."""
    producer: str
    input_shapes: NotRequired[dict[str, list[int]]]
    """The dimensions that were given for inputs; left out where none were."""
    input_values: NotRequired[dict[str, InputValue]]
    """The inputs that were made constants, with their values; left out where none were."""
    notes: list[str]
    """What intake could not establish, and what it assumed instead."""


class Choice(TypedDict):
    """A backend with its options: what was asked for."""

    backend: str
    options: dict[str, Any]


class Reproduce(TypedDict, total=False):
    """What the commands that reproduce culprits begin from, where the compiler is one of the user's own. Paths are
    relative to the folder that the report was written to.
    """

    backend: str
    """The file that describes the compiler."""
    folder: str
    """The folder in which the compiler's command was given."""
    report: str
    """The report's folder, seen from `folder`."""


class CompilesAfterEntry(TypedDict):
    """A change of the whole file after which the target takes the model."""

    sentence: str
    """What was changed, such as "ir_version 10 → 9"."""
    remedies: list[str]
    """Ids of the file remedies (docs/file-remedies.md)."""
    exactness: Exactness
    """What the remedies promise of the numbers; no numbers were compared."""
    domain: str
    """For which values it holds; empty for all."""
    calls: int
    """Compiler calls for changed files or options; 0 where the answer was known."""
    options: NotRequired[dict[str, str]]
    """The target's options that make the file compile as it is; left out where the file was changed."""


class CertificateEntry(TypedDict):
    """Whether these are all culprits."""

    status: CertificateStatus
    sentence: str
    probes: list[str]
    """Passing probes that prove that nothing else fails."""
    assumes: list[str]
    """Properties of the compiler that the proof rests on."""
    unknown: list[str]
    """What is left unknown."""


class OpCount(TypedDict):
    """How many nodes of an op."""

    op: str
    """`domain::Op` outside the default domain."""
    nodes: int


class ModuleEntry(TypedDict):
    """A module of the network, and what became of it."""

    name: str
    """As `onnx-bisect extract --scope` takes it; empty for nodes that are in none."""
    size: int
    units: UnitRanges
    verdict: Literal["pass", "fail", "unknown"]
    """Whether each of its units compiles in context, or some belong to a confirmed culprit."""
    refused: list[OpCount]
    """Its nodes that belong to confirmed culprits."""
    suspected: list[OpCount]
    """Those of culprits that are not confirmed."""
    unknown: int
    """Units of which nothing is known."""


class OpEntry(TypedDict):
    """An op type of the model, and whether the target takes it."""

    op: str
    domain: str
    """Empty for the default domain."""
    nodes: int
    variants: int
    verdict: OpVerdict
    """`mixed`: refused in some places or combinations and not in others. `unknown`: some node was never in a passing
    probe."""
    failing: int
    """Nodes that belong to a confirmed culprit."""
    passing: int
    """Nodes that were in a passing probe and belong to no culprit."""
    culprits: list[str]
    """Ids."""
    proof: list[str]
    """The smallest passing probe with all its nodes, or a few that have them between them; else the failing probes of
    its culprits."""


class UseInput(TypedDict):
    """What a use of an op is given as an input."""

    dtype: str | None
    rank: int | None
    constant: bool
    """Whether no input of the model changes it."""


class UseEntry(TypedDict):
    """One variant: an op with its attributes and the types of its inputs."""

    op: str
    domain: str
    opset: int | None
    attributes: dict[str, Any]
    """By name; dtypes by theirs, tensors and graphs as null."""
    inputs: list[UseInput | None]
    """Null where the input is omitted."""
    outputs: int
    units: UnitRanges
    passing: int
    """Units that stood in a probe that passed."""
    refused: int
    """Units that are culprits by themselves."""
    message: str
    """The compiler's, of those that are refused."""


class PieceEntry(TypedDict):
    """A part of the remainder that can run by itself."""

    size: int
    nodes: SomeNames
    """Node names, without the Constant nodes that come along."""
    units: UnitRanges
    proof: str
    compiled: bool
    """Whether `proof` is exactly this piece; otherwise it is a larger probe that passed."""
    needs_context: list[str]
    """Nodes of the piece that pass only in context and are parted from some of it here: compile this piece before
    relying on it."""


class TableEntry(TypedDict):
    """Something that the compiler tabulates."""

    title: str
    probe: str
    """The passing or failing probe that the compiler says this of."""
    columns: list[str]
    rows: list[list[str]]
    """Each as long as `columns`; cells are text as the compiler wrote it."""
    counted: str | None
    """The column by whose values a summary counts the rows."""


class FindingEntry(TypedDict):
    """Something about the model that compilers are known to mind."""

    id: str
    severity: Severity
    nodes: list[str]
    tensors: list[str]
    detail: str
    why: str
    fix: str
    remedy: NotRequired[str]
    """Id of the change of the file that does what `fix` advises; empty where there is none."""


class UnitsEntry(TypedDict):
    """All units of the model."""

    names: list[str]
    """Node name of each unit, in topological order: units elsewhere are indices into this."""
    ops: list[str]
    """Op of each unit."""
    states: dict[UnitState, UnitRanges]
    """What is known of each unit at the end; disjoint, together the whole model."""


def _is_complete(units: UnitsEntry) -> bool:
    return len(units["ops"]) == len(units["names"]) and units["states"].keys() >= {*get_args(UnitState)}


def _has_contrast(cause: CauseEntry) -> bool:
    return bool(cause["contrast"]) or not (cause["telling"] or cause["state"] == CauseState.CONFIRMED)


class ProbeEntry(TypedDict):
    """One question to the compiler, with its answer."""

    id: str
    key: str
    """Canonical structure of the probe: equal keys are equal questions."""
    size: int
    units: UnitRanges
    nodes: list[str] | None
    """Null where there are more than 50: see `units`."""
    why: str
    verdict: Status
    kind: Kind | None
    message: str
    fingerprint: str
    seconds: float
    """Wall time of the compiler."""
    cached: bool
    """Answered without calling the compiler."""
    round: int
    attempt: int
    """0 for the first time it was asked."""


class FlakyEntry(TypedDict):
    """A question that the compiler answered in contradictory ways."""

    size: int
    units: UnitRanges
    probes: list[str]


class StatsEntry(TypedDict):
    """What the diagnosis cost."""

    compiler_calls: int
    cached: int
    """Questions answered from the verdict base."""
    rounds: int
    compile_seconds: float
    """Summed over parallel compilers."""
    engine_seconds: float
    """Spent deciding and cutting."""
    wall_seconds: float


class Report(TypedDict):
    """One ONNX model on one compiler target, diagnosed. Strings from the model and from the compiler are unescaped and
    hostile.

    A probe is named by the `id` of an entry of `probes`. A set of units is text: their indices, ascending, as inclusive
    ranges such as `0-57,60`; empty for none.
    """

    format: Literal["onnx-bisect/report@1"]
    headline: str
    """The answer in one sentence."""
    model: ModelEntry
    target: TargetEntry
    verdict: Status
    """Of the whole model."""
    compiles_after: NotRequired[CompilesAfterEntry | None]
    """The change of the whole file after which the target takes the model; then its parts were not searched."""
    file_after: NotRequired[str]
    """What was changed in the file before it was searched: the target refuses the file as it is for another reason,
    which hides what is reported here. All else is about the changed file; absent for the file as it is."""
    causes: NotRequired[list[Annotated[CauseEntry, Where(_has_contrast)]]]
    """Why the culprits are refused, as far as the record tells; those that say most come first."""
    culprits: list[CulpritEntry]
    """Every minimal failing subgraph."""
    alternatives: NotRequired[list[AlternativeEntry]]
    """Other options of the target that were tried after the diagnosis, in that order."""
    needs_context: list[NeedsContextEntry]
    """Units that fail only where they are cut out; nothing is wrong with them in the model."""
    certificate: CertificateEntry
    modules: NotRequired[list[ModuleEntry]]
    """The largest modules that the network consists of, by node names or the exporter's metadata; empty where these do
    not tell several apart."""
    op_table: list[OpEntry]
    """One row for each op type of the model: refused ones first."""
    uses: NotRequired[list[UseEntry]]
    """One row for each variant, in model order: what a profile is made of."""
    partition: list[PieceEntry]
    """The remainder as pieces that can run one after another, in this order, with the culprits in between elsewhere."""
    tables: NotRequired[list[TableEntry]]
    """What the compiler tabulates, such as where each node runs: of the whole model where it got as far, else of the
    probes that prove the rest of it."""
    preflight: list[FindingEntry]
    """What compilers are known to mind, seen before any was called."""
    units: Annotated[UnitsEntry, Where(_is_complete)]
    probes: list[ProbeEntry]
    """Every question with its answer, in the order of the answers."""
    unresolved: UnitRanges
    """Units of which no probe gave an answer."""
    flaky: list[FlakyEntry]
    """Questions that the compiler answered in contradictory ways."""
    stats: StatsEntry
    reproduce: NotRequired[Reproduce]


# The names in these documents.


def culprit_dir_name(number: int, ops: Iterable[str]) -> str:
    """The folder of culprit `number`, starting at 1, below `culprits/`: `02-ReduceMean-BatchNormalization`."""
    return f"{number:02d}-{slug('-'.join(ops))}"


def path_below(path: Path) -> str | None:
    """The path as it was given, if it is one below the folder of the command; None for a bare name, and elsewhere."""
    below = not path.is_absolute() and ".." not in path.parts and len(path.parts) > 1
    return path.as_posix() if below else None


def op_name(domain: str, op_type: str) -> str:
    """`Gather`, or `com.example::Twirl` outside the default domain."""
    return op_type if domain in ("", "ai.onnx") else f"{domain}::{op_type}"


def probe_name(units: UnitSet, attempt: int) -> str:
    """The name of a probe in reports, from its units and attempt."""
    question = f"{units:x} {attempt}"
    return f"p{hashlib.sha256(question.encode()).hexdigest()[:10]}"
