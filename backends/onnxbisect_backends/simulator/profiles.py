"""Op-support profiles: the ops that a compiler accepts, according to its documents or converter, as data files.

Profiles are TOML: shipped ones are in `profiles/`, a user's own is given by path. docs/profiles.md describes the
format. Validation is strict: an unknown field, constraint or rule is an error, because a misspelt limit would never be
checked and make a model look supported.
"""

import hashlib
import json
import tomllib
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from onnxbisect.errors import OptionError
from onnxbisect.language import did_you_mean
from onnxbisect.report.text import clean
from onnxbisect_backends.options import reason

Scalar = bool | int | float | str


class LogDetail(StrEnum):
    """How much of the refused ops a compiler's log reveals."""

    #: Every unsupported op type at once.
    ALL = "all"
    #: The first offending node in topological order.
    FIRST = "first"
    #: Nothing: it crashes without a message.
    NONE = "none"


class Effect(StrEnum):
    """The effect of a node beyond a limit."""

    #: The compiler refuses it.
    ERROR = "error"
    #: It compiles and computes wrong numbers; only a comparison of outputs shows it.
    SILENT_WRONG = "silent_wrong"
    #: The source does not say: every recorded use is within the limit.
    UNKNOWN = "unknown"


class Unlisted(StrEnum):
    """How an op counts that is neither in `ops` nor in `refused`."""

    #: The source lists all supported ops, so the op is refused.
    REFUSED = "refused"
    #: The source lists only ops that were seen, without this one.
    UNKNOWN = "unknown"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Constraint(_Strict):
    name: str
    effect: Effect = Effect.ERROR
    #: For measured profiles: the compiler's message.
    seen: str = ""


class AttrConstraint(_Constraint):
    """A limit on one attribute; the schema default replaces an absent one unless the rule is about presence.

    Dtype attributes (`to`, `dtype`) are compared by name: `"FLOAT"`, `"INT32"`. `in_last`: an axis, negative values
    counted from the last dimension of input 0. `in_if_mode_nearest`: applies only if attribute `mode` is `nearest`.
    """

    kind: Literal["attr"]
    rule: Literal[
        "in",
        "not_in",
        "in_last",
        "in_if_mode_nearest",
        "all_eq",
        "absent",
        "absent_or",
        "present",
        "present_in",
        "note",
    ]
    value: Scalar | tuple[Scalar, ...] = ()


class InputConstraint(_Constraint):
    """A limit on one input, by its name in the ONNX schema.

    `initializer` also accepts what is computed from constants where the compiler folds first. `absent_or_const`:
    absent, or a constant with one of `value`. `dtype_in` and `dtype_not_in` name dtypes as TensorProto does. `note`
    and `shape_note` are text for readers, which no program checks.
    """

    kind: Literal["input"]
    rule: Literal[
        "absent",
        "absent_or_const",
        "initializer",
        "initializer_scalar",
        "rank_in",
        "rank_not_in",
        "dtype_in",
        "dtype_not_in",
        "shape_note",
        "note",
    ]
    value: Scalar | tuple[Scalar, ...] = ()


class InputsConstraint(_Constraint):
    """A limit on all inputs together; `name` is `*`. Omitted optional inputs do not count."""

    kind: Literal["inputs"]
    rule: Literal["count_eq", "count_max"]
    value: int


Constraint = Annotated[AttrConstraint | InputConstraint | InputsConstraint, Field(discriminator="kind")]


class RefusedVariant(_Strict):
    """One refused use of an op, in the notation of `simulator.variant`, with the compiler's message."""

    variant: str
    message: str


