"""The result of a diagnosis as frozen dataclasses, and the files that are written from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

import onnx

from onnxbisect import diagnosis
from onnxbisect.causes.terms import CauseState
from onnxbisect.drawing import model_explorer
from onnxbisect.errors import OnnxBisectError, OptionError
from onnxbisect.json_form import from_json
from onnxbisect.model.external import external_tensors
from onnxbisect.report import files, parts, terminal, words
from onnxbisect.report.compare import AskedModel, TargetReport
from onnxbisect.report.contents import Report
from onnxbisect.report.culprit_contents import CulpritEntry
from onnxbisect.report.files import FORMS, culprit_dirs, put
from onnxbisect.report.html import environment
from onnxbisect.session import Ending
from onnxbisect.verdict import Kind, Status
from onnxbisect_backends.folders import working_folder
from onnxbisect_backends.probing.prober import DATA_NAME, PROBE_NAME

if TYPE_CHECKING:
    from onnxbisect.precision.report import PrecisionReport
    from onnxbisect.remedies.document import RepairDocument


class ShownReport:
    """`print` shows what `onnx-bisect run` prints, and a notebook a table. Names of nodes are escaped in both."""

    report: "Report"

    def __str__(self) -> str:
        return "\n".join(terminal.lines(self.report))

    def _repr_html_(self) -> str:
        return environment().get_template("notebook.html.j2").render(doc=self.report)


class ShownRepair:
    """`print` shows what `onnx-bisect fix` prints, and a notebook the same."""

    document: "RepairDocument"

    @property
    def headline(self) -> str:
        """The outcome in one sentence."""
        from onnxbisect.remedies.summary import headline

        return headline(self.document)

    def __str__(self) -> str:
        from onnxbisect.remedies.summary import lines

        return "\n".join(lines(self.document))

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


class ShownPrecision:
    """The result of a search for nodes that must stay precise; `report` has the contents of precision.json
    (docs/precision.md).
    """

    report: "PrecisionReport"

    @property
    def headline(self) -> str:
        """The outcome in one sentence."""
        return self.report.headline

    @property
    def keep(self) -> tuple[str, ...]:
        """The names of the nodes to keep in high precision."""
        return tuple(it.node for it in self.report.members)


class NoReproducerError(OnnxBisectError):
    """A culprit has no file, because the search ended before the compiler failed on that very file."""


class Attachments(Protocol):
    """The files that belong to a report, made in this process or downloaded from a server."""

    def of_culprit(self, number: int, folder: Path) -> Mapping[str, Path | bytes]:
        """The files that reproduce a culprit, by name; empty if no compiler failed on its own file. `number` is from 1.

        Files that are created or downloaded for this call are written to `folder`.
        """

    def pictures(self) -> Mapping[str, bytes]:
        """The files for Model Explorer that are available, by their paths below the report's folder."""


