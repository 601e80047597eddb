"""A turn of a search that asks: replay the planner on all answers, and make the queue what it says.

The coordinator holds no state. Two of them never have one search at a time, and one that is lost has written either
all of its turn or nothing.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy.orm import Session

from onnxbisect.errors import OnnxBisectError
from onnxbisect.search import plan
from onnxbisect.search.plan import Ask, Plan
from onnxbisect.unitset import UnitSet
from onnxbisect.universe import Universe
from onnxbisect.verdict import Verdict
from onnxbisect_backends.probing.culprit_files import OWN_FILE
from onnxbisect_db import plans, records, searches, workers
from onnxbisect_db.answered import Answered
from onnxbisect_db.database import now
from onnxbisect_db.demand import demand
from onnxbisect_db.errors import LostTurnError
from onnxbisect_db.searches import Turn
from onnxbisect_db.states import Stage
from onnxbisect_db.tables import Search
from onnxbisect_worker.findings import found
from onnxbisect_worker.hold import Hold
from onnxbisect_worker.order import Order
from onnxbisect_worker.outside import DATABASE_AWAY, outside
from onnxbisect_worker.place import Place
from onnxbisect_worker.preparing import give_up
from onnxbisect_worker.turn import next_turn

#: Speculation costs a replay of the planner for every question or two.
_WIDEST = 32

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class _Known:
    """What a turn sees: the answers, the questions in workers' hands, hands that are free, what the budget leaves."""

    answers: Sequence[Answered]
    in_hand: frozenset[tuple[UnitSet, int]]
    #: None where no worker of the backend is known.
    free: int | None
    #: Questions of other searches that these hands will take first.
    elsewhere: int
    calls_left: int | None
    out_of_time: bool

    @property
    def width(self) -> int:
        """For how many hands to plan: those that have a question of this search, and those that would idle."""
        idle = max((self.free or 0) - self.elsewhere, 0)
        return min(max(len(self.in_hand) + idle, 1), _WIDEST)

    @property
    def spent(self) -> bool:
        """Whether nothing more may be asked."""
        return self.out_of_time or (self.calls_left is not None and self.calls_left <= 0)

    def verdicts(self) -> dict[UnitSet, list[Verdict]]:
        """As the planner wants them; attempts in their order, whatever clocks say."""
        by_units: dict[UnitSet, list[Verdict]] = {}
        for answer in sorted(self.answers, key=lambda answer: answer.attempt):
            by_units.setdefault(answer.units, []).append(answer.verdict)
        return by_units

    def affordable(self, asks: Sequence[Ask]) -> list[Ask]:
        """Those that are in hand, and of the others as many as the budget allows: wanted ones first."""
        if self.calls_left is None and not self.out_of_time:
            return list(asks)
        room = 0 if self.out_of_time or self.calls_left is None else max(self.calls_left, 0)
        others = [ask for ask in asks if (ask.units, ask.attempt) not in self.in_hand]
        kept = sorted(others, key=lambda ask: ask.speculative)[:room]
        return [ask for ask in asks if ask not in others or ask in kept]


def advance(place: Place, search_id: str) -> None:
    """Rung for the search: coordinate the one that is next by right."""
    with next_turn(place, search_id, Stage.SEARCH) as turn:
        if turn is not None:
            _advance(place, turn)


def _advance(place: Place, turn: Turn) -> None:
    order = Order.from_json(turn.request)
    assert turn.universe is not None  # noqa: S101 - searches that ask are prepared
    with Hold(place, turn) as hold:
        try:
            universe = place.universes.read(place.service.files, turn.universe)
            known = hold.write(lambda session: _known(session, turn, order))
            again = _turn(place, turn, order, known, hold, universe)
        except LostTurnError:
            log.info("search %s: somebody else has it", turn.search_id)
            return
        except DATABASE_AWAY:
            raise
        except Exception as error:
            give_up(place, turn, hold, error)
            return
    if again is not None:
        place.ring_search(turn.search_id, again, turn.backend)


def _turn(place: Place, turn: Turn, order: Order, known: _Known, hold: Hold, universe: Universe) -> Stage | None:
    """One turn; the stage for which the search is to be rung at once."""
    step = plan(universe, known.verdicts(), known.width, recheck=order.recheck)
    asks = known.affordable(step.asks)
    if not step.asks and not known.spent:
        asks = _own_files(place, turn, hold, known, step)
    # What is still in hand then was only speculation, unless it ate up the budget: then it is to be waited for.
    over = not asks and not (known.spent and known.in_hand)
    culprits = found(universe, step.diagnosis, over=over)

    def save(session: Session) -> tuple[int, bool]:
        new = plans.save(session, turn, asks, expected=step.expected, culprits=culprits)
        if over:
            searches.searched(session, turn)
        return new, searches.release(session, turn)

    new, again = hold.write(save)
    log.info(
        "search %s: turn %d, %d answers, %d questions, %d of them new",
        *(turn.search_id, turn.number, len(known.answers), len(asks), new),
    )
    rings = new if known.free is None else min(new, known.free)
    if rings:
        place.service.bell.probes(turn.backend, rings)
    if not again:
        return None
    return Stage.REPORT if over else Stage.SEARCH


def _known(session: Session, turn: Turn, order: Order) -> _Known:
    searches.held(session, turn)  # no answer comes while this reads
    here = records.standing(session, turn.search_id)
    slots = workers.slots(session).get(turn.backend)
    wanted = demand(session, turn.backend, turn.search_id, most=_WIDEST)
    if slots is not None and wanted.at_most is not None:
        slots = min(slots, wanted.at_most)
    calls_left = None
    if order.budget_calls is not None:
        calls_left = order.budget_calls - session.get_one(Search, turn.search_id).calls - len(here.in_hand)
    lasts = None if order.budget_seconds is None else timedelta(seconds=order.budget_seconds)
    return _Known(
        answers=here.answers,
        in_hand=here.in_hand,
        free=None if slots is None else max(slots - wanted.running, 0),
        elsewhere=wanted.elsewhere,
        calls_left=calls_left,
        out_of_time=lasts is not None and now(session) >= turn.started_at + lasts,
    )


def _own_files(place: Place, turn: Turn, hold: Hold, known: _Known, step: Plan) -> list[Ask]:
    """Compiles of the culprits' own files, where none is on record, each once (see `culprit_files` for why).

    A host is needed for answers from the verdict base only, which may be another place's of equal structure: what was
    compiled for this search was the file itself.
    """
    own = [culprit.evidence.own for culprit in step.diagnosis.culprits]
    latest = {answer.units: answer for answer in known.answers}
    failed = {units: latest[units] for units in own if units in latest and latest[units].verdict.failed}
    seen = {units for units, answer in failed.items() if answer.file_sha256 and not answer.cached}
    doubtful = [units for units, answer in failed.items() if answer.cached]
    if doubtful:
        try:
            with place.hosts.lent(place.case(turn), new=turn.alone) as host, hold.over(host):
                digests = host.digests(doubtful)
        except OnnxBisectError as error:
            if hold.ended or outside(error) is not None:
                raise
            log.warning("search %s: its culprits' own files are not asked about: %s", turn.search_id, error)
            return []
        seen |= {units for units, it in zip(doubtful, digests, strict=True) if failed[units].file_sha256 == it}
    asked = {answer.units for answer in known.answers if answer.why == OWN_FILE}
    attempts = Counter(answer.units for answer in known.answers)
    wanted = [Ask(units=units, attempt=attempts[units], why=OWN_FILE) for units in own if units not in seen | asked]
    return known.affordable(wanted)
