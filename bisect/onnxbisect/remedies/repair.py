"""From a model with culprits to one that compiles, or to what is left: diagnose, choose, prove, compile, repeat.

The caller supplies the compiler and the prover. Every iteration excludes a candidate or adds a place, of which there
are finitely many, so the loop ends. All decisions follow from the verdicts, so a repair that starts again with the same
verdicts on record has the same result.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import onnx

from onnxbisect.diagnosis import CulpritKind
from onnxbisect.errors import ModelError
from onnxbisect.file_remedies import leaves_named
from onnxbisect.language import count, english
from onnxbisect.model.order import with_unique_names
from onnxbisect.remedies.advisor import Advisor, Struck
from onnxbisect.remedies.candidate import Advice, Candidate, CulpritPlace
from onnxbisect.remedies.contract import ChangedFile, Compiler, Prover, Repair, RepairProof
from onnxbisect.remedies.found import Named, SearchedModel
from onnxbisect.remedies.inside import repaired_inside
from onnxbisect.rewrites import Exactness, Rule, replaced
from onnxbisect.verdict import Status

AChange = TypeVar("AChange", bound=ChangedFile)


@dataclass(frozen=True, kw_only=True)
class TriedFiles(Generic[AChange]):
    """The result of changing the whole file: `repair` if a changed file compiles.

    Otherwise `base` is the last proven change that is needed, from which replacements of nodes continue, and `after`
    what the compiler says of it. Without the `doubted` nodes it is expected to compile.
    """

    repair: Repair | None = None
    base: AChange | None = None
    proof: RepairProof | None = None
    after: SearchedModel | None = None
    doubted: frozenset[str] = frozenset()


def try_files(
    before: SearchedModel,
    files: Iterable[AChange],
    compiler: Compiler,
    prover: Prover,
    tell: Callable[[str], None] = lambda sentence: None,
    goes_on: Callable[[AChange, SearchedModel], bool] = lambda changed, after: False,
) -> TriedFiles[AChange]:
    """Try changes of the whole file in turn, with one call each, until the model compiles.

    Besides a change that is `needed`, the first one of those that fail alike is a base for more where `goes_on` holds:
    then a larger one that fails alike is none, needed or not, and one that leaves what the compiler named of the base
    as it is there is not tried.
    """
    tried, going_on = TriedFiles[AChange](), False
    for changed in files:
        if going_on and tried.base and tried.after and leaves_named(tried.base.proto, tried.after.hints, changed.proto):
            continue
        proof = prover.compared(changed.proto)
        if not proof.holds:
            tell(english("{clauses}: not proven", clauses=changed.sentence))
            continue
        tell(english("asking the compiler about the model after this: {clauses}", clauses=changed.sentence))
        after = compiler.whole(changed.proto)
        if after.compiles:
            made = Repair(before=before, after=after, model=changed.proto, changed_file=changed, proof=proof)
            return TriedFiles(repair=made)
        if after.stopped:
            return TriedFiles(repair=Repair(before=before, after=before, stopped=True))
        alike = tried.after is not None and tried.after.reason == after.reason
        if going_on and alike:
            continue
        goes = goes_on(changed, after)
        if changed.needed or (goes and not alike):
            tried, going_on = TriedFiles(base=changed, proof=proof, after=after), goes
    return tried


def repair(
    before: SearchedModel,
    original: onnx.ModelProto,
    compiler: Compiler,
    prover: Prover,
    rules: Sequence[Rule],
    *,
    most: Exactness = Exactness.ROUNDING,
    tell: Callable[[str], None] = lambda sentence: None,
    earlier: Repair | None = None,
) -> Repair:
    """Repair a model with the diagnosis `before`; `original` is its file's content.

    Nodes that share a name get unique names. No rule less exact than `most` is used. `tell` gets a sentence for each
    step. `original` may be the model of an `earlier` repair, or a copy of it; what that excluded is not tried again.
    """
    if before.compiles:
        return Repair(before=before, after=before, stopped=before.stopped, earlier=earlier)
    if before.stopped:
        return _stopped(before, earlier)
    advisor = Advisor(before, rules, most)
    for it in () if earlier is None else earlier.struck:
        advisor.strike(it.candidate, it.reason)
    return _Repairer(before, original, compiler, prover, advisor, tell, earlier).run()


class _Repairer:
    """One run of the loop."""

    def __init__(
        self,
        before: SearchedModel,
        original: onnx.ModelProto,
        compiler: Compiler,
        prover: Prover,
        advisor: Advisor,
        tell: Callable[[str], None],
        earlier: Repair | None = None,
    ) -> None:
        self._before, self._original, self._earlier = before, with_unique_names(original), earlier
        self._compiler, self._prover, self._advisor, self._tell = compiler, prover, advisor, tell
        self._limited = False

    def run(self) -> Repair:
        advisor = self._advisor
        after, proof = self._before, RepairProof()
        advice = Advice(chosen=(), questions=(), left=())
        model: onnx.ModelProto | None = None
        staying: list[str] = []
        advisor.add_places(self._before)
        # Repair the subgraphs of refused nodes to which no rule applies.
        for holder in advisor.closed if self._earlier is None else ():
            self._tell(f"asking the compiler about what is inside of {holder.op_type} {holder.name}")
            made = repaired_inside(holder, self._before.model, self._repaired_body)
            if made is not None:
                self._advisor.offer(made)
        while True:
            found = self._settled()
            if found is None and self._limited:
                break
            if found is None:
                return self._stopped()
            new, new_proof = found
            staying = [place.nodes[0] for place in new.left]
            if _keys(new) == _keys(advice):
                advice = new
                break
            if not new.chosen:
                advice, after, proof, model = new, self._before, RepairProof(), None
                break
            model = replaced(self._original, {it.node: it.replacement for it in new.chosen})
            self._tell(
                f"{count(len(new.chosen), 'node')} replaced and proven; asking the compiler about the repaired model"
            )
            advice, proof, after = new, new_proof, self._compiler.diagnose(model, staying, brief=True)
            self._limited = after.limited
            if after.compiles or after.limited:
                break
            if after.stopped:
                return self._stopped()
            advisor.learn(after)
            new_places = advisor.add_places(after, advice.chosen)
            if not self._strike_refused(advice, after, new_places) and not new_places:
                break
        result = self._repair(after, model, proof)
        if (following := self._following(result)) is not None:
            return following
        if after.brief and not after.compiles and not self._limited:  # what is left is reported
            after = self._compiler.diagnose(self._original if model is None else model, staying)
            if after.stopped:
                return self._stopped()
        return self._repair(after, model, proof)

    def _repair(self, after: SearchedModel, model: onnx.ModelProto | None, proof: RepairProof) -> Repair:
        return Repair(
            before=self._before,
            after=after,
            model=model,
            proof=proof if model is not None else None,
            struck=tuple(self._advisor.struck.values()),
            left=() if after.compiles else self._advisor.left(after, limited=self._limited),
            limited=self._limited and not after.compiles,
            earlier=self._earlier,
        )

    def _following(self, made: Repair) -> Repair | None:
        """The repair that goes on in the repaired model, where rules apply that do not apply in the original: to a
        pattern, for one, of which something that was replaced read a value.

        None if there is nothing to try, or it leaves as many places. Each round leaves fewer, so the last one comes.
        """
        if made.model is None or not made.left or self._limited or not _fewer(made, self._earlier):
            return None
        advisor = self._advisor.on(made.after)
        advisor.add_places(made.after)
        chosen = [place.candidate for place in made.places]
        if not advisor.advise().chosen:
            return None
        prover = self._prover.on(made.model, made.after.facts, chosen)
        found = _Repairer(made.after, made.model, self._compiler, prover, advisor, self._tell, made).run()
        if found.stopped or _fewer(found, made):
            return found
        self._limited = found.limited
        return None

    def _repaired_body(self, model: onnx.ModelProto) -> tuple[Sequence[Candidate], onnx.ModelProto] | None:
        try:
            compiler = self._compiler.inside(model)
            before = compiler.diagnose(model)
            prover = self._prover.inside(model, before.facts)
        except ModelError:  # a subgraph need not be a valid model by itself
            return None
        rules = [it for it in self._advisor.rules if it.domain is None]  # the values inside a subgraph are not observed
        made = repair(before, model, compiler, prover, rules, most=self._advisor.most, tell=self._tell)
        return ([it.candidate for it in made.places], made.model or model) if made.compiles else None

    def _stopped(self) -> Repair:
        return _stopped(self._before, self._earlier, tuple(self._advisor.struck.values()))

    def _settled(self) -> tuple[Advice, RepairProof] | None:
        """Advice that is proven and whose new nodes are all known to pass; None if the repair is to end.

        The proof comes first, because it needs no compiler.
        """
        advice, proof = self._advisor.advise(), RepairProof()
        while True:
            proof = self._prover.prove(advice.chosen) if advice.chosen else RepairProof()
            if not proof.holds:
                for place in proof.failed:
                    self._advisor.strike(place.candidate, english("not proven: {reason}", reason=place.problem))
                for candidate in () if proof.failed else self._prover.to_blame(advice.chosen):
                    reason = proof.problem or proof.disagreement
                    self._advisor.strike(candidate, english("not proven: {reason}", reason=reason))
                advice = self._advisor.advise()
                continue
            while advice.questions:
                if not self._ask(advice):
                    return None
                before, advice = advice, self._advisor.advise()
                if _keys(before) != _keys(advice):
                    break
            else:
                return advice, proof

    def _ask(self, advice: Advice) -> bool:
        """Compile the new nodes that never passed, with their neighbours; False if the repair is to end.

        All of them in one piece; one by one where a tool refuses that and names nothing, since a search would have to
        tell them apart. Such a tool is asked first about those with nodes that are expected to fail: with them in one
        piece others would be refused, too, and once they are refused, others take their places.
        """
        doubtful = [it for it in advice.questions if self._before.died and self._advisor.doubted(it)]
        questions = doubtful or advice.questions
        ops = dict.fromkeys(op for it in questions for op in it.gives)
        self._tell(f"asking the compiler about what would replace culprits: {', '.join(ops)}")
        model = replaced(self._original, {it.node: it.replacement for it in advice.chosen})
        pieces: list[Sequence[Candidate]] = [questions]
        if doubtful:
            pieces = [[it] for it in questions]
        elif len(questions) > 1:
            together = self._compiler.ask(model, self._nodes(questions, advice), whole=True)
            if together.died:
                pieces = [[it] for it in questions]
        for candidates in pieces:
            found, culprits = self._searched(model, candidates, advice)
            self._limited = found.limited
            if found.stopped or found.limited:
                return False
            for candidate in candidates:
                self._learn_answer(candidate, advice, found, culprits)
        return True

    def _nodes(self, candidates: Sequence[Candidate], advice: Advice) -> list[str]:
        """The new nodes of these candidates, and what they are asked with."""
        beside = (name for it in candidates for nodes in self._advisor.beside(it, advice.chosen) for name in nodes)
        return list(dict.fromkeys([*(name for it in candidates for name in it.new_nodes), *beside]))

    def _searched(
        self, model: onnx.ModelProto, candidates: Sequence[Candidate], advice: Advice
    ) -> tuple[SearchedModel, Sequence[Named]]:
        """What the compiler says of the piece with these candidates, and what it refuses there.

        Where it names nothing, fewer calls than a search takes tell whether it refuses a replacement by itself, or
        beside which neighbour. Why it refuses one that may be given up, or has nodes that are expected to fail, is not
        asked: the next one takes one call.
        """
        nodes = self._nodes(candidates, advice)
        doubted = [name for it in candidates for name in self._advisor.doubted(it)]
        once = self._before.died and (bool(doubted) or all(map(self._advisor.may_be_given_up, candidates)))
        if not self._before.died or once or len(candidates) > 1:
            found = self._compiler.ask(model, nodes, doubted, whole=once)
            return found, found.culprits
        (candidate,) = candidates
        found = self._compiler.ask(model, nodes, whole=True)
        if found.compiles or found.stopped or found.limited:
            return found, ()
        new, beside = candidate.new_nodes, self._advisor.beside(candidate, advice.chosen)
        if new and beside and found.diagnosis.verdict is Status.FAIL:
            alone = self._compiler.ask(model, new, whole=True)
            if alone.compiles and (refused := self._beside(model, new, beside)) is not None:
                return alone, refused
            if alone.stopped or alone.limited:
                return alone, ()
            if alone.diagnosis.verdict is Status.FAIL:
                nodes = list(new)
        found = self._compiler.ask(model, nodes)
        return found, found.culprits

    def _beside(
        self, model: onnx.ModelProto, new: Sequence[str], beside: Sequence[Sequence[str]]
    ) -> Sequence[Named] | None:
        """What fails with the new nodes and passes without them; None if no single one explains that all fail.

        Once one is found, what is left of the others is mostly fine together.
        """
        refused, explained, rest = [], False, list(beside)
        while rest:
            group = rest.pop(0)
            found = self._compiler.ask(model, [*new, *group], whole=True)
            if found.diagnosis.verdict is not Status.FAIL:
                continue
            explained = True
            if self._before.passing.issuperset(group) or self._compiler.ask(model, group, whole=True).compiles:
                place = CulpritPlace((*new, *group))
                refused.append(Named(kind=CulpritKind.INTERACTION, ops=(), places=(place,), message=found.message))
            others = [*new, *(name for one in rest for name in one)]
            if len(rest) > 1 and self._compiler.ask(model, others, whole=True).compiles:
                break
        return refused if explained else None

    def _learn_answer(
        self, candidate: Candidate, advice: Advice, found: SearchedModel, culprits: Sequence[Named]
    ) -> None:
        repaired = self._advisor.learn_beside(candidate, culprits, advice.chosen)
        # the messages for culprits with new nodes of the candidate, except at repaired places
        new = set(candidate.new_nodes)
        places = [(it, place) for it in culprits for place in it.places if place not in repaired]
        refusals = [it.message for it, place in places if not new.isdisjoint(place.nodes)]
        if not culprits and found.failure:  # it was compiled once
            refusals = [found.message]
        taken = found.passing.issuperset(candidate.new_nodes) and not refusals
        alike = self._advisor.answered(candidate, advice.chosen, taken)
        if taken:
            self._advisor.learn_passing(candidate)
            return
        alone = {it.nodes[0] for one in culprits for it in one.places if len(it.nodes) == 1}
        self._advisor.learn_refused(candidate, alone)
        self._advisor.learn_together(candidate, culprits)
        refused = (
            english("refused by the compiler: {said}", said=said) if said else english("refused by the compiler")
            for said in refusals
        )
        reason = next(refused, english("the compiler gave no answer"))
        for it in alike:
            self._advisor.strike(it, reason)

    def _strike_refused(self, advice: Advice, after: SearchedModel, new_places: frozenset[CulpritPlace]) -> bool:
        """Exclude each replacement that is part of a culprit; True if there is one.

        Places where another candidate is tried now are skipped. Of several replacements in one culprit, those that
        exist only because of another are excluded first.
        """
        guilty: dict[tuple[str, str], tuple[Candidate, str]] = {}
        for culprit in after.culprits:
            for place in culprit.places:
                if place not in new_places:
                    part = [it for it in advice.chosen if not set(it.new_nodes).isdisjoint(place.nodes)]
                    part = [it for it in part if self._advisor.is_secondary(it)] or part
                    guilty.update({it.key: (it, culprit.message) for it in part})
        for candidate, said in guilty.values():
            self._advisor.learn_together(candidate, after.culprits)
            refused = english("refused by the compiler in the repaired model")
            self._advisor.strike(
                candidate, english("{sentence}: {said}", sentence=refused, said=said) if said else refused
            )
        return bool(guilty)


def _stopped(before: SearchedModel, earlier: Repair | None, struck: tuple[Struck, ...] = ()) -> Repair:
    """The result if the user or the budget ended the repair: the latest choice is not known to compile."""
    first = before if earlier is None else earlier.rounds[0].before
    return Repair(before=first, after=first, struck=struck, stopped=True)


def _fewer(made: Repair, earlier: Repair | None) -> bool:
    return earlier is None or len(made.left) < len(earlier.left)


def _keys(advice: Advice) -> Mapping[str, str]:
    return dict(candidate.key for candidate in advice.chosen)
