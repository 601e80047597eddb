"""Reads reports; writes reports, overviews and tables of models in any form, and says the exit status of a result."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from onnx_bisect import Result
from onnxbisect.drawing import model_explorer
from onnxbisect.errors import OptionError
from onnxbisect.json_form import checked
from onnxbisect.report import parts
from onnxbisect.report.contents import FORMAT, Report
from onnxbisect.report.files import FILE_NAMES, FORMS, culprit_dirs, put
from onnxbisect.report.overview import Overview, html, markdown
from onnxbisect.report.overview import lines as overview_lines
from onnxbisect.report.reading import TypedCommand
from onnxbisect.report.terminal import lines
from onnxbisect.verdict import Status
from onnxbisect_backends.probing.prober import COMPILED, PROBE_NAME
from onnxbisect_cli.parameters import Format
from onnxbisect_cli.speech import say, spoken, terminal_width

_Cell = TypeVar("_Cell")

_OVERVIEWS: Mapping[Format, Callable[[Overview], str]] = {
    Format.JSON: lambda found: json.dumps(found, indent=1) + "\n",
    Format.MD: markdown,
    Format.HTML: html,
}


def render(document: Report, form: Format, *, files: str = "", typed: TypedCommand | None = None) -> str:
    """The report as text with a final newline; `files` is the folder of its files, empty if there is none.

    `typed` is how the user named model and target.
    """
    with spoken():
        if form is Format.TEXT:
            return "\n".join(lines(document, width=terminal_width(), files=files, typed=typed)) + "\n"
        text = FORMS[FILE_NAMES[form]](document)
        return text if text.endswith("\n") else text + "\n"


def relabelled(overview: Overview, labels: Sequence[str]) -> Overview:
    """The overview with its targets, in order, under other labels."""
    new = {target["label"]: label for target, label in zip(overview["targets"], labels, strict=True)}

    def cells(old: Mapping[str, _Cell]) -> dict[str, _Cell]:
        return {new[label]: cell for label, cell in old.items()}

    return {
        **overview,
        "targets": [{**target, "label": new[target["label"]]} for target in overview["targets"]],
        "culprits": [{**row, "cells": cells(row["cells"])} for row in overview["culprits"]],
        "ops": [{**row, "cells": cells(row["cells"])} for row in overview.get("ops", ())],
    }


def render_overview(overview: Overview, form: Format, *, files: str = "") -> str:
    """The overview as text with a final newline; `files` is the folder of its files, empty if there is none."""
    with spoken():
        if form is Format.TEXT:
            return "\n".join(overview_lines(overview, width=terminal_width(), files=files)) + "\n"
        return _OVERVIEWS[form](overview)


def write_overview(overview: Overview, out: Path) -> None:
    """Write the overview in every form, as files in a folder."""
    for form in _OVERVIEWS:
        put(out / f"overview.{form}", render_overview(overview, form).encode("utf-8", "backslashreplace"))


def render_parts(table: parts.PartsTable, form: Format, *, several: bool, files: str = "") -> str:
    """The table of several models as text with a final newline.

    `several` tells that there are several targets, whose reports are then in folders of their own. `files` is the
    folder of the files, empty if there is none.
    """
    with spoken():
        if form is Format.TEXT:
            return "\n".join(parts.lines(table, width=terminal_width(), files=files)) + "\n"

        def link(model: str, target: str, name: str) -> str:
            return f"{model}/{target}/{name}" if several else f"{model}/{name}"

        match form:
            case Format.MD:
                return parts.markdown(table, link)
            case Format.HTML:
                return parts.html(table, link)
        return json.dumps(table.to_json(), indent=1) + "\n"


def write_parts(table: parts.PartsTable, out: Path, *, several: bool) -> None:
    """Write the table in every form, as files in a folder."""
    for form in _OVERVIEWS:
        text = render_parts(table, form, several=several)
        put(out / f"parts.{form}", text.encode("utf-8", "backslashreplace"))


def read(path: Path) -> Report:
    """The document of a `report.json`, or of the one in a folder; OptionError if there is none."""
    file = path / "report.json" if path.is_dir() else path
    try:
        document = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise OptionError(f"{file} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise OptionError(f"{file} is no report.json: {error}.") from error
    found = document.get("format") if isinstance(document, dict) else None
    if found != FORMAT:
        raise OptionError(f"{file} is no report of this version: its format is {found!r}, not {FORMAT!r}.")
    try:
        return checked(document, Report)
    except ValueError as place:
        raise OptionError(f"{file} is damaged: '{place}' is missing or wrong. Run the diagnosis again.") from place


#: Exit statuses: the model compiles; culprits were found; no answer.
COMPILES, CULPRITS, UNRESOLVED = 0, 1, 3


def fresh_folder(out: Path) -> Path:
    """The folder for the compiler's output on the model, below the report's folder.

    Output of an earlier run is deleted if its report is there.
    """
    folder = out / COMPILED
    if (out / "report.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
    return folder


def exit_code(result: Result) -> int:
    """0 if the whole model compiles, 1 for culprits or a needed change of the file, 3 if there is no answer."""
    if result.verdict is Status.PASS:
        return COMPILES
    return CULPRITS if result.culprits or result.compiles_after else UNRESOLVED


def write_files(result: Result, out: Path) -> None:
    """Write the report in every form, and the culprits' files; raises OSError."""
    with spoken():
        result.write(out)
    for culprit, folder in zip(result.report["culprits"], culprit_dirs(result.report), strict=True):
        if culprit["repro"] is None:
            say(f"{folder} has no {PROBE_NAME}: the search ended before that file was seen to fail.")
    if (out / COMPILED).exists():
        say(f"{out / COMPILED} holds what the compiler made of the model.")
    for place in model_explorer.FILES:
        if not (out / place).exists():
            say(f"there is no {place}: the server has no picture of the model.")
