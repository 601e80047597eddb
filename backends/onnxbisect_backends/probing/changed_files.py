"""Changes of the whole file that are worth a compile, and the first with which the model compiles.

The caller provides the searches (`RepairCompiler.search`): the library uses threads, the service workers.
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
    """Whether the preflight found something that a change of the file may repair."""
    return promising(context.findings, context.reader)


def changed_files(context: SearchContext, allow: Exactness, hints: Hints) -> Iterator[Candidate]:
    """At most four changed files, smallest change first, each created when the iterator reaches it.

    Each costs a compile of the whole model; `hints` are those of the verdict on the original.
    """
    for candidate in candidates(context.loaded.model, context.findings, context.reader, forked, hints):
        if _ORDER.index(candidate.exactness) <= _ORDER.index(allow):
            yield candidate


def compiles_after(
    whole: Found, context: SearchContext, compiler: RepairCompiler, tell: Callable[[str], None] = lambda sentence: None
) -> CompilesAfter | None:
    """The first change of the whole file after which the compiler accepts the model; None if none helps.

    `whole` is the verdict on the original. No outputs are compared, and only verdicts are kept. `tell` gets a sentence
    for each step.
    """
    for line in whole.hints.unfolded:
        tell(f"{context.target.tool} says: {line}")
    for changed in changed_files(context, Exactness.DOMAIN, whole.hints):
        tell(f"asking the compiler about the model after this: {changed.sentence}")
        try:
            answer = compiler.whole(changed.proto)
        except ModelError:  # the target does not accept such a model
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
