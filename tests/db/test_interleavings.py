"""Whatever order workers, crashes and the reconciler come in: each probe is answered once, and none is lost."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test

from onnxbisect_db import leases, probe_queries, probes
from onnxbisect_db.database import Database
from onnxbisect_db.probes import Claim
from support.db.scenes import FAIL, LEASE, PASS, UNSURE, Clock, answer, asking, claim, counts

UNITS = (1, 2, 3)
ANSWERS = {"pass": PASS, "fail": FAIL, "unresolved": UNSURE}


def pause(losses: int) -> timedelta:
    return timedelta(seconds=0 if losses == 1 else min(2 ** (losses - 2), 300))


class Workers(RuleBasedStateMachine):
    """A model of who rightfully has what, held against what the database allows."""

    database: Database
    clock: Clock

    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.job = asking(self.database, UNITS)
        #: By probe, the claim that may act on it, and until when its lease holds.
        self.owner: dict[str, tuple[int, Any]] = {}
        self.losses: dict[str, int] = {}
        #: By probe that was lost, when it may be taken again.
        self.retry_at: dict[str, datetime] = {}
        self.answers: dict[str, str] = {}

    def rightful(self, mine: Claim) -> bool:
        return self.owner.get(mine.probe.id, (0, None))[0] == mine.lease.epoch

    @rule(target=claims, worker=st.sampled_from(["a", "b"]))
    def take(self, worker: str) -> Claim | None:
        mine = claim(self.database, worker=worker)
        waiting = sum(at > self.clock.at for at in self.retry_at.values())
        free = len(UNITS) - len(self.owner) - len(self.answers) - waiting
        assert (mine is not None) == (free > 0)
        if mine is not None:
            assert mine.probe.id not in self.owner
            assert mine.probe.id not in self.answers
            self.retry_at.pop(mine.probe.id, None)
            self.owner[mine.probe.id] = (mine.lease.epoch, self.clock.at)
        return mine

    @rule(mine=claims)
    def heartbeat(self, mine: Claim | None) -> None:
        if mine is None:
            return
        alive = self.database.run(lambda session: leases.renew(session, mine.lease, seconds=LEASE))
        assert alive == self.rightful(mine)
        if alive:
            self.owner[mine.probe.id] = (mine.lease.epoch, self.clock.at)

    @rule(mine=claims, said=st.sampled_from(sorted(ANSWERS)))
    def say(self, mine: Claim | None, said: str) -> None:
        """A claim is not used up: answering again, or much later, is what zombies do."""
        if mine is None:
            return
        counted = answer(self.database, mine, ANSWERS[said])
        assert counted == self.rightful(mine)
        if counted:
            del self.owner[mine.probe.id]
            self.answers[mine.probe.id] = said

    @rule(mine=consumes(claims))
    def give_back(self, mine: Claim | None) -> None:
        if mine is None:
            return
        given = counts(self.database, lambda session: probes.give_back(session, mine))
        assert given == self.rightful(mine)
        if given:
            del self.owner[mine.probe.id]

    @rule(seconds=st.sampled_from([1.0, LEASE / 2, LEASE + 1]))
    def time_goes_by(self, seconds: float) -> None:
        self.clock.forward(seconds)

    @rule()
    def expire(self) -> None:
        """The reconciler tries its hand at all of them."""
        for probe_id, (_, renewed) in list(self.owner.items()):
            expired = self.database.run(lambda session, probe_id=probe_id: probes.expire(session, probe_id))  # type: ignore[misc]
            assert expired == ((self.clock.at - renewed).total_seconds() >= LEASE)
            if expired:
                del self.owner[probe_id]
                self.losses[probe_id] = self.losses.get(probe_id, 0) + 1
                self.retry_at[probe_id] = self.clock.at + pause(self.losses[probe_id])

    @invariant()
    def every_probe_is_where_it_should_be(self) -> None:
        with self.database.session() as session:
            found = probe_queries.known_probes(session, self.job.searches[0].id)
        assert {record.probe_id: str(record.verdict.status) for record in found.answers} == self.answers
        assert len(found.claimed) == len(self.owner)

    def teardown(self) -> None:
        """Nothing is lost: whoever goes on from here gets every answer."""
        self.clock.forward(LEASE * 2)
        self.expire()
        self.clock.forward(300)
        while (mine := claim(self.database)) is not None:
            assert mine.probe.id not in self.answers
            assert answer(self.database, mine)
            self.answers[mine.probe.id] = "pass"
        assert len(self.answers) == len(UNITS)


@pytest.mark.long
def test_any_interleaving_answers_each_probe_once(database: Database, clock: Clock) -> None:
    class OnThisDatabase(Workers):
        pass

    OnThisDatabase.database = database
    OnThisDatabase.clock = clock
    run_state_machine_as_test(
        OnThisDatabase,
        settings=settings(
            max_examples=20,
            stateful_step_count=20,
            deadline=None,
            phases=[Phase.reuse, Phase.generate, Phase.shrink],
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
