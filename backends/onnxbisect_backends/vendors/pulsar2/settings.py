"""The user's settings for pulsar2: `--option` pairs merged over a configuration file, validated together."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from onnxbisect.errors import OptionError
from onnxbisect_backends.options import LOCAL, read_options, reason, unknown
from onnxbisect_backends.vendors.pulsar2.config_file import element, message_at, message_of, read_config
from onnxbisect_backends.vendors.pulsar2.schema import BuildConfig, BuildOptions

Build = TypeVar("Build", bound=BuildConfig)

#: Fields that onnx-bisect sets for each probe; values in a file are ignored.
OURS = (
    "input",
    "output_dir",
    "output_name",
    "work_dir",
    "quant.input_sample_dir",
    "compiler.input_sample_dir",
    "compiler.start_tensor_names",
    "compiler.end_tensor_names",
)


class Pulsar2Options(BaseModel):
    """Options that are not pulsar2's own; those have the dotted names of its configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    config: Annotated[Path | None, LOCAL] = Field(
        default=None, description="your own configuration file for pulsar2 build: .json, .yaml, .toml or .prototxt"
    )
    image: Annotated[str | None, LOCAL] = Field(
        default=None,
        pattern=r"^\w[\w./:@-]*$",  # docker would parse a leading dash as a flag
        description="the Docker image to run it in; without it pulsar2 is on PATH",
    )
    calibration_size: int = Field(
        default=4, ge=1, le=1000, description="samples of input values that go with each probe"
    )
    least_cosine: float | None = Field(
        default=None,
        ge=-1,
        le=1,
        description="layers with a lower cosine in the precision analysis are culprits; switches that on",
    )


@dataclass(frozen=True, kw_only=True)
class Pulsar2Settings:
    """The validated settings of a backend.

    `given` are the options as text, `own` those that are not pulsar2's, and `build` is the user's configuration with
    pulsar2's options merged in. `constants` are the files that the configuration names, each with a digest of its
    content.
    """

    given: Mapping[str, str]
    own: Pulsar2Options
    build: BuildOptions
    constants: Mapping[str, str]


def read_settings(given: Mapping[str, str]) -> Pulsar2Settings:
    """Read and merge the options and the configuration file; raises OptionError naming the nearest option or field."""
    fields = scalars(BuildOptions)
    for key in given:
        if key not in fields and key not in Pulsar2Options.model_fields:
            raise OptionError(_no_option(key, [*fields, *Pulsar2Options.model_fields]))
    own = read_options(
        Pulsar2Options, {key: given[key] for key in Pulsar2Options.model_fields if key in given}, "pulsar2"
    )
    data = {} if own.config is None else read_config(own.config)
    build = _validated(BuildConfig, data, f"The pulsar2 configuration {own.config} is wrong")
    merged = build.model_dump(mode="json", exclude_unset=True)
    for key in given.keys() & fields.keys():
        _put(merged, key, given[key].split(",") if fields[key] else given[key])
    if own.least_cosine is not None:
        _put(merged, "quant.precision_analysis", True)
    settled = _validated(BuildOptions, merged, "An option of the backend 'pulsar2' is wrong")
    return Pulsar2Settings(given=dict(sorted(given.items())), own=own, build=settled, constants=_constants(settled))


def _no_option(key: str, valid: list[str]) -> str:
    if key in OURS:
        return f"onnx-bisect sets '{key}' of pulsar2 itself for each probe; leave it out."
    *path, last = key.split(".")
    if last in message_at(BuildOptions, path).model_fields:
        return f"'{key}' of pulsar2 is a structure; write it into the file that --option config=FILE names."
    near = get_close_matches(key, valid, n=1, cutoff=0.5)
    guess = f"; did you mean '{near[0]}'?" if near else "."
    return f"'{key}' is no option of the backend 'pulsar2'{guess} `pulsar2 build -h` lists all, with their dots."


def scalars(model: type[BaseModel], prefix: str = "") -> dict[str, bool]:
    """The scalar fields by dotted name, and whether they are lists; without `OURS`."""
    found: dict[str, bool] = {}
    for name, about in model.model_fields.items():
        kind, repeated = element(about.annotation)
        if inner := message_of(about.annotation):
            if not repeated:
                found |= scalars(inner, f"{prefix}{name}.")
        elif kind is not dict and f"{prefix}{name}" not in OURS:
            found[f"{prefix}{name}"] = repeated
    return found


def _put(data: dict[str, Any], key: str, value: object) -> None:
    *path, last = key.split(".")
    for part in path:
        data = data.setdefault(part, {})
    data[last] = value


def _validated(model: type[Build], data: dict[str, Any], what: str) -> Build:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise OptionError(f"{what}: {_complaint(error)}") from None


def _complaint(error: ValidationError) -> str:
    errors = error.errors(include_url=False)
    first = next((it for it in errors if it["type"] == "extra_forbidden"), errors[0])
    where = [str(part) for part in first["loc"]]
    if first["type"] == "extra_forbidden":
        *path, field = where
        for name, about in BuildConfig.model_fields.items():
            inner = message_of(about.annotation)
            if not path and inner is not None and field in inner.model_fields:
                return f"'{field}' is a field of {name}, and stands beside it; write it inside."
        return unknown(f"field of {'.'.join(path) or 'BuildConfig'}", field, message_at(BuildConfig, path).model_fields)
    if first["type"] == "missing":
        return f"{'.'.join(where)} is missing."
    said = f"{reason(first['msg'])}."
    return f"{'.'.join(where)}: {said}" if where else said


def _constants(build: BuildConfig) -> dict[str, str]:
    try:
        paths = [entry.data_path for entry in build.const_processors if entry.data_path]
        return {path: hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16] for path in paths}
    except OSError as error:
        raise OptionError(
            f"data_path of the pulsar2 configuration, {error.filename}, cannot be read: {error.strerror}."
        ) from None
