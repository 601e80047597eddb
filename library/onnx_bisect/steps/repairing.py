"""A complete repair: the whole file first, then single nodes, and the document.

The caller provides the searches (`RepairCompiler.search`): the library uses threads, the service workers.
Where the tool died and named nothing, a search would cut through what it fuses: the file is then tried in the forms of
ops that compilers know best.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import onnx

from onnx_bisect.steps.changed_files import (
    ANOTHER_FORM,
    RefusedFile,
    changed_files,
    changed_for_culprits,
    may_be_changed,
)
from onnx_bisect.steps.repair_compiler import REPAIRED, RepairCompiler
from onnxbisect.cut import with_sizes
from onnxbisect.diagnosis import Alternative, Diagnosis
from onnxbisect.errors import OptionError
from onnxbisect.file_remedies import (
    ChangedCopy,
    after_remedies,
    changed_nodes,
    may_have_unusual_forms,
    plain,
    usual_forms,
)
from onnxbisect.language import english, some
from onnxbisect.model.binding import resized
from onnxbisect.model.facts import TensorFacts
from onnxbisect.model.opaque import around
from onnxbisect.model.read import original as original_of
from onnxbisect.model.runnable import Sample
from onnxbisect.model.versions import versions_changed
from onnxbisect.proof import edge_feeds, random_feeds, runnable_feeds
from onnxbisect.remedies import (
    LowPrecision,
    OrtProver,
    Repair,
    Samples,
    SearchedModel,
    TriedFiles,
    more_rules_apply,
    repair,
    try_files,
)
from onnxbisect.remedies.document import RepairDocument, document
from onnxbisect.remedies.summary import markdown
from onnxbisect.report.document import document as report_document
from onnxbisect.report.files import FORMS
from onnxbisect.rewrites import Exactness, installed
from onnxbisect.terms import RepairTerms
from onnxbisect_backends.custom_ops import CustomOps
from onnxbisect_backends.probing.boundary_traits import traits_of
from onnxbisect_backends.probing.loaded_model import LoadedModel
from onnxbisect_backends.probing.search_context import SearchContext

#: Calls that a repair may make in any case; else as many as its diagnosis.
_CALLS_AT_LEAST = 60
#: The file name of the report on what is left.
REPORT = "report.json"
_DTYPES = {"float16": onnx.TensorProto.FLOAT16, "bfloat16": onnx.TensorProto.BFLOAT16}


#: Returns the verdicts with other options on the culprits of a model.
Others = Callable[[LoadedModel, Diagnosis], Sequence[Alternative]]


def repair_model(
    compiler: RepairCompiler,
    context: SearchContext,
    terms: RepairTerms,
    custom_ops: CustomOps,
    others: Others = lambda loaded, diagnosis: (),
) -> tuple[Repair, RepairDocument]:
    """Repair the model of `context`, and document it.

    `others` is called once the culprits are known, before nodes are replaced. Raises OptionError for unbound dimensions
    and unfitting samples. Where onnxruntime does not run the model, nothing is changed, since nothing can be proven.
    """
    loaded, tell = context.loaded, compiler.tell
    original = original_of(loaded.model)
    if changed := resized(original.graph, loaded.input_shapes):
        raise OptionError(
            f"A repair is of the model as its file has it, and {some(list(changed))} is to have another size: export "
            "the model at that size first."
        )
    if note := versions_changed(original):
        tell(note)
    prover = _prover(context, original, terms, custom_ops)
    alternatives: list[Alternative] = []

    def diagnosed(loaded: LoadedModel, before: SearchedModel) -> None:
        if not before.compiles and not before.stopped:
            alternatives.extend(others(loaded, before.diagnosis))

    found, calls = _repaired(compiler, context, original, prover, terms.allow, diagnosed)
    if loaded.model.input_values and found.model is None and found.compiles:
        found = replace(found, model=original, proof=prover.compared(original))
    if found.model is not None and context.description.needs_static:
        found = replace(found, model=with_sizes(found.model, loaded.shapes_without_values))
    return found, document(
        loaded.model,
        found,
        terms.allow,
        diagnosis_calls=calls,
        repair_calls=compiler.calls - calls,
        input_shapes={name: tuple(dims) for name, dims in loaded.shapes_without_values.items()},
        computes_in=context.description.computes_in,
        alternatives=alternatives,
    )


def written(found: Repair, document: RepairDocument) -> dict[str, bytes]:
    """The contents of a repair's files by name.

    The document as Markdown and JSON, the repaired model if there is one, and the report if culprits are left. External
    data of the model are where the original's are.
    """
    files = {}
    if found.model is not None:
        files[REPAIRED] = found.model.SerializeToString(deterministic=True)
    if found.left or found.limited:
        report = report_document(found.after.job)
        for culprit in report["culprits"]:
            culprit["repro"] = None  # culprits' files are not written here
        files[REPORT] = FORMS[REPORT](report).encode("utf-8", "backslashreplace")
    files["repair.md"] = markdown(document).encode("utf-8", "backslashreplace")
    files["repair.json"] = (json.dumps(document.to_json(), indent=1) + "\n").encode()
    return files


def _repaired(
    compiler: RepairCompiler,
    context: SearchContext,
    original: onnx.ModelProto,
    prover: OrtProver,
    allow: Exactness,
    diagnosed: Callable[[LoadedModel, SearchedModel], None],
) -> tuple[Repair, int]:
    """The repair, and the compiler calls of the diagnosis. `diagnosed` is called between the two."""
    base, of_the_file, say = TriedFiles[ChangedCopy](), prover, compiler.tell
    measured = not context.description.boundary_known and bool(traits_of(context.loaded.model))
    changeable, unusual = may_be_changed(context), may_have_unusual_forms(context.loaded.model)
    if measured or changeable or unusual or compiler.named is not None:
        whole = compiler.original_whole()
        if whole.compiles or whole.stopped:
            return Repair(before=whole, after=whole, stopped=whole.stopped), compiler.calls
        if measured:  # and what is refused at the boundary of the file is known now
            context = compiler.context_of(context.loaded, False)
        calls = compiler.calls
        refused = RefusedFile(context=context, said=whole)
        while (tried := _tried(refused, whole, allow, compiler, prover)).base is not None:
            base = tried
            if tried.after is None or not refused.another_reason(tried.after):
                break
            refused = refused.after(tried.base, tried.after, compiler)
        if tried.repair is not None:
            return tried.repair, calls
    loaded = context.loaded
    if base.base is None:
        before = compiler.original()
    else:
        say(english("going on from the changed file: {clauses}", clauses=base.base.sentence))
        original = base.base.proto
        loaded, before = compiler.read(original), compiler.diagnose(original, base.doubted, brief=True)
        prover = prover.on(original, before.facts)
        context = compiler.context_of(loaded, False)
    calls = compiler.calls
    compiler.most_calls = calls + max(calls, _CALLS_AT_LEAST)
    if before.compiles_in_another_form:
        tried = try_files(before, _other_forms(context, allow, before, base.base), compiler, of_the_file, say)
        if tried.repair is not None:
            return tried.repair, calls
        say(
            english("no file with the model's own outputs compiles; it compiles after: {clauses}", clauses=ANOTHER_FORM)
        )
    diagnosed(loaded, before)
    examples = [culprit.places[0].nodes for culprit in before.culprits]
    for changed in changed_for_culprits(loaded.model, context.tool_limits, allow, before, base.base):
        tried = try_files(before, [changed], compiler, of_the_file, say)
        if tried.repair is not None:
            return tried.repair, calls
        if tried.base is None or compiler.refuses_each(changed.proto, examples):
            continue
        found = compiler.diagnose(changed.proto)
        if len(found.culprits) < len(before.culprits) and not found.stopped:
            say(english("going on from the changed file: {clauses}", clauses=changed.sentence))
            base, original, before = tried, changed.proto, found
            prover = of_the_file.on(original, before.facts)
            break
    repaired = _of_the_file(repair(before, original, compiler, prover, installed().rules, most=allow, tell=say), base)
    repaired, base = _in_plain_file(repaired, repaired.model or original, base, context, allow, compiler, of_the_file)
    return _in_its_form(repaired, base.base, compiler, of_the_file, allow), calls


def _tried(
    refused: RefusedFile, before: SearchedModel, allow: Exactness, compiler: RepairCompiler, prover: OrtProver
) -> TriedFiles[ChangedCopy]:
    """Changes of a file that the compiler refuses; `before` are the verdicts on the file as the user gave it."""
    say, change = compiler.tell, refused.change
    asked = (it.following(change) for it in refused.as_said(allow))
    tried = try_files(before, asked, compiler, prover, say, lambda _, after: refused.another_reason(after))
    if tried == TriedFiles() and may_be_changed(refused.context):
        files = (it.following(change) for it in refused.changes(allow))
        tried = try_files(before, files, compiler, prover, say, refused.goes_on)
    if tried == TriedFiles():
        tried = try_usual_forms(refused, before, allow, compiler, prover)
    return tried


def _of_the_file(found: Repair, base: TriedFiles[ChangedCopy]) -> Repair:
    """The repair of a file that was changed before by `base`, if that has a change, as one of the file as it was."""
    if base.base is None or found.stopped:
        return found
    found = replace(found, changed_file=base.base)
    return replace(found, model=base.base.proto, proof=base.proof) if found.model is None else found


def _in_plain_file(
    found: Repair,
    model: onnx.ModelProto,
    base: TriedFiles[ChangedCopy],
    context: SearchContext,
    allow: Exactness,
    compiler: RepairCompiler,
    prover: OrtProver,
) -> tuple[Repair, TriedFiles[ChangedCopy]]:
    """The repair that goes on in the `model` of this one without nodes that compute nothing, where rules apply there to
    what is left, and the change of the file with which it is one. The same two if it does not leave fewer places.
    """
    if not found.left or found.limited:
        return found, base
    rules, loaded = installed().rules, compiler.read(model)
    if (changed := plain(loaded.model, context.tool_limits)) is None:
        return found, base
    nodes, after = {name for it in found.left for name in it.place.nodes}, compiler.read(changed.proto)
    if not more_rules_apply(nodes, loaded.model, after.model, rules, allow):
        return found, base
    change = changed.following(base.base)
    proof = prover.compared(changed.proto)
    if not proof.holds:
        return found, base
    compiler.tell(english("going on from the changed file: {clauses}", clauses=change.sentence))
    staying = nodes.intersection(node.name for node in changed.proto.graph.node)
    before = compiler.diagnose(changed.proto, staying, brief=True)
    prover = prover.on(changed.proto, before.facts)
    again = repair(before, changed.proto, compiler, prover, rules, most=allow, tell=compiler.tell, earlier=found)
    if again.stopped or len(again.left) < len(found.left):
        base = TriedFiles(base=change, proof=proof)
        return _of_the_file(again, base), base
    return replace(found, limited=again.limited), base


def _in_its_form(
    found: Repair, after: ChangedCopy | None, compiler: RepairCompiler, prover: OrtProver, allow: Exactness
) -> Repair:
    """The repair with the first form of its model that compiles, where only the form is left to blame; the file was
    changed before by `after`, if that is given.
    """
    if found.model is None or found.proof is None or not found.after.compiles_in_another_form:
        return found
    context = compiler.context_of(compiler.read(found.model), False)
    forms = _other_forms(context, allow, found.after, after)
    tried = try_files(found.before, forms, compiler, prover, compiler.tell).repair
    if tried is None or tried.proof is None:
        return found
    proof = replace(found.proof, outputs=tried.proof.outputs)
    return replace(found, model=tried.model, after=tried.after, changed_file=tried.changed_file, proof=proof, left=())


def _other_forms(
    context: SearchContext, allow: Exactness, found: SearchedModel, after: ChangedCopy | None
) -> Iterator[ChangedCopy]:
    """Forms of a model that compiles in another one; it was changed before by `after`, if that is given."""
    return (changed.following(after) for changed in changed_files(context, allow, found))


def _prover(context: SearchContext, original: onnx.ModelProto, terms: RepairTerms, custom_ops: CustomOps) -> OrtProver:
    model, computes_in = context.loaded.model, context.description.computes_in
    if model.unbound:
        raise OptionError(
            f"Bind the dynamic dimensions of {some(model.unbound)} with --input-shape (input_shapes): a repair is "
            "proven by running the model."
        )
    facts = TensorFacts.of(model)
    given = custom_ops.read(model, original)
    low = None if not computes_in else LowPrecision(dtype=_DTYPES[computes_in])

    def samples() -> Samples:
        whole = around(original, facts.type)
        inputs = around(model.proto, model.types.get).graph.input
        made_up = [*random_feeds(inputs, max(terms.count, len(given)))]
        recorded = [{**made_up[number], **sample} for number, sample in enumerate(given)]

        def runnable(feeds: Iterable[Sample]) -> list[Sample]:
            return runnable_feeds(model, whole, custom_ops.computed(model, original, list(feeds)), needed=not given)

        usual = [*recorded, *runnable(made_up[: terms.count])]
        return Samples(usual=usual, edge=runnable(edge_feeds(inputs, terms.count)))

    return OrtProver(original, facts, samples, folder=model.path.parent, tolerance=terms.tolerance, low=low)


_ORDER = list(Exactness)


def try_usual_forms(
    refused: RefusedFile, before: SearchedModel, allow: Exactness, compiler: RepairCompiler, prover: OrtProver
) -> TriedFiles[ChangedCopy]:
    """The fewest forms with which the model compiles, or with which the tool names what it refuses; a repair goes on
    from there.

    One call for each degree of exactness that adds forms, until the tool takes the file or names something; then one
    for each form that may not be needed. Where it takes the file only with forms that are less exact than `allow`, what
    these change is to blame: the repair goes on from the file without them. Where a search on record has found what the
    tool refuses, only forms near that are tried, and no file that leaves one of the culprits as it is.
    """
    model, limits, said = refused.context.loaded.model, refused.context.tool_limits, refused.said
    if not said.died or not may_have_unusual_forms(model):
        return TriedFiles()
    found, near = usual_forms(model, limits), said.near_refused
    changes = {form: changed_nodes(model, changed) for form, changed in found.items()}

    def may_pass(forms: Iterable[str]) -> bool:
        changed = frozenset[str]().union(*(changes[form] for form in forms))
        return not any(map(changed.isdisjoint, said.refused))

    def ask(forms: Sequence[str], *, goes_on: bool = False) -> TriedFiles[ChangedCopy]:
        changed = after_remedies(model, limits, forms) if may_pass(forms) else None
        files = [] if changed is None else [changed.following(refused.change)]
        return try_files(before, files, compiler, prover, compiler.tell, lambda _, after: goes_on or after.named)

    degree = {form: _ORDER.index(changed.exactness) for form, changed in found.items()}
    useful = [form for form in found if not said.refused or not near.isdisjoint(changes[form])]
    allowed = sorted((form for form in useful if degree[form] <= _ORDER.index(allow)), key=degree.__getitem__)
    asked: list[str] = []
    for _, group in groupby(allowed, key=degree.__getitem__):
        added = list(group)
        if (tried := ask([*asked, *added])) != TriedFiles():
            forms = [*asked, *added]
            # without a form that was added alone, the tool died
            for form in reversed(asked if asked and len(added) == 1 else forms):
                fewer = [other for other in forms if other != form]
                if not fewer or (tried.repair is not None and tried.repair.stopped):
                    break
                again = ask(fewer)
                if again.repair is not None and again.repair.stopped:
                    break
                if again.repair is not None or (again.base is not None and tried.repair is None):
                    tried, forms = again, fewer
            return tried
        asked += added
    beyond = [form for form in useful if form not in asked]
    if not asked or not beyond or said.refused:
        return TriedFiles()
    changed = after_remedies(model, limits, [*asked, *beyond])
    if changed is None:
        return TriedFiles()
    compiler.tell(
        english(
            "asking the compiler whether it takes what is less exact than allowed: {clauses}", clauses=changed.sentence
        )
    )
    if not compiler.whole(changed.following(refused.change).proto).compiles:
        return TriedFiles()
    doubted = frozenset[str]().union(*(changes[form] for form in beyond))
    return replace(ask(asked, goes_on=True), doubted=doubted)
