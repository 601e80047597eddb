"""Makes a profile from reports of runs on a compiler: what passed, what was refused, and nothing else.

An op with a passing use is listed, with limits to the ranks, dtypes, single attribute values and computed inputs that
passed; beyond them it is unknown. A refused use is refused exactly as it was. An op whose uses were all refused is
refused.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
from pydantic import BaseModel, ConfigDict, ValidationError

from onnxbisect.errors import OptionError
from onnxbisect.model.scopes import attribute_value, schema_of
from onnxbisect.report.text import clip, plural, uncoloured
from onnxbisect_backends.simulator import profiles
from onnxbisect_backends.simulator.constraints import OMITTED, input_text, use_text

#: Most characters of a message in a profile.
_WORDS = 200
_CONSTANT = profiles.OpSupport(note="Not asked: it cannot be a model on its own.")


class _Input(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    dtype: str | None
    rank: int | None
    constant: bool


class _Entry(BaseModel):
    """An entry of a report's `uses`."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    op: str
    domain: str
    opset: int | None
    attributes: Mapping[str, profiles.Scalar | list[profiles.Scalar] | None]
    inputs: tuple[_Input | None, ...]
    outputs: int
    passing: int
    refused: int
    message: str

    @property
    def name(self) -> str:
        return f"{self.domain}::{self.op}" if self.domain else self.op

    @property
    def schema_of_op(self) -> onnx.defs.OpSchema | None:
        return schema_of(self.op, self.opset or 1, self.domain)


