"""What would replace the culprits of a diagnosis: rules that apply, without a compiler call or a proof."""

from onnxbisect.job import Job
from onnxbisect.remedies.advisor import Advisor
from onnxbisect.remedies.candidate import Candidate
from onnxbisect.remedies.found import Found
from onnxbisect.rewrites import Exactness, installed

#: Most culprits for which rules are tried, because more would take long.
_MOST_CULPRITS = 50


def replacements(job: Job) -> tuple[Candidate | None, ...]:
    """For each culprit what replaces a node of its first place, None where no rule applies.

    Empty if there are too many culprits to look.
    """
    found = Found(job=job)
    if not found.culprits or len(found.culprits) > _MOST_CULPRITS:
        return ()
    advisor = Advisor(found, installed().rules, Exactness.ROUNDING)
    advisor.add_places(found, examples=True)
    chosen = {candidate.node: candidate for candidate in advisor.advise().chosen}
    first = [culprit.places[0].nodes if culprit.places else () for culprit in found.culprits]
    return tuple(next((chosen[node] for node in nodes if node in chosen), None) for nodes in first)
