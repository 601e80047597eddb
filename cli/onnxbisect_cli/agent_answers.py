"""What the tools of `onnx-bisect mcp` answer: short, with names and messages cleaned, and files as paths."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from onnx_bisect import BackendInfo, FixResult, Result
from onnxbisect.preflight import Inspection
from onnxbisect.report import culprit_words, words
from onnxbisect.report.contents import Report
from onnxbisect.report.files import culprit_dirs
from onnxbisect.report.reading import next_steps
from onnxbisect.report.text import clean, clip

#: Most entries of a list, and most characters of a text.
_MOST, _TEXT = 20, 300

State = Literal["running", "finished", "cancelled"]


class BackendEntry(BaseModel):
    """A compiler, and why it cannot be used here, if so."""

    name: str
    state: str
    summary: str
    reason: str
    options: list[str]


class KnownProblem(BaseModel):
    """Something in a model that compilers are known to mind."""

    severity: str
    what: str
    nodes: list[str]
    advice: str


class ModelSeen(BaseModel):
    """A model, before any compile."""

    name: str
    nodes: int
    opsets: dict[str, int]
    inputs: list[str]
    ops: dict[str, int]
    problems: list[KnownProblem]


class CulpritSummary(BaseModel):
    """Culprits of one op that are refused in the same words; `numbers` are what `explain_culprit` takes."""

    numbers: list[int]
    ops: list[str]
    places: int
    message: str
    replace_by: str


class DiagnosisSummary(BaseModel):
    """A report in short. `report` is the path of report.json, beside report.html and the folder culprits/."""

    verdict: str
    headline: str
    certificate: str
    causes: list[str]
    culprits: list[CulpritSummary]
    next: list[str]
    report: str


class Explained(BaseModel):
    """A culprit: why it is refused, what replaces it, and the files that show it."""

    ops: list[str]
    kind: str
    certainty: str
    nodes: list[str]
    places: int
    message: str
    cause: str
    compiles_instead: list[str]
    replace_by: str
    source: list[str]
    files: list[str]


class Replaced(BaseModel):
    """A node that a repair replaced."""

    node: str
    op: str
    rules: list[str]
    exactness: str


class Staying(BaseModel):
    """A culprit without a remedy."""

    ops: list[str]
    nodes: list[str]
    reasons: list[str]


class Repaired(BaseModel):
    """A repair in short. `files` are paths; repaired.onnx is among them if anything was changed."""

    verdict: str
    headline: str
    replaced: list[Replaced]
    left: list[Staying]
    files: list[str]


class WorkProgress(BaseModel):
    """Work that was started. `diagnosis` or `repair` is there once it has ended."""

    id: str
    state: State
    calls: int
    expected_calls: int
    found: list[str]
    note: str
    diagnosis: DiagnosisSummary | None = None
    repair: Repaired | None = None


def backend(found: BackendInfo) -> BackendEntry:
    """A backend with the names of its options."""
    reason, options = clip(found.reason, _TEXT), [option.name for option in found.options]
    return BackendEntry(
        name=found.name, state=found.state, summary=clip(found.summary, _TEXT), reason=reason, options=options
    )


def model_seen(seen: Inspection) -> ModelSeen:
    """An inspection; the most frequent ops, and the first findings."""
    return ModelSeen(
        name=clip(seen.name, _TEXT),
        nodes=seen.nodes,
        opsets={clean(domain): version for domain, version in seen.opsets},
        inputs=[clip(f"{it.name}: {it.type}", _TEXT) for it in seen.inputs[:_MOST]],
        ops={clip(row.op, _TEXT): row.units for row in seen.ops[: 2 * _MOST]},
        problems=[
            KnownProblem(
                severity=it.severity,
                what=clip(f"{it.id}: {it.detail}", _TEXT),
                nodes=_clipped(it.nodes),
                advice=clip(it.fix, _TEXT),
            )
            for it in seen.findings[:_MOST]
        ],
    )


def diagnosis(result: Result, folder: Path) -> DiagnosisSummary:
    """The result, whose files are in the folder."""
    document = result.report
    rows = [row for _, found in culprit_words.rows(document) for row in found]
    steps = next_steps(document)
    return DiagnosisSummary(
        verdict=result.verdict,
        headline=clean(result.headline),
        certificate=clip(result.certificate.sentence, 2 * _TEXT),
        causes=[clip(culprit_words.sentence(it), _TEXT) for it in culprit_words.telling(document)[:_MOST]],
        culprits=[
            CulpritSummary(
                numbers=row.numbers[:_MOST],
                ops=_clipped(row.culprit["ops"]),
                places=row.places,
                message=clip(words.failure(row.culprit), _TEXT),
                replace_by=clip(row.replace_by, _TEXT),
            )
            for row in rows[:_MOST]
        ],
        next=[clip(f"{it.sentence}: {it.command}" if it.command else it.sentence, 2 * _TEXT) for it in steps],
        report=str(folder / "report.json"),
    )


def explained(document: Report, number: int, folder: Path) -> Explained:
    """Culprit `number`, counted from 1, of a report in the folder."""
    culprit = document["culprits"][number - 1]
    cause = culprit_words.of_culprit(document, culprit)
    place = folder / culprit_dirs(document)[number - 1]
    return Explained(
        ops=_clipped(culprit["ops"]),
        kind=culprit["kind"],
        certainty=culprit["certainty"],
        nodes=_clipped(culprit["nodes"]),
        places=len(culprit["occurrences"]),
        message=clip(words.failure(culprit), 3 * _TEXT),
        cause="" if cause is None else clip(culprit_words.sentence(cause), _TEXT),
        compiles_instead=[
            clip(culprit_words.instead(it), _TEXT) for it in (cause["contrast"] if cause else [])[:_MOST]
        ],
        replace_by=clip(words.replace_by(culprit), _TEXT),
        source=[clip(it.counted, _TEXT) for it in culprit_words.source_lines(culprit)[:_MOST]],
        files=sorted(str(path) for path in place.glob("*")),
    )


def repaired(result: FixResult, folder: Path, names: Sequence[str]) -> Repaired:
    """The repair, whose files have these names in the folder."""
    document = result.document
    return Repaired(
        verdict=document.verdict,
        headline=result.headline,
        replaced=[
            Replaced(
                node=clip(it.node, _TEXT),
                op=clip(it.op, _TEXT),
                rules=[rule.id for rule in it.rules],
                exactness=it.exactness,
            )
            for it in document.changes[:_MOST]
        ],
        left=[
            Staying(ops=_clipped(it.ops), nodes=_clipped(it.nodes), reasons=_clipped(it.reasons))
            for it in document.left[:_MOST]
        ],
        files=[str(folder / name) for name in names],
    )


def texts(options: Mapping[str, str | int | float | bool]) -> dict[str, str]:
    """Options in the syntax of `--option`."""
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in options.items()}


def _clipped(names: Sequence[str]) -> list[str]:
    return [clip(name, _TEXT) for name in names[:_MOST]]