class _Target(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    backend: str
    tool: str
    version: str
    options: Mapping[str, Any]


class _Model(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    sha256: str


class _Document(BaseModel):
    """The parts of a report that a profile is made from."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    model: _Model
    target: _Target
    uses: tuple[_Entry, ...]


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """A value that occurred in passing uses, and what it is a value of."""

    kind: str
    name: str
    value: profiles.Scalar


def recorded_profile(name: str, reports: Mapping[str, object]) -> profiles.Profile:
    """The profile of the compiler of these reports, given by file name.

    Raises OptionError if a report has no uses or is of a simulation, or if two are of different compilers.
    """
    read = {file: _read(file, report) for file, report in reports.items()}
    (first, one), *others = read.items()
    for file, other in others:
        if (other.target.tool, other.target.version) != (one.target.tool, one.target.version):
            raise OptionError(
                f"{first} is of {one.target.tool} {one.target.version}, {file} of {other.target.tool} "
                f"{other.target.version}; a profile is of one compiler."
            )
    by_op: dict[str, list[_Entry]] = {}
    for report in read.values():
        for entry in report.uses:
            by_op.setdefault(entry.name, []).append(entry)
    supported = {op: _support(uses) for op, uses in by_op.items() if any(use.passing for use in uses)}
    refused = {
        op: _words(next(use for use in uses if use.refused))
        for op, uses in by_op.items()
        if op not in supported and any(use.refused for use in uses)
    }
    unsettled = sorted(by_op.keys() - supported.keys() - refused.keys())
    models = sorted({report.model.name for report in read.values()})
    opsets = sorted({use.opset for uses in by_op.values() for use in uses if use.opset and not use.domain})
    return profiles.Profile(
        profile=name,
        tool=one.target.tool,
        version=one.target.version,
        source=f"recorded: {plural(len(read), 'report')} of {one.target.backend}, of {', '.join(models)}",
        semantics="An op is listed where a use of it stood in a probe that passed; limits are what was seen of it.",
        report=profiles.LogDetail.FIRST,
        refusal="{op} is refused",
        notes=(
            f"Seen at opset {', '.join(map(str, opsets))}." if opsets else "No op of ONNX was seen.",
            "Whether it folds constants first was not seen.",
            *([f"No answer about {', '.join(unsettled)}."] if unsettled else []),
        ),
        unlisted=profiles.Unlisted.UNKNOWN,
        ops=dict(sorted({"Constant": _CONSTANT, **supported}.items())),
        refused=dict(sorted(refused.items())),
    )


def _read(file: str, report: object) -> _Document:
    if isinstance(report, dict) and "uses" not in report and "op_table" in report:
        raise OptionError(f"{file} is of an older onnx-bisect and does not list uses of ops; run the model again.")
    try:
        read = _Document.model_validate(report)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise OptionError(f"{file} is no report of onnx-bisect: it is wrong at {where or 'the top'}.") from error
    if read.target.backend == "whitelist":
        raise OptionError(f"{file} is of a simulated compiler; a record is of what a real one answered.")
    return read


def _support(uses: Sequence[_Entry]) -> profiles.OpSupport:
    passed = [use for use in uses if use.passing]
    fine = {_text(use) for use in passed}
    failed = [(text, use) for use in uses if use.refused and (text := _text(use)) is not None]
    refuses = {text: _words(use) for text, use in failed if text not in fine}
    alike = sum(use.refused for text, use in failed if text in fine)
    note = f"seen in {plural(sum(use.passing for use in passed), 'place')}"
    note += f", and refused in {alike} that differ in shapes or values only" if alike else ""
    return profiles.OpSupport(
        constraints=tuple(_limits(passed)),
        refuses=tuple(profiles.RefusedVariant(variant=text, message=refuses[text]) for text in sorted(refuses)),
        note=note,
    )


def _limits(passed: Sequence[_Entry]) -> Iterator[profiles.Constraint]:
    values: dict[tuple[str, str], dict[profiles.Scalar, None]] = {}
    for seen in (seen for use in passed for seen in _seen(use)):
        values.setdefault((seen.kind, seen.name), {})[seen.value] = None
    effect = profiles.Effect.UNKNOWN
    for (kind, name), found in sorted(values.items()):
        value = tuple(sorted(found, key=lambda it: (str(type(it)), it)))
        match kind:
            case "attr":
                yield profiles.AttrConstraint(kind="attr", name=name, rule="in", value=value, effect=effect)
            case "dtype":
                yield profiles.InputConstraint(kind="input", name=name, rule="dtype_in", value=value, effect=effect)
            case "rank":
                yield profiles.InputConstraint(kind="input", name=name, rule="rank_in", value=value, effect=effect)
            case "constant" if value == (True,):
                yield profiles.InputConstraint(kind="input", name=name, rule="initializer", effect=effect)


def _seen(use: _Entry) -> Iterator[_Seen]:
    """Single values of attributes, including defaults, and of each input dtype, rank, and whether it is constant."""
    schema = use.schema_of_op
    if schema is None:
        return
    for name, attribute in schema.attributes.items():
        value = use.attributes[name] if name in use.attributes else attribute_value(attribute.default_value)
        if isinstance(value, bool | int | float | str):
            yield _Seen(kind="attr", name=name, value=value)
    for formal, given in zip(schema.inputs, use.inputs, strict=False):
        if given is None:
            continue
        if given.dtype is not None:
            yield _Seen(kind="dtype", name=formal.name, value=given.dtype)
        if given.rank is not None:
            yield _Seen(kind="rank", name=formal.name, value=given.rank)
        yield _Seen(kind="constant", name=formal.name, value=given.constant)


def _text(use: _Entry) -> str | None:
    """The use in the spelling of `onnxbisect_backends.simulator.constraints`; None if an input's type is unknown."""
    schema = use.schema_of_op
    defaults = (
        {} if schema is None else {name: attribute_value(it.default_value) for name, it in schema.attributes.items()}
    )
    kept = {name: value for name, value in use.attributes.items() if value is None or value != defaults.get(name)}
    if any(it is not None and (it.dtype is None or it.rank is None) for it in use.inputs):
        return None
    inputs = [
        OMITTED if it is None else input_text(str(it.dtype), "?" * (it.rank or 0), constant=it.constant)
        for it in use.inputs
    ]
    return use_text(kept, inputs, use.outputs)


def _words(use: _Entry) -> str:
    return clip(uncoloured(use.message), _WORDS) or "refused"
