"""What would replace the culprits of a diagnosis: rules that apply, without a compiler call or a proof."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnxbisect.diagnosis import CompletedDiagnosis, DiagnosedCulprit
from onnxbisect.file_remedies import LOWER_RANKS, form_of_lower_rank
from onnxbisect.remedies.advisor import Advisor
from onnxbisect.remedies.candidate import Candidate
from onnxbisect.remedies.found import SearchedModel
from onnxbisect.rewrites import Exactness, installed
from onnxbisect.unitset import members, union

#: Most culprits for which rules are tried, because more would take long.
_MOST_CULPRITS = 50


@dataclass(frozen=True, kw_only=True)
class Advised:
    """What would replace a culprit: ids of rules or of a file remedy, in the order of their use, and the new ops."""

    rules: tuple[str, ...]
    gives: tuple[str, ...]
    exactness: Exactness


def replacements(job: CompletedDiagnosis) -> tuple[Advised | None, ...]:
    """For each culprit what replaces a node of its first place, None where nothing does.

    Empty if there are too many culprits to look.
    """
    found = SearchedModel(job=job)
    if not found.culprits or len(found.culprits) > _MOST_CULPRITS:
        return ()
    advisor = Advisor(found, installed().rules, Exactness.ROUNDING)
    advisor.add_places(found, examples=True)
    chosen = {candidate.node: candidate for candidate in advisor.advise().chosen}
    first = [culprit.places[0].nodes if culprit.places else () for culprit in found.culprits]
    return tuple(
        _with_fewer_dimensions(culprit, found) or _of_rules(nodes, chosen)
        for culprit, nodes in zip(found.diagnosis.culprits, first, strict=True)
    )


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


def _of_rules(nodes: Sequence[str], chosen: Mapping[str, Candidate]) -> Advised | None:
    for node in nodes:
        if node in chosen:
            it = chosen[node]
            return Advised(rules=tuple(rule.id for rule in it.rules), gives=it.gives, exactness=it.exactness)
    return None
