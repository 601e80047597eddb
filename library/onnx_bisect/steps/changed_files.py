"""Changes of the whole file that are worth a compile, and the first with which the model compiles.

Options that the compiler itself names where it fails are tried before the file is changed.

The caller provides the searches (`RepairCompiler.search`): the library uses threads, the service workers.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import mkdtemp

from onnx_bisect.steps.repair_compiler import REPAIRED, RepairCompiler, changed_model, copy_data
from onnxbisect.diagnosis import CompilesAfter
from onnxbisect.errors import ModelError
from onnxbisect.file_remedies import (
    ARRANGEMENT,
    ChangedCopy,
    after_remedies,
    as_said,
    candidates,
    changed_nodes,
    for_other_numbers,
    form_candidates,
    leaves_named,
    promising,
    with_lower_ranks,
    with_newer_forms,
)
from onnxbisect.language import BETWEEN, english
from onnxbisect.model import Model
from onnxbisect.preflight import ToolLimits
from onnxbisect.remedies import SearchedModel
from onnxbisect.rewrites import Exactness
from onnxbisect_backends.probing.forked import forked
from onnxbisect_backends.probing.loaded_model import LoadedModel
from onnxbisect_backends.probing.search_context import SearchContext

_ORDER = list(Exactness)
#: Changes after which a tool judges nodes anew that it may have named: of the version, of what holds them, of what they
#: read and how they are written. Others take away what is refused.
_JUDGED_ANEW = frozenset(
    {
        "lower-opset",
        "raise-opset",
        "declare-opset-of-ops",
        "lower-ir-version",
        "axes-to-attributes",
        "inline-functions",
        "resolve-control-flow",
        "sequences-to-tensors",
        "fold-constants",
        "densify",
        "drop-empty-outputs",
        "drop-unread-outputs",
        "drop-empty-tensors",
        "batch-pools",
        "floats-in-float32",
        "unsigned-to-signed",
        "write-defaults",
        "omit-reduction",
        "constants-to-initializers",
        "neutral-boundary",
        "shorten-names",
    }
)
#: Reasons for which a file was refused, after which a changed one is not changed once more.
_MOST_REASONS = 3
#: What was changed where the model compiles as its parts are written, and no smaller change of the file is enough.
ANOTHER_FORM = english("the file written anew, as pieces of it are (`onnx-bisect extract`)")


@dataclass(frozen=True, kw_only=True)
class GoesOn:
    """A changed file that the compiler refuses for another reason than the file as it is, which hides that reason.

    The search goes on in it.
    """

    changed: ChangedCopy

    @property
    def change(self) -> CompilesAfter:
        """What was changed, for the case that the compiler accepts the file after more changes."""
        return _after(self.changed, self.changed.sentence, 0)

    def saved(self, loaded: LoadedModel, folder: Path) -> LoadedModel:
        """The changed file under the model's own name in `folder`."""
        copy_data(loaded.model.proto, loaded.model.path.parent, folder)
        return changed_model(loaded, self.changed.proto, folder / loaded.model.path.name)


def may_be_changed(context: SearchContext) -> bool:
    """Whether the preflight found something that a change of the file may repair."""
    return promising(context.loaded.model, context.findings, context.tool_limits)


def changed_files(context: SearchContext, allow: Exactness, whole: SearchedModel) -> Iterator[ChangedCopy]:
    """A few changed files, smallest change first, each created when the iterator reaches it.

    Each costs a compile of the whole model; `whole` has the verdicts on the original. If it compiles in another form,
    they are the file in each part of that form; otherwise they answer the preflight's findings, after those for wrong
    numbers where only these are wrong. The last one, for a compiler that died, is arranged otherwise. Where a
    search on record has found what such a compiler refuses, only files that answer an error may leave it as it is.
    """
    model, limits = context.loaded.model, context.tool_limits
    if whole.compiles_in_another_form:
        yield from form_candidates(model, limits, forked)
        return
    for candidate in for_other_numbers(model, limits) if whole.computes_other_numbers else ():
        if _ORDER.index(candidate.exactness) <= _ORDER.index(allow):
            yield candidate
    refused = whole.refused if whole.died else ()
    for candidate in candidates(model, context.findings, limits, forked, whole.hints):
        if _ORDER.index(candidate.exactness) > _ORDER.index(allow):
            continue
        if candidate.needed or not refused or not any(map(changed_nodes(model, candidate).isdisjoint, refused)):
            yield candidate
    arranged = after_remedies(model, limits, ARRANGEMENT) if whole.died and not refused else None
    if arranged is not None:
        yield arranged


