"""The result of a search for nodes that must stay precise, as a document and in its forms for people."""

from collections.abc import Iterator
from dataclasses import dataclass

from onnxbisect.finished import joined, phrase, translated
from onnxbisect.language import _, english, some
from onnxbisect.precision.plan import PrecisionEnding
from onnxbisect.report.text import (
    Heading,
    Item,
    Quoted,
    Section,
    TextTable,
    as_markdown,
    duration,
    plural,
    terminal_lines,
)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One measurement: how many nodes were kept in high precision, and the metric; None where nothing came of it.

    `on` is the backend whose arithmetic was asked, `work` the share of the model's work that these nodes do.
    """

    number: int
    on: str
    kept: int
    work: float
    value: float | None
    shown: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Member:
    """A node to keep in high precision.

    `without` is the metric with all other members kept, of the ask number `asked`; both are None where the budget ended
    before. `reason` is the most telling fact about its tensors, `work` its share of the model's work.
    """

    node: str
    op: str
    module: str
    without: float | None
    shown: str
    asked: int | None
    reason: str
    work: float


@dataclass(frozen=True, kw_only=True)
class TensorError:
    """Signal to noise of one tensor in onnxruntime's arithmetic, in decibels: all low, and with the set kept."""

    tensor: str
    node: str
    low: float
    kept: float


@dataclass(frozen=True, kw_only=True)
class PrecisionReport:
    """What `onnx-bisect precision` found; docs/precision.md says what each field means.

    `changes` are rewrites that leave fewer nodes to keep, `changed_keep`, for a metric of `changed_shown`. `wide` are
    members for which results of 16 bits do instead of high precision, for a metric of `wide_shown`. `errors` has the
    tensors in the order of the dataflow.
    """

    schema: str = "onnx-bisect/precision@1"
    model: str
    backend: str
    arithmetic: str
    low: str
    metric: str
    threshold: float
    at_most: bool
    wanted: str
    samples: int
    nodes: int
    candidates: int
    full: float | None
    full_shown: str
    all_low: float | None
    all_low_shown: str
    value: float | None
    shown: str
    ending: PrecisionEnding
    members: tuple[Member, ...]
    work: float
    asks: tuple[Asked, ...]
    resumed: int
    seconds: float
    notes: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    changed_keep: tuple[str, ...] = ()
    changed_shown: str = ""
    wide: tuple[str, ...] = ()
    wide_shown: str = ""
    errors: tuple[TensorError, ...] = ()

    @property
    def sixteen(self) -> str:
        """The members for which 16 bits do, in one sentence; empty without any."""
        if not self.wide:
            return ""
        return english(
            "Instead of high precision, results of 16 bits do for {names}: {seen} (mixed16.onnx).",
            names=some(self.wide),
            seen=self.wide_shown,
        )

    @property
    def changed(self) -> str:
        """What was measured of the model with `changes`, in one sentence; empty without any."""
        if not self.changes:
            return ""
        if not self.changed_keep:
            return english(
                "With these changes, which compute the same, all of it can be {low}: {seen} (rewritten.onnx).",
                low=self.low,
                seen=self.changed_shown,
            )
        return english(
            "With these changes, which compute the same, {names} have to stay in high precision, no others: {seen} "
            "(rewritten.onnx).",
            names=", ".join(f"'{name}'" for name in self.changed_keep),
            seen=self.changed_shown,
        )

    @property
    def headline(self) -> str:
        """The outcome in one sentence."""
        if self.ending is PrecisionEnding.NOTHING:
            return english(
                "All of {model} can be {low}: {seen}, and {what} is wanted.",
                model=self.model,
                low=self.low,
                seen=self.shown,
                what=self.wanted,
            )
        if self.ending is PrecisionEnding.BUDGET:
            return english(
                "{units} of {count} kept in high precision suffice: {seen}; the budget ended before it was known "
                "whether fewer do.",
                units=plural(len(self.members), "node"),
                count=self.candidates,
                seen=self.shown,
            )
        if len(self.members) == 1:
            return english(
                "1 node of {count} has to stay in high precision for {what}: with it {seen}, without it {rest}.",
                count=self.candidates,
                what=self.wanted,
                seen=self.shown,
                rest=self.members[0].shown,
            )
        return english(
            "{units} of {count} have to stay in high precision for {what}: with them {seen}, and without any one of "
            "them too little, each measured.",
            units=plural(len(self.members), "node"),
            count=self.candidates,
            what=self.wanted,
            seen=self.shown,
        )


def terminal(report: PrecisionReport, *, width: int = 100) -> list[str]:
    """What `precision` prints, in about `width` columns."""
    return terminal_lines(_sections(report), width)


def markdown(report: PrecisionReport) -> str:
    """`precision.md`: what `precision` prints, and each measurement."""
    asks = TextTable(
        head=[_("ask"), _("arithmetic"), _("kept precise"), _("metric"), _("why")],
        rows=[[str(it.number), it.on, str(it.kept), phrase(it.shown), phrase(it.why)] for it in report.asks],
        limits=[6, 40, 12, 20, 60],
    )
    return as_markdown([*_sections(report), Heading(_("Measurements"), 2), asks])


def _sections(report: PrecisionReport) -> Iterator[Section]:
    yield Heading(Quoted(report.model))
    yield translated(report.headline)
    yield _cost(report)
    yield from map(translated, report.notes)
    yield [
        Item(_("full precision"), phrase(report.full_shown)),
        Item(_("all {low}", low=report.low), phrase(report.all_low_shown)),
    ]
    if report.members:
        yield Heading(_("To keep in high precision"), 2)
        yield list(map(_member, report.members))
    if report.changes or report.wide:
        yield Heading(_("What to do instead"), 2)
    if report.changes:
        yield [Item(translated(change)) for change in report.changes]
        yield translated(report.changed)
    if report.wide:
        yield translated(report.sixteen)


def _member(one: Member) -> Item:
    name: list[str | Quoted] = [Quoted(one.node), " (", Quoted(one.op), ")"]
    if one.module:
        name.append(_(" in {module}", module=one.module))
    told = [translated(one.reason)]
    if one.asked is not None:
        told.insert(0, _("Without it {value} (ask {number}).", value=phrase(one.shown), number=one.asked))
    return Item(name, joined(told))


def _cost(report: PrecisionReport) -> str:
    """How much work stays in high precision, and what it took to find out."""
    asks = plural(len(report.asks), "ask")
    if report.resumed:
        asks += _(", {number} of them on record", number=report.resumed)
    share = f"{100 * report.work:.2g} %"
    work = [_("{share} of the work stays in high precision", share=share)] if report.members else []
    return ", ".join(
        [*work, asks, plural(report.samples, "sample"), duration(report.seconds), translated(report.arithmetic)]
    )