class OpSupport(_Strict):
    """One supported op. `limits` are quotes of the source; `constraints` are their checkable parts."""

    limits: tuple[str, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    #: Refused uses that no limit explains.
    refuses: tuple[RefusedVariant, ...] = ()
    note: str = ""
    #: The source's spelling of the op, if it differs from ONNX's.
    doc_name: str = ""
    #: The method of the vendor's converter that handles the op; its tracebacks name it.
    converter: str = ""
    #: For measured profiles: how many node tests passed, and which did not.
    node_tests: str = ""
    failed_tests: tuple[str, ...] = ()


class Profile(_Strict):
    """The ops that one compiler version supports, and its messages.

    `refusal` is its message for an unsupported op, with `{op}`, `{ops}` (comma list), `{quoted_ops}` and `{node}`.
    `refused` are ops that were refused, each with the message. `unlisted` decides about other ops. `disputed` are
    differences between the list and real runs: verdicts follow the list, and reports say so.
    """

    profile: str
    vendor: str = ""
    tool: str
    version: str
    hardware: str = ""
    stage: str = ""
    source: str
    semantics: str = ""
    #: Nodes that depend only on constants and static shapes are folded and not checked.
    folds: bool = False
    #: Files with a newer opset are not folded.
    folds_max_opset: int | None = None
    folds_max_ir_version: int | None = None
    #: Op types are matched whatever their domain.
    ignores_domain: bool = False
    report: LogDetail = LogDetail.ALL
    refusal: str = "unsupported ops: {ops}"
    opset_min: int | None = None
    opset_max: int | None = None
    opset_refusal: str = "opset {opset} is outside of what this tool reads"
    #: Listed names that no ONNX file has, because the compiler's fusions make them.
    internal_ops: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unlisted: Unlisted = Unlisted.REFUSED
    #: Default-domain ops by bare name, others as `domain::Op`.
    ops: dict[str, OpSupport]
    refused: dict[str, str] = {}
    disputed: dict[str, str] = {}

    @property
    def is_of_single_ops(self) -> bool:
        """Whether it was measured with models of one op each, so that nothing is known of ops that are fused."""
        return any(support.node_tests for support in self.ops.values())

    @model_validator(mode="after")
    def _words_agree(self) -> "Profile":
        both = sorted(self.refused.keys() & self.ops.keys())
        if both:
            raise ValueError(f"{', '.join(both)} cannot be both supported and refused")
        return self


def shipped() -> tuple[str, ...]:
    """Names of the profiles that come with the package, sorted."""
    return tuple(sorted(p.name.removesuffix(".toml") for p in _folder().iterdir() if p.name.endswith(".toml")))


def load(name: str) -> tuple[Profile, str]:
    """A shipped profile by name, or a user's own by path, with a digest of its text (8 hex digits).

    The digest belongs into the version under which verdicts are kept: an edited profile is another compiler. Raises
    OptionError for an unknown name, an unreadable file, or an invalid profile.
    """
    if name in shipped():
        text = (_folder() / f"{name}.toml").read_text(encoding="utf-8")
    else:
        path = Path(name)
        if path.suffix != ".toml":
            raise OptionError(
                f"there is no profile {name!r}{did_you_mean(name, shipped())} Shipped are {', '.join(shipped())}; "
                "a file of your own is named by a path that ends in .toml."
            )
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise OptionError(f"The profile {name!r} cannot be read: {error.strerror or error}.") from error
        except UnicodeDecodeError as error:
            raise OptionError(f"The profile {name!r} is not text in UTF-8: {error}.") from error
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    try:
        return Profile.model_validate(tomllib.loads(text)), digest
    except tomllib.TOMLDecodeError as error:
        raise OptionError(f"The profile {name!r} is not TOML: {error}.") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise OptionError(f"The profile {name!r} is wrong at {where or 'the top'}: {reason(first['msg'])}.") from error


def _folder() -> resources.abc.Traversable:
    return resources.files("onnxbisect_backends.simulator") / "profiles"


#: Longer lists have one item on each line.
_WIDE = 100

#: The order of fields in an inline table; other fields follow.
_ORDER = ("kind", "name", "rule", "value", "variant")


def profile_text(profile: Profile, *, command: str = "op-table") -> str:
    """The text. Defaults are left out; ops with constraints have tables of their own."""
    fields = profile.model_dump(mode="json", exclude_defaults=True)
    ops, refused = fields.pop("ops", {}), fields.pop("refused", {})
    short = {op: entry for op, entry in ops.items() if not {"constraints", "refuses"} & entry.keys()}
    lines = [f"# Written by onnx-bisect {command}.", ""]
    lines += [f"{key} = {_lines(value)}" for key, value in fields.items()]
    lines += ["", "[ops]", *(f"{_key(op)} = {_inline(entry)}" for op, entry in short.items())]
    for op, entry in ops.items():
        if op not in short:
            lines += ["", f"[ops.{_key(op)}]", *(f"{key} = {_lines(value)}" for key, value in entry.items())]
    if refused:
        lines += ["", "[refused]", *(f"{_key(op)} = {_inline(words)}" for op, words in refused.items())]
    return "\n".join(lines) + "\n"


def _lines(value: object) -> str:
    text = _inline(value)
    if not isinstance(value, list) or len(text) <= _WIDE:
        return text
    return "[\n" + "".join(f"    {_inline(item)},\n" for item in value) + "]"


def _inline(value: object) -> str:
    if isinstance(value, str):
        return json.dumps(clean(value), ensure_ascii=False)
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: _ORDER.index(key) if key in _ORDER else len(_ORDER))
        entries = ", ".join(f"{_key(key)} = {_inline(value[key])}" for key in keys)
        return f"{{ {entries} }}" if entries else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    return json.dumps(value)


def _key(name: str) -> str:
    bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if bare else _inline(name)
