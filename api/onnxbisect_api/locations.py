"""Validates the locations of a model's data files: untrusted relative paths, at which workers create files."""

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from onnxbisect.report.text import clip
from onnxbisect_api.problems import Problem

_SEGMENT_BYTES = 255
_LOCATION_BYTES = 1024
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\\\ufffd\ud800-\udfff]")


def demand_location(location: str) -> None:
    """Raise a 422 unless this is a valid location of a data file."""
    segments = location.split("/")
    plain = not _FORBIDDEN.search(location) and not {"", ".", ".."} & set(segments)
    short = len(location.encode()) <= _LOCATION_BYTES if plain else False
    if not short or max(len(segment.encode()) for segment in segments) > _SEGMENT_BYTES:
        raise Problem(
            422,
            f"A data file cannot lie at {clip(location, 100)!r}: its file name in the form must be its location as the "
            f"model has it, relative to the model, without '.', '..' and '\\'.",
        )


def demand_tree(locations: Iterable[str]) -> None:
    """Raise a 422 if one location is the folder of another one."""
    files = set(locations)
    for location in files:
        for folder in PurePosixPath(location).parents:
            if str(folder) in files:
                raise Problem(422, f"{clip(str(folder), 100)!r} cannot be a data file and a folder of data files.")
