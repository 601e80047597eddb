"""Write a report into a folder."""

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from onnxbisect.report.ci import gitlab, junit, sarif
from onnxbisect.report.contents import Report, culprit_dir_name
from onnxbisect.report.html import CulpritLinks, Link, Links, html
from onnxbisect.report.markdown import culprit_readme, markdown

#: File name and writer of every form.
FORMS: Mapping[str, Callable[[Report], str]] = {
    "report.json": lambda document: json.dumps(document, indent=1) + "\n",
    "report.md": markdown,
    "report.html": html,
    "junit.xml": junit,
    "report.sarif": sarif,
    "gitlab-codequality.json": gitlab,
}
#: The same file names, by what commands and the REST API call the forms.
FILE_NAMES = dict(zip(("json", "md", "html", "junit", "sarif", "gitlab"), FORMS, strict=True))
_CULPRIT_DIR = re.compile(r"\d{2,}-[A-Za-z0-9-]+")
_REPRODUCING = ("model.onnx", "model.data")
_LOG = "compiler.log"
#: What a compiler's adapter may put beside a culprit, and the folder with what these files refer to.
VENDOR_FILES = ("reproduce.sh", "config.json", "rknn_convert.py", "qnn_session.py")
VENDOR_FOLDER = "dataset"
_CULPRIT_FILES = (*_REPRODUCING, _LOG, "README.md")


def culprit_dirs(document: Report) -> tuple[str, ...]:
    """For each culprit its folder, relative to the report's: `culprits/01-Gather`."""
    return tuple(
        f"culprits/{culprit_dir_name(number, culprit['ops'])}" for number, culprit in enumerate(document["culprits"], 1)
    )


def write(
    document: Report, out_dir: Path, culprit_files: Mapping[str, Mapping[str, Path | bytes]] | None = None
) -> tuple[Path, ...]:
    """Writes every form, and for each culprit its README; returns the paths written.

    `culprit_files` gives by culprit id what else belongs into its folder, path to content or to a file that is copied
    (`model.onnx`, its external data, `compiler.log`, `VENDOR_FILES`, `dataset/…`); files that are already there stay.
    Each file appears whole or not at all. Folders of culprits that an earlier report left and this one has not are
    emptied of what a report puts there. Paths in the field `reproduce` become relative to the folder.
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    if "reproduce" in document:
        given, here = document["reproduce"], out_dir.absolute()
        if "folder" in given:
            start = Path(given["folder"])
            given = {"folder": _relative(start, here), "report": _relative(here, start)}
        else:
            given = {"backend": _relative(Path(given["backend"]), here)}
        document = {**document, "reproduce": given}
    written: list[Path] = []
    links: dict[int, CulpritLinks] = {}
    folders = culprit_dirs(document)
    _forget(out_dir / "culprits", {folder.rpartition("/")[2] for folder in folders})
    for number, (culprit, folder) in enumerate(zip(document["culprits"], folders, strict=True), 1):
        (out_dir / folder).mkdir(parents=True, exist_ok=True)
        for name, content in ((culprit_files or {}).get(culprit["id"], {})).items():
            above, _, last = name.rpartition("/")
            place = out_dir / folder / (VENDOR_FOLDER if above == VENDOR_FOLDER else "") / last
            place.parent.mkdir(exist_ok=True)
            written.append(put(place, content))
        readme = culprit_readme(document, number).encode("utf-8", "backslashreplace")
        written.append(put(out_dir / folder / "README.md", readme))
        there = (name for name in _REPRODUCING if (out_dir / folder / name).exists())
        log = f"{folder}/{_LOG}"
        links[number] = CulpritLinks(
            files=tuple(Link(text=name, href=f"{folder}/{name}") for name in there),
            log=log if (out_dir / log).exists() else "",
        )
    beside = Links(culprits=links)
    for name, form in FORMS.items():
        text = html(document, beside) if form is html else form(document)
        written.append(put(out_dir / name, text.encode("utf-8", "backslashreplace")))
    return tuple(written)


def forget_culprit(folder: Path) -> None:
    """Remove from a culprit's folder the files that a report writes there."""
    for name in (*_CULPRIT_FILES, *VENDOR_FILES):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / VENDOR_FOLDER, ignore_errors=True)


def put(path: Path, content: Path | bytes) -> Path:
    """One file, which appears whole or not at all; `content` may be a file to copy."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        if isinstance(content, Path):
            shutil.copyfile(content, partial)
        else:
            partial.write_bytes(content)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def _relative(path: Path, start: Path) -> str:
    """The path relative to `start`; absolute if there is none, as between drives."""
    try:
        return Path(os.path.relpath(path, start)).as_posix()
    except ValueError:
        return path.as_posix()


def _forget(culprits: Path, current: set[str]) -> None:
    if not culprits.is_dir():
        return
    for folder in culprits.iterdir():
        if folder.name in current or not _CULPRIT_DIR.fullmatch(folder.name) or folder.is_symlink():
            continue
        forget_culprit(folder)
        if not any(folder.iterdir()):
            folder.rmdir()
