"""What is known during the repair of one model, and the advice that follows from it; also without a repair."""

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import onnx

from onnxbisect.diagnosis import CompletedDiagnosis, CulpritKind, DiagnosedCulprit
from onnxbisect.file_remedies import LOWER_RANKS, form_of_lower_rank, why_not_written_out
from onnxbisect.language import english
from onnxbisect.model.facts import TensorFacts
from onnxbisect.model.model import Model
from onnxbisect.model.opaque import GENERATORS
from onnxbisect.model.scopes import bodies, qualified, reads
from onnxbisect.remedies.candidate import Advice, Candidate, CulpritPlace, Finder, SeenVariants, advise, allowed
from onnxbisect.remedies.found import Named, SearchedModel
from onnxbisect.rewrites import Exactness, Rule, RuleRefusal, installed, names_in
from onnxbisect.unitset import members, union

#: Where a node is next to a replacement: the producer of input i as (i, -1), or a consumer of an output.
Beside = tuple[int, int]
#: Most culprits for which rules are tried, because more would take long.
_MOST_CULPRITS = 50


@dataclass(frozen=True, kw_only=True)
class Struck:
    """A candidate that was excluded, and the reason."""

    candidate: Candidate
    reason: str


@dataclass(frozen=True, kw_only=True)
class Left:
    """A place that no candidate repairs. `reasons` are sentences about the rules that were considered; `allow` is the
    exactness that would have to be allowed for one of them.
    """

    place: CulpritPlace
    ops: tuple[str, ...]
    kind: CulpritKind
    message: str
    reasons: tuple[str, ...]
    allow: Exactness | None


