"""The models given on a command line: files, the files of a folder, or those of a manifest."""

import re
import tomllib
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from onnx_bisect.job_documents import Part
from onnxbisect.errors import OptionError
from onnxbisect.input_value import InputValue
from onnxbisect.report.text import clip, slug
from onnxbisect_backends.options import reason

_Given = TypeVar("_Given")


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    model: str
    name: str | None = Field(default=None, pattern="^[A-Za-z0-9][A-Za-z0-9_-]*$")
    input_shapes: dict[str, list[int]] = {}
    input_values: dict[str, bool | int | float | list[bool | int | float]] = {}
    calibration: str | None = None


class _Manifest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    part: list[_Entry] = Field(min_length=1)


def parts_of(
    given: Sequence[Path],
    input_shapes: Mapping[str, Sequence[int]],
    input_values: Mapping[str, InputValue],
    calibration: Path | None,
) -> list[Part]:
    """The models in order, each once. A folder means its `.onnx` files, a `.toml` the models that it lists.

    Of several models, each gets those of `input_shapes` and `input_values` that are for its inputs. Raises OptionError
    for missing files, and ModelError for a file whose inputs cannot be read.
    """
    parts = [part for path in given for part in _found(path)]
    files = list(dict.fromkeys(part.model.resolve() for part in parts))
    if len(parts) == 1:
        part = parts[0]
        return [
            replace(
                part,
                input_shapes={**part.input_shapes, **input_shapes},
                input_values={**part.input_values, **input_values},
                calibration=calibration or part.calibration,
            )
        ]
    if len(files) < len(parts):
        raise OptionError("One model is named twice; name each of them once.")
    if missing := [part.model for part in parts if not part.model.is_file()]:
        raise OptionError(
            f"There is no file {clip(str(missing[0]), 200)}. What stands before '--' is a model, a folder of models or "
            "a manifest; a compiler's command stands after '--'."
        )
    if calibration is not None:
        raise OptionError(
            "--samples is for one model: of several, a manifest says which samples are for which "
            '(docs/parts.md), as calibration = "FOLDER".'
        )
    return _with_own(_labelled(parts), input_shapes, input_values)


def _found(path: Path) -> Iterator[Part]:
    if path.is_dir():
        # `part2` before `part10`
        models = sorted(
            (it for it in path.glob("*.onnx") if not it.is_dir()),
            key=lambda file: [(int(digits or 0), text) for text, digits in re.findall(r"(\D*)(\d{0,9})", file.name)],
        )
        if not models:
            raise OptionError(f"The folder {path} has no .onnx file.")
        yield from (Part(label=_label(model), model=model) for model in models)
    elif path.suffix == ".toml":
        for entry in _read(path).part:
            model = path.parent / entry.model
            yield Part(
                label=entry.name or _label(model),
                model=model,
                input_shapes=entry.input_shapes,
                input_values=entry.input_values,
                calibration=None if entry.calibration is None else path.parent / entry.calibration,
            )
    else:
        yield Part(label=_label(path), model=path)


def _read(path: Path) -> _Manifest:
    try:
        return _Manifest.model_validate(tomllib.loads(path.read_text("utf-8")))
    except OSError as error:
        raise OptionError(f"The manifest {path} cannot be read: {error.strerror or error}.") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise OptionError(
            f"The manifest {path} is wrong at '{clip(where, 100)}': {reason(first['msg'])}. It has a "
            'table [[part]] for each model, with model = "FILE.onnx" and, if need be, name, input_shapes, input_values '
            "and calibration."
        ) from None
    except ValueError as error:
        raise OptionError(f"The manifest {path} is no TOML: {error}.") from error


def _labelled(parts: Sequence[Part]) -> list[Part]:
    """The parts with labels; files of one name in several folders are labelled by folder."""
    labels = [part.label.casefold() for part in parts]
    found = [
        part
        if labels.count(part.label.casefold()) == 1
        else replace(part, label=f"{slug(part.model.absolute().parent.name)}-{part.label}")
        for part in parts
    ]
    labels = [part.label.casefold() for part in found]
    for part in found:
        if labels.count(part.label.casefold()) > 1:
            raise OptionError(
                f"Two models are called '{part.label}'; a manifest gives them names, as name = \"encoder\" "
                "(docs/parts.md)."
            )
    return found


def _with_own(
    parts: Sequence[Part], input_shapes: Mapping[str, Sequence[int]], input_values: Mapping[str, InputValue]
) -> list[Part]:
    """The parts, each with the shapes and values of its inputs."""
    if not input_shapes and not input_values:
        return list(parts)
    from onnxbisect.model.read import read

    inputs = {part.label: {value.name for value in read(part.model)[0].graph.input} for part in parts}
    for option, names in (("--input-shape", input_shapes), ("--input-value", input_values)):
        for name in names:
            if not any(name in own for own in inputs.values()):
                known = sorted(set().union(*inputs.values()))
                raise OptionError(
                    f"{option} names {clip(name, 100)!r}, which is no input of these models; their inputs are "
                    f"{clip(', '.join(known), 300)}."
                )
    return [
        replace(
            part,
            input_shapes={**part.input_shapes, **_of(inputs[part.label], input_shapes)},
            input_values={**part.input_values, **_of(inputs[part.label], input_values)},
        )
        for part in parts
    ]


def _label(model: Path) -> str:
    stem = model.stem
    return stem if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", stem) else slug(stem, 64)


def _of(inputs: Container[str], given: Mapping[str, _Given]) -> dict[str, _Given]:
    return {name: it for name, it in given.items() if name in inputs}