@dataclass(frozen=True, kw_only=True)
class Culprit:
    """A minimal failing part of the model. `nodes` and `ops` are those of one occurrence, in topological order;
    `occurrences` are the nodes of each. `message` is the compiler's own line.
    """

    id: str
    kind: diagnosis.CulpritKind
    certainty: diagnosis.Certainty
    confidence: float
    ops: tuple[str, ...]
    nodes: tuple[str, ...]
    occurrences: tuple[tuple[str, ...], ...]
    failure: Kind
    message: str
    number: int
    attachments: Attachments = field(repr=False, compare=False)

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the smallest model that reproduces the culprit to `path`. The compiler has failed on exactly this file.

        Weights that the model stores as external data are written to `<stem>.data` beside it. Raises NoReproducerError
        if there is no such file, OptionError if it cannot be written.
        """
        path = Path(path)
        with working_folder() as folder:
            given = self.attachments.of_culprit(self.number, folder)
            if PROBE_NAME not in given:
                raise NoReproducerError(
                    f"There is no file for the culprit {self.id}: the search ended before a compiler was seen to fail "
                    "on it. Diagnose again with files=True and without a budget."
                )
            content = given[PROBE_NAME]
            try:
                if DATA_NAME in given:
                    data = put(path.with_suffix(".data"), given[DATA_NAME])
                    proto = (
                        onnx.load(content, load_external_data=False)
                        if isinstance(content, Path)
                        else onnx.load_from_string(content)
                    )
                    for tensor in external_tensors(proto):
                        for entry in tensor.external_data:
                            if entry.key == "location":
                                entry.value = data.name
                    content = proto.SerializeToString()
                return put(path, content)
            except OSError as error:
                raise OptionError(f"{path} cannot be written: {error.strerror or error}.") from error


@dataclass(frozen=True, kw_only=True)
class Cause:
    """A property that some culprits share and that nothing that passed has, such as "tensors of rank 6 or more".

    `culprits` are their ids.
    """

    text: str
    state: CauseState
    culprits: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class NeedsContext:
    """Nodes that fail when they are cut out, but pass in the context of the model: they are no culprits."""

    ops: tuple[str, ...]
    nodes: tuple[str, ...]
    occurrences: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """States whether all culprits were found. `sentence` says it in words; `assumes` lists the proof's assumptions,
    `unknown` what is left open.
    """

    status: diagnosis.CertificateStatus
    sentence: str
    assumes: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def proven(self) -> bool:
        """Whether nothing is left open."""
        return self.status is diagnosis.CertificateStatus.PROVEN


@dataclass(frozen=True, kw_only=True)
class TriedOptions:
    """Results with `options` changed: the ids of culprits that the compiler `takes` and `refuses`, and its verdict on
    the whole model, None if that was not compiled. `problem` says why nothing could be compiled.
    """

    options: Mapping[str, str]
    version: str
    takes: tuple[str, ...]
    refuses: tuple[str, ...]
    whole: Status | None
    problem: str


@dataclass(frozen=True, kw_only=True)
class Result(ShownReport):
    """The result of a diagnosis of one model with one compiler.

    `verdict` is that of the whole model. If `compiles_after` is set, the model fails as it is, a changed file compiles,
    and its parts were not searched. `alternatives` are the results with other options. `report` is the content of
    report.json (`onnx-bisect/report@1`, docs/report.md), from which the other fields are read. `ending` and `job` are
    values of the engine, None for a diagnosis on a server.
    """

    verdict: Status
    headline: str
    causes: tuple[Cause, ...]
    culprits: tuple[Culprit, ...]
    needs_context: tuple[NeedsContext, ...]
    certificate: Certificate
    target: diagnosis.Target
    stats: diagnosis.Stats
    report: Report = field(repr=False, compare=False)
    attachments: Attachments = field(repr=False, compare=False)
    compiles_after: diagnosis.CompilesAfter | None = None
    alternatives: tuple[TriedOptions, ...] = ()
    ending: Ending | None = None
    job: diagnosis.CompletedDiagnosis | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        report: Report,
        attachments: Attachments,
        *,
        ending: Ending | None = None,
        job: diagnosis.CompletedDiagnosis | None = None,
    ) -> Self:
        """Create a result from a report."""
        after = report.get("compiles_after")
        return cls(
            verdict=Status(report["verdict"]),
            headline=report["headline"],
            causes=from_json(report.get("causes", ()), tuple[Cause, ...]),  # servers of earlier versions have none
            culprits=tuple(
                from_json({**it, "number": number, "attachments": attachments}, Culprit)
                for number, it in enumerate(report["culprits"], 1)
            ),
            needs_context=from_json(report["needs_context"], tuple[NeedsContext, ...]),
            certificate=from_json(report["certificate"], Certificate),
            target=from_json(report["target"], diagnosis.Target),
            stats=from_json(report["stats"], diagnosis.Stats),
            report=report,
            attachments=attachments,
            alternatives=tuple(
                from_json({**it, "refuses": [one["culprit"] for one in it["refuses"]]}, TriedOptions)
                for it in report.get("alternatives", ())
            ),
            compiles_after=None if after is None else from_json(after, diagnosis.CompilesAfter),
            ending=ending,
            job=job,
        )

    def to_json(self, path: str | PathLike[str] | None = None) -> str:
        """The report as JSON; written to `path`, if given."""
        return self._form("report.json", path)

    def to_markdown(self, path: str | PathLike[str] | None = None) -> str:
        """The report as Markdown; written to `path`, if given."""
        return self._form("report.md", path)

    def to_html(self, path: str | PathLike[str] | None = None) -> str:
        """The report as one self-contained HTML page; written to `path`, if given."""
        return self._form("report.html", path)

    def write(self, folder: str | PathLike[str]) -> None:
        """Write the files of `onnx-bisect run --out` into a folder: the report in every form, and for each culprit the
        files that reproduce it. Raises OSError if they cannot be written.
        """
        out = Path(folder)
        given: dict[str, Mapping[str, Path | bytes]] = {}
        with working_folder() as work:
            for number, (culprit, place) in enumerate(
                zip(self.report["culprits"], culprit_dirs(self.report), strict=True), 1
            ):
                found = self.attachments.of_culprit(number, work) if culprit["repro"] else {}
                files.forget_culprit(out / place)  # it may be of an earlier run
                given[culprit["id"]] = found
            report = with_repro(self.report, [bool(found) for found in given.values()])
            files.write(report, out, given)
        pictures = self.attachments.pictures()
        for place in model_explorer.FILES:
            (out / place).parent.mkdir(exist_ok=True)
            if place in pictures:
                put(out / place, pictures[place])
            else:
                (out / place).unlink(missing_ok=True)  # it may be of an earlier run

    def _form(self, name: str, path: str | PathLike[str] | None) -> str:
        text = FORMS[name](self.report)
        if path is not None:
            put(Path(path), text.encode("utf-8", "backslashreplace"))
        return text


def with_repro(report: Report, reproduced: Sequence[bool]) -> Report:
    """The report with `repro` set to None for each culprit that was not reproduced."""
    culprits: list[CulpritEntry] = [
        {**culprit, "repro": culprit["repro"] if there else None}
        for culprit, there in zip(report["culprits"], reproduced, strict=True)
    ]
    return {**report, "culprits": culprits}


def parts_table(results: Mapping[str, Result | Sequence[Result]]) -> parts.PartsTable:
    """The table of models by targets, and the causes that several models share.

    `results` maps each model's label to its result, or to one result per target. Raises OptionError unless all models
    have the same targets in the same order.
    """
    rows = {label: [each] if isinstance(each, Result) else list(each) for label, each in results.items()}
    asked = [
        [(result.target.backend, words.target(result.report["target"])) for result in row] for row in rows.values()
    ]
    if not asked or any(row != asked[0] for row in asked) or not asked[0]:
        raise OptionError("The models of a table need results on the same targets, in the same order.")
    backends = [backend for backend, _ in asked[0]]
    labels = [
        backend if backends.count(backend) == 1 else f"{backend}-{number}" for number, backend in enumerate(backends, 1)
    ]
    return parts.parts_table(
        [
            parts.ModelPart(
                label=label,
                name=row[0].report["model"]["name"],
                subject=AskedModel.of_report(row[0].report),
                asked=[
                    TargetReport(label=target, backend=result.target.backend, report=result.report)
                    for target, result in zip(labels, row, strict=True)
                ],
            )
            for label, row in rows.items()
        ],
        dict(zip(labels, (text for _, text in asked[0]), strict=True)),
    )
