"""Which changed files to try for a model that a tool refuses, the one that changes least first."""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace

import onnx

from onnxbisect.errors import ModelError
from onnxbisect.file_remedies.file import File
from onnxbisect.file_remedies.registry import REMEDIES
from onnxbisect.file_remedies.remedy import Change, FileRemedy
from onnxbisect.model import Model
from onnxbisect.model.allowance import Bounded, directly
from onnxbisect.model.scopes import constant_names, walk
from onnxbisect.model.structure import complaint
from onnxbisect.preflight import NEWER_THAN_TOOL, Finding, Reader, Severity, settled_by
from onnxbisect.rewrites import Exactness, NotApplicable
from onnxbisect.verdict import Hints

#: Each costs a compile of the whole model.
MOST_CANDIDATES = 4
#: How often a remedy is applied that may uncover more of the same, such as a branch within a branch.
_ROUNDS = 4
#: What put nodes in, and what these may call for, though the preflight did not see them.
_EXPANDING = {"inline-functions", "resolve-control-flow", "sequences-to-tensors"}
_FOLLOWING = {"remove-copies", "fold-constants", "constants-to-initializers"}
#: What is done to every candidate and makes none by itself: intake did it to the model that the tool was asked about.
_BASE = ("name-nodes", "sort-nodes", "weights-no-inputs", "bind-dimensions", "correct-declared-types")
_NO_HINTS = Hints()
#: What is tried, whatever the tool names, where it says that it has computed no constants.
_FOLDING = "fold-constants"


@dataclass(frozen=True, kw_only=True)
class Applied:
    """A remedy that was applied, with what it did, and for which values that holds where it does not for all."""

    remedy: str
    sentence: str
    exactness: Exactness
    domain: str = ""


@dataclass(frozen=True, kw_only=True)
class Declined:
    """A remedy that answers a finding and could not be applied, with the reason."""

    remedy: str
    reason: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """A changed copy of the file. It refers to external data as the file does, so it must be written beside it.

    `needed`: it answers a finding that is an error, for which most tools refuse the file as it is, or it changes what
    the tool named.
    """

    proto: onnx.ModelProto
    applied: tuple[Applied, ...]
    declined: tuple[Declined, ...] = ()
    needed: bool = False

    @property
    def sentence(self) -> str:
        """What was changed."""
        return "; ".join(applied.sentence for applied in self.applied)

    @property
    def exactness(self) -> Exactness:
        """The worst of all that was applied."""
        return max((applied.exactness for applied in self.applied), key=list(Exactness).index)


def promising(findings: Iterable[Finding], reader: Reader) -> bool:
    """Whether there may be a file to try: whether a remedy answers a finding that probes do not settle."""
    settled = settled_by(reader.probe_format)
    return not _ids(_answering(it.id for it in findings if it.id not in settled)) <= set(_BASE)


def candidates(
    model: Model,
    findings: Iterable[Finding],
    reader: Reader,
    bounded: Bounded = directly,
    hints: Hints = _NO_HINTS,
) -> Iterator[Candidate]:
    """Up to four files to try, in this order: the remedy of the first error alone, those of all errors, all exact
    ones, those as well that are not.

    `findings` are those that concern the tool, `hints` what it named of the model as it is: where it named ops, a file
    that answers no error is tried only if it changes a node of these. Each file is made when it is asked for. Where
    functions or control flow are replaced, that runs the model once more: `bounded` is as in `model.load`.
    """
    file, found = File.of(model), list(findings)
    named = _named(file.proto, hints)
    settled = settled_by(reader.probe_format)
    errors = [it.id for it in found if it.severity is Severity.ERROR and it.id not in settled]
    every = _with_following(_answering(finding.id for finding in found))
    exact = [remedy for remedy in every if remedy.exactness is Exactness.EXACT]
    of_errors = [remedy for error in errors for remedy in exact if error in remedy.answers]
    newer = [remedy for remedy in of_errors if not set(NEWER_THAN_TOOL).isdisjoint(remedy.answers)]
    together = [_ids(of_errors), _ids(exact), _ids(every)]
    # a file that is newer in both ways is refused for either
    alone = [_ids(newer), *(_ids([remedy]) for remedy in of_errors if remedy not in newer)]
    base = _ids(_answering(it.id for it in found if it.id in settled)).union(_BASE)
    asked = _ids(_answering(finding.id for finding in found))
    made: set[tuple[str, ...]] = set()
    alone = [wanted for wanted in alone if wanted]
    for wanted in dict.fromkeys([*alone[: MOST_CANDIDATES - len(together)], *together]):
        candidate = repaired(file, base.union(wanted), reader, bounded)
        candidate = replace(candidate, declined=tuple(it for it in candidate.declined if it.remedy in asked))
        done = tuple(dict.fromkeys(applied.remedy for applied in candidate.applied))
        if done in made or base.issuperset(done):
            continue
        made.add(done)
        touched = bool(named) and not _untouched(candidate.proto, named)
        folded = bool(hints.unfolded) and _FOLDING in done
        needed = touched or folded or not (_ids(of_errors) - base).isdisjoint(done)
        if needed or not named:
            yield replace(candidate, needed=needed)


