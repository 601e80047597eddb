"""Changes of the whole file: those that are worth a compile, and the first after which the compiler takes the model.

How the compiler is asked is given (`RepairCompiler.search`): the library searches in threads, the service has workers.
"""

from collections.abc import Callable, Iterator

from onnxbisect.errors import ModelError
from onnxbisect.file_remedies import Candidate, candidates, promising
from onnxbisect.job import CompilesAfter
from onnxbisect.remedies import Found
from onnxbisect.rewrites import Exactness
from onnxbisect.verdict import Hints
from onnxbisect_backends.probing.forked import forked
from onnxbisect_backends.probing.repair_compiler import RepairCompiler
from onnxbisect_backends.probing.search_context import SearchContext

_ORDER = list(Exactness)


def may_be_changed(context: SearchContext) -> bool:
    """Whether `changed_files` may give any: whether the preflight found what a change of the file would answer."""
    return promising(context.findings, context.reader)


def changed_files(context: SearchContext, allow: Exactness, hints: Hints) -> Iterator[Candidate]:
    """At most four changed files, the one that changes least first, each made when it is asked for. Each costs a
    compile of the whole model; `hints` are those of the verdict on the model as it is.
    """
    for candidate in candidates(context.loaded.model, context.findings, context.reader, forked, hints):
        if _ORDER.index(candidate.exactness) <= _ORDER.index(allow):
            yield candidate


def compiles_after(
    whole: Found, context: SearchContext, compiler: RepairCompiler, tell: Callable[[str], None] = lambda sentence: None
) -> CompilesAfter | None:
    """The first change of the whole file after which the compiler takes the model, which it refuses as `whole` says;
    None where none helps.

    No numbers are compared, and nothing is kept of the changed files but the verdicts. `tell` is given a sentence for
    each step.
    """
    for line in whole.hints.unfolded:
        tell(f"{context.target.tool} says: {line}")
    for changed in changed_files(context, Exactness.DOMAIN, whole.hints):
        tell(f"asking the compiler about the model after this: {changed.sentence}")
        try:
            answer = compiler.whole(changed.proto)
        except ModelError:  # it takes no such model
            continue
        if answer.compiles:
            return CompilesAfter(
                sentence=changed.sentence,
                remedies=tuple(dict.fromkeys(it.remedy for it in changed.applied)),
                exactness=changed.exactness,
                domain="; ".join(dict.fromkeys(it.domain for it in changed.applied if it.domain)),
                calls=compiler.calls,
            )
        if answer.stopped:
            return None
    return None
