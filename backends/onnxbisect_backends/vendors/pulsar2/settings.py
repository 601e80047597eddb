"""The user's settings for pulsar2: `--option` pairs merged over a configuration file, validated together."""

import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import yaml
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory, struct_pb2, text_format
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from onnxbisect.errors import OptionError
from onnxbisect.language import did_you_mean
from onnxbisect_backends.options import LOCAL, complaint, model_at, read_options, reason, unknown
from onnxbisect_backends.vendors.pulsar2.schema import BuildConfig, BuildOptions


def element(annotation: Any) -> tuple[Any, bool]:
    """The type of a field's values, and whether there may be several: `X`, `X | None`, `tuple[X, ...]`, `dict`."""
    if get_origin(annotation) is Literal or (isinstance(annotation, type) and not get_args(annotation)):
        return annotation, False
    first = get_args(annotation)[0]
    if get_args(annotation)[-1] is Ellipsis:
        return first, True
    return (dict if first is str else first), False


def message_of(annotation: Any) -> type[BaseModel] | None:
    """The message type of a field, single or repeated; None if the field is no message."""
    kind, _ = element(annotation)
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


_Field = descriptor_pb2.FieldDescriptorProto
_UNKNOWN = re.compile(r'Message type "[\w.]*\.(?P<message>\w+)" has no field named "(?P<field>\w+)"')
_SCALARS = {bool: _Field.TYPE_BOOL, int: _Field.TYPE_INT32, float: _Field.TYPE_DOUBLE, str: _Field.TYPE_STRING}


def parse(text: str, root: type[BaseModel], package: str) -> dict[str, Any]:
    """The fields that the text sets, by name; raises ValueError with the position and protobuf's message."""
    message = _message_class(root, package)()
    try:
        text_format.Parse(text, message)
    except text_format.ParseError as error:
        # protobuf's message; if it is about an unknown field, a sentence with the nearest known one instead
        words = str(error)
        match = _UNKNOWN.search(words)
        models: set[type[BaseModel]] = set()
        _collect(root, models)
        model = next((model for model in models if match and model.__name__ == match["message"]), None)
        if match is None or model is None:
            raise ValueError(words) from None
        known = unknown(f"field of {model.__name__}", match["field"], model.model_fields)
        raise ValueError(f"line {words.partition(':')[0]}: {known}") from None
    found: dict[str, Any] = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return found


@cache
def _message_class(root: type[BaseModel], package: str) -> Any:
    # proto2, because its scalars remember whether they were set
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto2")
    file.dependency.append(struct_pb2.DESCRIPTOR.name)
    _describe(root, file, set())
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{root.__name__}"))


def _describe(model: type[BaseModel], file: descriptor_pb2.FileDescriptorProto, done: set[type]) -> None:
    if model in done:
        return
    done.add(model)
    message = file.message_type.add(name=model.__name__)
    for number, (name, about) in enumerate(model.model_fields.items(), 1):
        kind, repeated = element(about.annotation)
        label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
        field = message.field.add(name=name, number=number, label=label)
        if kind in _SCALARS:
            field.type = _SCALARS[kind]
        elif kind is dict:
            field.type, field.type_name = _Field.TYPE_MESSAGE, ".google.protobuf.Struct"
        elif get_origin(kind) is Literal:
            # in a message of its own: two enumerations in one scope cannot share values such as `Slice`
            scope = message.nested_type.add(name=f"{name}_values")
            values = scope.enum_type.add(name=name)
            for place, value in enumerate(get_args(kind)):
                values.value.add(name=value, number=place)
            field.type, field.type_name = _Field.TYPE_ENUM, f".{file.package}.{model.__name__}.{scope.name}.{name}"
        elif inner := message_of(about.annotation):
            field.type, field.type_name = _Field.TYPE_MESSAGE, f".{file.package}.{inner.__name__}"
            _describe(inner, file, done)


def _collect(model: type[BaseModel], found: set[type[BaseModel]]) -> None:
    if model not in found:
        found.add(model)
        for about in model.model_fields.values():
            if kind := message_of(about.annotation):
                _collect(kind, found)


_STRING = r'"(?:[^"\\\n]|\\.)*"'
_COMMENT = re.compile(_STRING + r"|//[^\n]*|#[^\n]*|/\*.*?\*/", re.DOTALL)
_TRAILING_COMMA = re.compile(_STRING + r"|,(?=\s*[}\]])")


def read_config(path: Path) -> dict[str, Any]:
    """The file's content, not yet validated; raises OptionError."""
    parse = _PARSERS.get(path.suffix.lower())
    if parse is None:
        raise OptionError(f"{unknown('ending of a pulsar2 configuration file', path.suffix, _PARSERS)}")
    try:
        data = parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(f"The pulsar2 configuration {path} cannot be read: {error.strerror or error}.") from None
    except (ValueError, yaml.YAMLError) as error:  # UnicodeDecodeError and all parsers' own but yaml's are ValueErrors
        words = reason(" ".join(str(error).split()))
        raise OptionError(f"The pulsar2 configuration {path} cannot be parsed: {words}.") from None
    if not isinstance(data, dict):
        raise OptionError(f"The pulsar2 configuration {path} holds no fields but {type(data).__name__}.")
    return data


def lenient_json(text: str) -> Any:
    """JSON with `//` and `#` comments and trailing commas, as pulsar2's own examples have them.

    Blanks replace the removed text, so that error messages name the right position.
    """
    text = _COMMENT.sub(lambda match: match[0] if match[0].startswith('"') else re.sub(r"[^\n]", " ", match[0]), text)
    return json.loads(_TRAILING_COMMA.sub(lambda match: match[0] if match[0].startswith('"') else " ", text))


_PARSERS: dict[str, Callable[[str], Any]] = {
    ".json": lenient_json,
    ".yaml": yaml.safe_load,
    ".yml": yaml.safe_load,
    ".toml": tomllib.loads,
    ".prototxt": lambda text: parse(text, BuildConfig, "pulsar2.build"),
}


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
    try:
        paths = [entry.data_path for entry in settled.const_processors if entry.data_path]
        constants = {path: hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16] for path in paths}
    except OSError as error:
        raise OptionError(
            f"data_path of the pulsar2 configuration, {error.filename}, cannot be read: {error.strerror}."
        ) from None
    return Pulsar2Settings(given=dict(sorted(given.items())), own=own, build=settled, constants=constants)


def _no_option(key: str, valid: list[str]) -> str:
    if key in OURS:
        return f"onnx-bisect sets '{key}' of pulsar2 itself for each probe; leave it out."
    *path, last = key.split(".")
    if last in model_at(BuildOptions, path).model_fields:
        return f"'{key}' of pulsar2 is a structure; write it into the file that --option config=FILE names."
    guess = did_you_mean(key, valid)
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
        unknown_fields = [
            str(it["loc"][0]) for it in error.errors() if (it["type"], len(it["loc"])) == ("extra_forbidden", 1)
        ]
        for name, about in BuildConfig.model_fields.items():
            inner = message_of(about.annotation)
            if inner is not None and (field := next((it for it in unknown_fields if it in inner.model_fields), None)):
                inside = f"'{field}' is a field of {name}, and stands beside it; write it inside."
                raise OptionError(f"{what}: {inside}") from None
        raise OptionError(f"{what}: {complaint(error, BuildConfig, 'field', 'BuildConfig')}") from None
