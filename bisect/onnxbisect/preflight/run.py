"""The table of checks and the function that runs them."""

import shlex
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from onnxbisect.finding import Finding, Severity
from onnxbisect.language import english
from onnxbisect.model.model import Model
from onnxbisect.model.read import original
from onnxbisect.preflight import control, header, ops, shapes, structure, types
from onnxbisect.preflight.op_limits import OpRecord, with_recorded_issues
from onnxbisect.preflight.subject import CheckResult, InspectedModel
from onnxbisect.preflight.target import Reader, told_of


@dataclass(frozen=True, kw_only=True)
class PreflightCheck:
    """One thing that compilers are known to mind. `seen` quotes them, empty where no words are on record.

    `remedy` is as in `Finding`. `taken_by` are tools that were seen to compile a model which has it: for them it is no
    error.
    """

    id: str
    severity: Severity
    why: str
    fix: str
    seen: str
    remedy: str
    taken_by: tuple[str, ...]
    find: Callable[[InspectedModel], CheckResult | None]


@lru_cache(maxsize=1)
def checks() -> tuple[PreflightCheck, ...]:
    """Every check: its texts from checks.toml, whose order is the order of findings, its code from the modules."""
    find: Mapping[str, Callable[[InspectedModel], CheckResult | None]] = {
        **shapes.CHECKS,
        **types.CHECKS,
        **control.CHECKS,
        **structure.CHECKS,
        **ops.CHECKS,
        **header.CHECKS,
    }
    data = tomllib.loads((resources.files("onnxbisect.preflight") / "checks.toml").read_text(encoding="utf-8"))
    return tuple(
        PreflightCheck(
            id=id_,
            severity=Severity(texts["severity"]),
            why=texts["why"],
            fix=texts["fix"],
            seen=texts.get("seen", ""),
            remedy=texts.get("remedy", ""),
            taken_by=tuple(texts.get("taken_by", ())),
            find=find[id_],
        )
        for id_, texts in data.items()
    )


def preflight(model: Model, reader: Reader | None = None, record: OpRecord | None = None) -> tuple[Finding, ...]:
    """Findings about everything known to trouble compilers: errors first, then warnings, then remarks.

    Calls no compiler and does not run the model; takes time linear in the model and reads the file again, because
    `load` normalises some properties that are checked here. Models that `load` refuses never come this far. With
    `reader`, findings are adapted to that tool; `record` says which ops it accepts.
    """
    subject = InspectedModel(model, original(model))
    found = [
        Finding(
            id=check.id,
            severity=_severity(check, reader),
            nodes=seen.nodes,
            tensors=seen.tensors,
            detail=seen.detail,
            why=_why(check, reader),
            fix=check.fix + (_does(model) if check.remedy else ""),
            remedy=check.remedy,
        )
        for check in checks()
        if (seen := check.find(subject)) is not None
    ]
    if record is not None:
        found = with_recorded_issues(record, found)
    if reader is not None:
        found = told_of(reader, found, subject)
    order = list(Severity)
    return tuple(sorted(found, key=lambda finding: order.index(finding.severity)))


def _takes(check: PreflightCheck, reader: Reader | None) -> bool:
    return reader is not None and reader.tool in check.taken_by


def _severity(check: PreflightCheck, reader: Reader | None) -> Severity:
    mild = check.severity is Severity.ERROR and _takes(check, reader)
    return Severity.WARNING if mild else check.severity


def _why(check: PreflightCheck, reader: Reader | None) -> str:
    sentences = [check.why]
    if check.seen:
        sentences.append(english("Seen: {said}", said=check.seen))
    if reader and _takes(check, reader):
        sentences.append(english("{tool} was seen to compile a model with it.", tool=reader.tool))
    return " ".join(sentences)


def _does(model: Model) -> str:
    """Which command follows the advice."""
    command = shlex.join(["onnx-bisect", "fix", model.path.name])
    return " " + english("`{command}` does that where the compiler refuses the file.", command=command)