def repaired(file: File, remedies: Collection[str], reader: Reader, bounded: Bounded = directly) -> Candidate:
    """The file after these remedies, given by their ids, as far as they can be applied."""
    applied: list[Applied] = []
    declined: list[Declined] = []
    for remedy in REMEDIES:
        if remedy.id not in remedies:
            continue
        for number in range(_ROUNDS):
            try:
                change = _applied(remedy, file, reader)
            except (NotApplicable, ModelError) as reason:
                if not number and remedy.id not in _BASE:
                    declined.append(Declined(remedy=remedy.id, reason=str(reason)))
                break
            exactness = change.exactness or remedy.exactness
            applied.append(
                Applied(remedy=remedy.id, sentence=change.sentence, exactness=exactness, domain=remedy.domain)
            )
            file = file.after(change.proto, change.types)
            if not change.structure:
                break
            file = file.examined(bounded)
    return Candidate(proto=file.proto, applied=tuple(applied), declined=tuple(declined))


def _applied(remedy: FileRemedy, file: File, reader: Reader) -> Change:
    """The change, of which onnx.checker says no more than of the file."""
    try:
        change = remedy.apply(file, reader)
    except (NotApplicable, ModelError):
        raise
    except Exception as error:  # a file with nodes that are not what their ops demand may raise anything
        raise NotApplicable(f"the remedy failed: {type(error).__name__}: {error}") from error
    refused = complaint(change.proto)
    if refused and not complaint(file.proto):
        raise NotApplicable(f"onnx refuses the result: {refused}")
    return change


def _named(proto: onnx.ModelProto, hints: Hints) -> Counter[Hashable]:
    """The nodes that a tool named, or whose ops it did; op types without their domains, which tools leave out."""
    ops = {op.rpartition("::")[2] for op in hints.ops}
    nodes = [node for node in walk(proto.graph) if node.op_type in ops or node.name in hints.nodes]
    return _as_they_are(proto, nodes)


def _untouched(proto: onnx.ModelProto, named: Counter[Hashable]) -> bool:
    """Whether a changed file has all these nodes as they were."""
    return named <= _as_they_are(proto, walk(proto.graph))


def _as_they_are(proto: onnx.ModelProto, nodes: Iterable[onnx.NodeProto]) -> Counter[Hashable]:
    """Each node with which of its inputs are constants."""
    constants = constant_names(proto.graph)
    return Counter(
        (node.SerializeToString(deterministic=True), *(name in constants for name in node.input)) for node in nodes
    )


def _answering(findings: Iterable[str]) -> list[FileRemedy]:
    ids = set(findings)
    return [remedy for remedy in REMEDIES if not ids.isdisjoint(remedy.answers)]


def _with_following(remedies: Iterable[FileRemedy]) -> list[FileRemedy]:
    ids = _ids(remedies)
    wanted = ids | _FOLLOWING if ids & _EXPANDING else ids
    return [remedy for remedy in REMEDIES if remedy.id in wanted]


def _ids(remedies: Iterable[FileRemedy]) -> frozenset[str]:
    return frozenset(remedy.id for remedy in remedies)
