"""The file in the forms of ops that compilers know best, where the tool died of it and named nothing.

A search there would cut through what the tool fuses. The forms are asked about together, the more exact ones first;
then each is left out that the tool does not need.
"""

from collections.abc import Callable, Sequence
from itertools import groupby

from onnx_bisect.steps.repair_compiler import RepairCompiler
from onnxbisect.file_remedies import in_usual_forms, usual_forms
from onnxbisect.remedies import OrtProver, SearchedModel, TriedFiles, try_files
from onnxbisect.rewrites import Exactness
from onnxbisect_backends.probing.search_context import SearchContext

_ORDER = list(Exactness)


def try_usual_forms(
    whole: SearchedModel,
    context: SearchContext,
    allow: Exactness,
    compiler: RepairCompiler,
    prover: OrtProver,
    tell: Callable[[str], None],
) -> TriedFiles:
    """The fewest forms with which the model compiles, or with which the tool names what it refuses; a repair goes on
    from there.

    One call for each degree of exactness that adds forms, until the tool takes the file or names something; then one
    for each form that may not be needed.
    """
    if not whole.died:
        return TriedFiles()
    model, reader = context.loaded.model, context.reader

    def ask(forms: Sequence[str]) -> TriedFiles:
        changed = in_usual_forms(model, reader, forms)
        files = [] if changed is None else [changed]
        return try_files(whole, files, compiler, prover, tell, goes_on=lambda after: after.named)

    degree = {form: _ORDER.index(exactness) for form, exactness in usual_forms(model, reader).items()}
    allowed = sorted((form for form in degree if degree[form] <= _ORDER.index(allow)), key=degree.__getitem__)
    asked: list[str] = []
    for _, group in groupby(allowed, key=degree.__getitem__):
        added = list(group)
        if (tried := ask([*asked, *added])) != TriedFiles():
            # without a form that was added alone, the tool died
            return _with_fewer(tried, [*asked, *added], asked if asked and len(added) == 1 else [*asked, *added], ask)
        asked += added
    return TriedFiles()


def _with_fewer(
    tried: TriedFiles, forms: Sequence[str], doubtful: Sequence[str], ask: Callable[[Sequence[str]], TriedFiles]
) -> TriedFiles:
    """The same without each of the `doubtful` forms that makes no difference."""
    for form in reversed(doubtful):
        fewer = [other for other in forms if other != form]
        if not fewer or (tried.repair is not None and tried.repair.stopped):
            break
        again = ask(fewer)
        if again.repair is not None and again.repair.stopped:
            break
        if again.repair is not None or (again.base is not None and tried.repair is None):
            tried, forms = again, fewer
    return tried