@dataclass(frozen=True, kw_only=True)
class RefusedFile:
    """The file as it is, or after `change`, with what the compiler says of it.

    `reasons` are those for which it was refused so far, `tried` the remedies that files had which were asked about.
    """

    context: SearchContext
    said: SearchedModel
    change: ChangedCopy | None = None
    reasons: frozenset[Hashable] = frozenset()
    tried: set[frozenset[str]] = field(default_factory=set)

    def changes(self, allow: Exactness) -> Iterator[ChangedCopy]:
        """Changes of this file (`changed_files`) that make another one than those that were asked about."""
        before = () if self.change is None else self.change.remedies
        for changed in changed_files(self.context, allow, self.said):
            remedies = frozenset((*before, *changed.remedies))
            if remedies not in self.tried:
                self.tried.add(remedies)
                yield changed

    def as_said(self, allow: Exactness) -> Iterator[ChangedCopy]:
        """This file with what the tool's message asks for: fewer dimensions, or weights where they are read. A call or
        two before a search, which would find every op that works on such a tensor.
        """
        model, said = self.context.loaded.model, self.said
        for changed in as_said(model, self.context.tool_limits, said.message, said.hints.nodes):
            if _ORDER.index(changed.exactness) <= _ORDER.index(allow):
                yield changed

    def another_reason(self, said: SearchedModel) -> bool:
        """Whether a changed file is refused for a reason that did not come up yet; after so many, no more are new."""
        known = self.reasons | {self.said.reason, None}
        return said.reason not in known and len(self.reasons) < _MOST_REASONS

    def goes_on(self, change: ChangedCopy, said: SearchedModel) -> bool:
        """Whether what the compiler says of this file may hide what it says of the changed one: it names nothing of the
        graph, or the change answers what it may have named.

        A compiler that names an op goes on to the next one where a change takes nodes away; the search finds both in
        the file as it is. There it would blame an If, or an op in a form that the tool does not read, which the change
        answers.
        """
        named = self.said.hints.ops or self.said.hints.nodes
        applied = set(change.remedies).difference(() if self.change is None else self.change.remedies)
        if not self.said.failure or not self.another_reason(said):
            return False
        return not named or not _JUDGED_ANEW.isdisjoint(applied)

    def after(self, change: ChangedCopy, said: SearchedModel, compiler: RepairCompiler) -> "RefusedFile":
        """The file after `change`, of which the compiler says something else. Its changes are made from a file of its
        own, since the next one that is asked about replaces that of `compiler`.
        """
        folder, first = Path(mkdtemp(dir=compiler.folder)), compiler.loaded
        copy_data(first.model.proto, first.model.path.parent, folder)
        context = compiler.context_of(changed_model(first, change.proto, folder / REPAIRED), False)
        return replace(self, context=context, said=said, change=change, reasons=self.reasons | {self.said.reason})


def changed_for_culprits(
    model: Model, limits: ToolLimits, allow: Exactness, found: SearchedModel, after: ChangedCopy | None
) -> Iterator[ChangedCopy]:
    """Changes of the whole file that may answer all culprits at once.

    Newer forms, where every culprit's op has one; fewer dimensions, where culprits have more than four and others
    passed. `model` was changed before by `after`, if that is given.
    """
    ops = {op for culprit in found.culprits for op in culprit.ops}
    changes = [
        with_newer_forms(model, limits, ops) if ops else None,
        None if found.rank_limit is None else with_lower_ranks(model, limits, found.rank_limit),
    ]
    for changed in changes:
        if changed is not None and _ORDER.index(changed.exactness) <= _ORDER.index(allow):
            yield changed.following(after)