class Advisor:
    """Collects what is known during the repair of one model, and gives advice."""

    def __init__(self, before: SearchedModel, rules: Sequence[Rule], most: Exactness) -> None:
        self.model: Model = before.model
        usable = [rule for rule in rules if allowed(rule, most)]
        self._facts, taken = TensorFacts.of(self.model), names_in(self.model.proto)
        self._finder, self._everything = Finder(self._facts, usable, taken), Finder(self._facts, rules, taken)
        self._variants = before.variant
        self.rules, self.most = rules, most
        self._offered: dict[str, Candidate] = {}
        self._nodes = {node.name: node for node in self.model.proto.graph.node}
        self._culprit: dict[CulpritPlace, Named] = {}
        self.known = SeenVariants()
        self.struck: dict[tuple[str, str], Struck] = {}
        self.asked: dict[Hashable, bool] = {}
        self._asked_in_place: set[Hashable] = set()
        self.learn(before)

    def on(self, after: SearchedModel) -> "Advisor":
        """An advisor for the model after a repair: with what is known, and without the excluded candidates."""
        result = Advisor(after, self.rules, self.most)
        result.known = result.known.joined(self.known)
        result.struck, result.asked = dict(self.struck), dict(self.asked)
        return result

    def learn(self, found: SearchedModel) -> None:
        """Add what the verdicts on a model say about variants."""
        self.known = self.known.joined(found.known)

    def learn_passing(self, candidate: Candidate) -> None:
        """Record that all new nodes of a candidate passed."""
        passing = SeenVariants(passing=frozenset(candidate.variants), passing_ops=frozenset(candidate.gives))
        self.known = self.known.joined(passing)

    def learn_together(self, candidate: Candidate, culprits: Iterable[Named]) -> None:
        """Record which of its new nodes fail together, so that one of them is replaced in turn."""
        new = set(candidate.new_nodes)
        for culprit in culprits:
            for place in culprit.places:
                if len(place.nodes) > 1 and new.issuperset(place.nodes):
                    for finder in (self._finder, self._everything):
                        finder.learn_together(candidate, place.nodes)

    def learn_refused(self, candidate: Candidate, nodes: Collection[str]) -> None:
        """Record that these of its new nodes are refused."""
        pairs = zip(candidate.new_nodes, candidate.variants, strict=True)
        self.known = self.known.joined(SeenVariants(refused=frozenset(it for name, it in pairs if name in nodes)))

    def add_places(
        self, found: SearchedModel, chosen: Sequence[Candidate] = (), *, examples: bool = False
    ) -> frozenset[CulpritPlace]:
        """Add culprits among the nodes of the original as places; returns the new ones.

        A culprit of original nodes and new nodes of a chosen candidate is a place while that candidate is chosen, if a
        rule applies to one of the original nodes. With `examples`, only the first place of each culprit is added.
        """
        known, new = set(self._culprit), []
        for culprit in found.culprits:
            if culprit.kind in (CulpritKind.SINGLE, CulpritKind.INTERACTION):
                for place in culprit.places[: 1 if examples else None]:
                    own = self._own(place, chosen)
                    if own is not None and own not in known:
                        self._culprit.setdefault(own, culprit)
                        new.append(place)
        return frozenset(new)

    def _own(self, place: CulpritPlace, chosen: Sequence[Candidate]) -> CulpritPlace | None:
        """The nodes of a place that are in the original."""
        nodes = tuple(node for node in place.nodes if node in self._nodes)
        if len(nodes) == len(place.nodes):
            return place
        if not any(self._candidates(node) for node in nodes):
            return None
        return CulpritPlace(nodes, frozenset(it.key for it in chosen if not set(it.new_nodes).isdisjoint(place.nodes)))

    def doubted(self, candidate: Candidate) -> list[str]:
        """Its new nodes that are expected to fail: of an op that was refused wherever it was seen, or where one of that
        op is replaced in another form.
        """
        replaced = {qualified(self._nodes[name]) for name in candidate.gone} & self.known.refused_ops
        nodes = zip(candidate.new_nodes, candidate.new_ops, strict=True)
        return [name for name, op in nodes if op in replaced or self.known.doubts(op)]

    def beside(self, candidate: Candidate, chosen: Sequence[Candidate]) -> list[tuple[str, ...]]:
        """What a replacement is asked with: each original neighbour that stays, the nodes of each replacement next to
        it, and what stays of a group that fails together.
        """
        around = set(self._around(candidate).values())
        single = dict.fromkeys(self._beside(candidate, chosen).values())
        new = [it.new_nodes for it in chosen if it is not candidate and it.gone & around]
        return [*((name,) for name in single), *filter(None, (*new, tuple(self._left_together(candidate, chosen))))]

    def _left_together(self, candidate: Candidate, chosen: Sequence[Candidate]) -> list[str]:
        """What stays of the nodes that failed together with one that the candidate replaces."""
        gone = {node for it in chosen for node in it.gone}
        places = (place.nodes for place in self._culprit if candidate.gone.intersection(place.nodes))
        return [node for nodes in places for node in nodes if node not in gone]

    def answered(self, candidate: Candidate, chosen: Sequence[Candidate], taken: bool) -> list[Candidate]:
        """Record the answer about a candidate and what is left of a group that fails together.

        Returns the chosen candidates to which the answer applies.
        """
        place = self._in_place(candidate, chosen)
        self._asked_in_place.add(place)
        if not self._left_together(candidate, chosen):
            self.asked[candidate.question] = taken
            return [candidate]
        self.asked.setdefault(candidate.question, True)  # elsewhere it may pass
        return [it for it in chosen if it.question == candidate.question and self._in_place(it, chosen) == place]

    def _in_place(self, candidate: Candidate, chosen: Sequence[Candidate]) -> Hashable:
        left = self._left_together(candidate, chosen)
        return candidate.question, frozenset(self._variants[node] for node in left)

    def _beside(self, candidate: Candidate, chosen: Sequence[Candidate]) -> dict[Beside, str]:
        """The original neighbours of a replacement that stay with these choices and that may pass."""
        gone, keys = {node for it in chosen for node in it.gone}, {it.key for it in chosen}
        culprits = {node for place in self._culprit if place.beside <= keys for node in place.nodes}
        return {at: name for at, name in self._around(candidate).items() if name not in gone | culprits}

    def _around(self, candidate: Candidate) -> dict[Beside, str]:
        """The original producers and consumers of a replacement."""
        new = candidate.replacement
        made = {name for node in new.nodes for name in node.output} | {tensor.name for tensor in new.initializers}
        read = dict.fromkeys(name for node in new.nodes for name in reads(node) if name not in made)
        found = {(number, -1): self._facts.maker(name) for number, name in enumerate(read)}
        for number, name in enumerate(candidate.outputs):
            found |= {(number, at): reader for at, reader in enumerate(self._facts.readers(name))}
        return {at: it.name for at, it in found.items() if it is not None and it.name in self._variants}

    def learn_beside(
        self, candidate: Candidate, culprits: Iterable[Named], chosen: Sequence[Candidate]
    ) -> frozenset[CulpritPlace]:
        """Add nodes that fail only next to a candidate's new nodes as places, at every replacement with the same
        question.

        Returns the places of `culprits` that are repaired by that.
        """
        nodes, new, repaired = self._beside(candidate, chosen), set(candidate.new_nodes), set()
        for culprit in culprits:
            for place in culprit.places:
                own = {at: node for at, node in nodes.items() if node in place.nodes}
                if not own or new.isdisjoint(place.nodes) or not new.union(own.values()).issuperset(place.nodes):
                    continue
                if not any(self._candidates(node) for node in own.values()):
                    continue
                repaired.add(place)
                for other in (it for it in chosen if it.question == candidate.question):
                    there = self._beside(other, chosen)
                    if all(self._variants.get(there.get(at, "")) == self._variants[own[at]] for at in own):
                        like = CulpritPlace(tuple(there[at] for at in own), frozenset([other.key]))
                        self._culprit.setdefault(like, culprit)
        return frozenset(repaired)

    def is_secondary(self, candidate: Candidate) -> bool:
        """Whether the candidate is used only because of another one."""
        return any(place.beside and candidate.node in place.nodes for place in self._culprit)

    def may_be_given_up(self, candidate: Candidate) -> bool:
        """Whether it is used only because of another one, and something else may replace its node."""
        if not self.is_secondary(candidate):
            return False
        others = (it for it in self._candidates(candidate.node) if it.key not in {candidate.key, *self.struck})
        return any(self.asked.get(it.question, True) for it in others)

    def strike(self, candidate: Candidate, reason: str) -> None:
        """Exclude a candidate."""
        self.struck.setdefault(candidate.key, Struck(candidate=candidate, reason=reason))

    @property
    def closed(self) -> list[onnx.NodeProto]:
        """Refused nodes with subgraphs to which no rule applies."""
        refused = [self._nodes[place.nodes[0]] for place in self._culprit if len(place.nodes) == 1]
        return [node for node in refused if bodies(node) and not self._candidates(node.name)]

    def offer(self, candidate: Candidate) -> None:
        """Add a candidate that no rule alone produces."""
        self._offered[candidate.node] = candidate

    def advise(self) -> Advice:
        """The best choice with what is known.

        A replacement in a group that fails together is a question even if all its nodes pass: a small piece tells
        whether the rest of the group still fails with it, sooner than the whole model does.
        """
        advice = advise(list(self._culprit), self._candidates, self.known, struck=self.struck.keys(), asked=self.asked)
        questions = {self._in_place(it, advice.chosen): it for it in advice.questions}
        for it in advice.chosen:
            place = self._in_place(it, advice.chosen)
            if place not in self._asked_in_place and self._left_together(it, advice.chosen):
                questions.setdefault(place, it)
        return replace(advice, questions=tuple(questions.values()))

    def left(self, found: SearchedModel, *, limited: bool = False) -> tuple[Left, ...]:
        """The culprits of the current model, with the reasons why each place stays; `limited`: the repair was ended."""
        otherwise = (
            english("the repair was ended before this was replaced") if limited else english("no rule takes this op")
        )
        return tuple(
            Left(
                place=place,
                ops=culprit.ops,
                kind=culprit.kind,
                message=culprit.message,
                reasons=reasons or (otherwise,),
                allow=allow,
            )
            for culprit in found.culprits
            for place in culprit.places
            for reasons, allow in [self._why(place)]
        )

    def _candidates(self, node: str) -> list[Candidate]:
        offered = [self._offered[node]] if node in self._offered else []
        return [*self._finder.candidates(self._nodes[node], self.known), *offered]

    def _why(self, place: CulpritPlace) -> tuple[tuple[str, ...], Exactness | None]:
        """Sentences about the rules for a place, and the exactness that would have to be allowed for one of them."""
        if not all(node in self._nodes for node in place.nodes):
            return (english("no rule repairs this: too much of the model, or too many of one op, is refused"),), None
        why = [each for node in place.nodes for each in self._reasons(self._nodes[node])]
        beyond = [it for _, it in why if it is not None]
        return tuple(dict.fromkeys(reason for reason, _ in why)), min(beyond, key=list(Exactness).index, default=None)

    def _reasons(self, node: onnx.NodeProto) -> Iterator[tuple[str, Exactness | None]]:
        """A sentence about each rule for the node's op, inapplicable ones last, and what would have to be allowed; of a
        loop, why it is one.
        """
        considered = self._everything.considered(node, self.known)
        for it in sorted(considered, key=lambda it: isinstance(it, RuleRefusal)):
            if isinstance(it, RuleRefusal):
                yield english("{rule} does not apply: {reason}", rule=it.rule.id, reason=it.reason), None
            elif it.key in self.struck:
                yield english("{rule}: {reason}", rule=it.name, reason=self.struck[it.key].reason), None
            elif not self.asked.get(it.question, True):
                yield english("{rule}: the compiler refuses the result", rule=it.name), None
            elif not all(allowed(rule, self.most) for rule in it.rules):
                may = english("{rule} may work with --allow {exactness}", rule=it.name, exactness=it.exactness)
                seen = not it.unknown(self.known)
                told = english("{sentence}; the compiler takes the result", sentence=may) if seen else may
                yield told, it.exactness
        drawn = self._facts.shape(node.output[0]) if qualified(node) in GENERATORS else None
        if drawn is not None and None not in drawn and self.most is not Exactness.DOMAIN:
            yield (
                english("--allow {exactness} makes its numbers an input", exactness=Exactness.DOMAIN),
                Exactness.DOMAIN,
            )
        if reason := why_not_written_out(node, self._facts):
            yield english("it cannot be written out: {reason}", reason=reason), None


