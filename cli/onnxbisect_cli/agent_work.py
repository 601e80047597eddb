"""Diagnoses and repairs that an agent has started: each in a thread of its own, asked about by its id."""

from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from onnx_bisect import Cancellation, Event, Note, OptionError, PlanMade
from onnxbisect.report.text import clip
from onnxbisect_cli.agent_answers import DiagnosisSummary, Repaired, WorkProgress

#: Works at a time; more wait. A compiler takes a core or more.
_AT_A_TIME = 2
_FOUND = 20

#: Does the work, told of its progress by events.
Doing = Callable[[Callable[[Event], None], Cancellation], DiagnosisSummary | Repaired]


@dataclass
class Work:
    """One diagnosis or repair."""

    cancellation: Cancellation = field(default_factory=Cancellation)
    plan: PlanMade | None = None
    note: str = ""
    future: "Future[DiagnosisSummary | Repaired] | None" = None

    def hear(self, event: Event) -> None:
        """Keep what a caller may ask about."""
        match event:
            case PlanMade():
                self.plan = event
            case Note():
                self.note = clip(event.sentence, 300)


class Works:
    """The works of one server."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="agent")
        self._works: dict[str, Work] = {}

    def start(self, doing: Doing) -> str:
        """Start it, and return its id."""
        work, name = Work(), f"w{len(self._works) + 1}"
        self._works[name] = work
        work.future = self._pool.submit(doing, work.hear, work.cancellation)
        return name

    def asked(self, name: str, seconds: float) -> WorkProgress:
        """What is known of it when it ends, or after so many seconds. Raises the error that ended it."""
        work = self._found(name)
        assert work.future is not None  # noqa: S101 - it was started
        wait([work.future], timeout=seconds)
        plan, ended = work.plan, work.future.done()
        try:
            outcome = work.future.result() if ended else None
        except CancelledError:  # before it had begun
            outcome = None
        return WorkProgress(
            id=name,
            state="running" if not ended else "cancelled" if work.cancellation.cancelled else "finished",
            calls=0 if plan is None else plan.calls,
            expected_calls=0 if plan is None else max(plan.calls, round(plan.expected_calls)),
            found=[] if plan is None else [str(it) for it in plan.found[:_FOUND]],
            note=work.note,
            diagnosis=outcome if isinstance(outcome, DiagnosisSummary) else None,
            repair=outcome if isinstance(outcome, Repaired) else None,
        )

    def cancel(self, name: str) -> None:
        """End it; its verdicts are kept."""
        work = self._found(name)
        work.cancellation.cancel()
        if work.future is not None:
            work.future.cancel()

    def close(self) -> None:
        """End all of them."""
        for name in self._works:
            self.cancel(name)
        self._pool.shutdown(wait=True)

    def _found(self, name: str) -> Work:
        if name not in self._works:
            raise OptionError(f"There is no work {name!r}: 'diagnose' and 'fix' answer with an id.")
        return self._works[name]