def compiles_after(
    whole: SearchedModel,
    context: SearchContext,
    compiler: RepairCompiler,
    *,
    changes: bool = True,
) -> CompilesAfter | GoesOn | None:
    """The first change after which the compiler accepts the whole model: of options that it names, then of the file.

    `whole` has the verdicts on the original. No outputs are compared, and only verdicts are kept. Without `changes`
    nothing is tried. If none is accepted: the smallest change that fails for the last reason that came up, if that is
    another than the original's. None if nothing helps.
    """
    tell = compiler.tell
    if changes:
        found = compiler.with_named_options(whole, context.loaded)
        if found.compiles:
            return CompilesAfter(
                sentence=_with(found.options),
                remedies=(),
                exactness=Exactness.EXACT,
                domain="",
                calls=compiler.calls,
                options=found.options,
            )
    for line in whole.hints.unfolded:
        tell(f"{context.target.tool} says: {line}")
    refused = RefusedFile(context=context, said=whole)
    numeric: ChangedCopy | None = None
    while changes and (came := _tried(refused, compiler)) is not None:
        if isinstance(came, CompilesAfter):
            return came
        refused = came
        if numeric is None and refused.said.computes_other_numbers and not whole.computes_other_numbers:
            numeric = refused.change
    if numeric is not None:  # whether the file's numbers matter is another question than why it did not compile
        return _after(
            numeric, english("{clauses}, and then computes other numbers", clauses=numeric.sentence), compiler.calls
        )
    if whole.compiles_in_another_form:
        return CompilesAfter(sentence=ANOTHER_FORM, remedies=(), exactness=Exactness.EXACT, domain="", calls=0)
    if refused.change is not None:
        tell(
            english(
                "the changed file fails for another reason; searching the file after: {clauses}",
                clauses=refused.change.sentence,
            )
        )
        return GoesOn(changed=refused.change)
    return None


def _tried(refused: RefusedFile, compiler: RepairCompiler) -> CompilesAfter | RefusedFile | None:
    """The first change with which the compiler accepts a file; else the file after the smallest one that it refuses for
    the last reason that came up, or of which it computes other numbers. None if all are refused as the file was. What
    leaves as it is what the compiler named in that one is not tried.
    """
    tell = compiler.tell
    onward: tuple[ChangedCopy, SearchedModel] | None = None
    numeric: tuple[ChangedCopy, SearchedModel] | None = None
    for changed in refused.changes(Exactness.DOMAIN):
        change = changed.following(refused.change)
        if onward is not None and leaves_named(onward[0].proto, onward[1].hints, change.proto):
            continue
        tell(english("asking the compiler about the model after this: {clauses}", clauses=change.sentence))
        try:
            answer = compiler.whole(change.proto)
        except ModelError:  # the target does not accept such a model
            continue
        if answer.compiles:
            sentence = BETWEEN.join(filter(None, (change.sentence, _with(answer.options))))
            return replace(_after(change, sentence, compiler.calls), options=answer.options)
        if answer.unanswered:
            tell(f"no answer about that: {answer.unanswered}")
        if numeric is None and answer.computes_other_numbers and not refused.said.computes_other_numbers:
            numeric = change, answer
        if answer.stopped:
            break
        alike = onward is not None and answer.reason == onward[1].reason
        if refused.goes_on(change, answer) and not alike:
            onward = change, answer
    found = numeric or onward
    return None if found is None else refused.after(*found, compiler)


def _after(changed: ChangedCopy, sentence: str, calls: int) -> CompilesAfter:
    return CompilesAfter(
        sentence=sentence,
        remedies=changed.remedies,
        exactness=changed.exactness,
        domain=BETWEEN.join(dict.fromkeys(it.domain for it in changed.applied if it.domain)),
        calls=calls,
    )


def _with(options: Mapping[str, str]) -> str:
    """What is said of options with which the compiler accepts a file; empty without any."""
    given = ", ".join(f"{key}={value}" for key, value in options.items())
    return english("option {given}", given=given) if options else ""