def more_rules_apply(
    nodes: Collection[str], model: Model, changed: Model, rules: Sequence[Rule], most: Exactness
) -> bool:
    """Whether a rule applies to one of these nodes in the changed model that does not in the model."""
    usable = [rule for rule in rules if allowed(rule, most)]

    def applicable(model: Model) -> set[tuple[str, str]]:
        finder = Finder(TensorFacts.of(model), usable, names_in(model.proto))
        own = [node for node in model.proto.graph.node if node.name in nodes]
        return {(it.node, it.name) for node in own for it in finder.candidates(node, SeenVariants())}

    return not applicable(changed) <= applicable(model)


@dataclass(frozen=True, kw_only=True)
class Advised:
    """What would replace a culprit: ids of rules or of a file remedy, in the order of their use, and the new ops."""

    rules: tuple[str, ...]
    gives: tuple[str, ...]
    exactness: Exactness

    @classmethod
    def of(cls, it: Candidate) -> Self:
        """By the rules of a candidate."""
        return cls(rules=tuple(rule.id for rule in it.rules), gives=it.gives, exactness=it.exactness)


def replacements(job: CompletedDiagnosis) -> tuple[Advised | None, ...]:
    """For each culprit what replaces a node of its first place, None where nothing does.

    Within rounding, else approximately or in a stated domain. Empty if there are too many culprits to look.
    """
    found = SearchedModel(job=job)
    if not found.culprits or len(found.culprits) > _MOST_CULPRITS:
        return ()
    first = [culprit.places[0].nodes if culprit.places else () for culprit in found.culprits]
    advised = [_with_fewer_dimensions(culprit, found) for culprit in found.diagnosis.culprits]
    for most in (Exactness.ROUNDING, Exactness.DOMAIN):
        if None in advised:
            advisor = Advisor(found, installed().rules, most)
            advisor.add_places(found, examples=True)
            chosen = {candidate.node: candidate for candidate in advisor.advise().chosen}
            advised = [
                it or next((Advised.of(chosen[node]) for node in nodes if node in chosen), None)
                for it, nodes in zip(advised, first, strict=True)
            ]
    return tuple(advised)


def _with_fewer_dimensions(culprit: DiagnosedCulprit, found: SearchedModel) -> Advised | None:
    """What a repair does before it replaces nodes, for a compiler that takes some ops only up to a rank."""
    limit, op = found.rank_limit, found.model.universe.op
    units = list(members(union(culprit.places)))
    forms = [form_of_lower_rank(op[unit]) for unit in units if limit is not None and found.rank(unit) > limit]
    if len(forms) < len(units) or None in forms:
        return None
    exactness = max((it for it in forms if it is not None), key=list(Exactness).index)
    ops = dict.fromkeys(["Reshape", *(op[unit] for unit in units)])
    return Advised(rules=(LOWER_RANKS,), gives=tuple(ops), exactness=exactness)
