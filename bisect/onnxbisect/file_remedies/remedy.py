"""A file remedy: one change of a whole model file that answers a finding of the preflight."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import onnx

from onnxbisect.file_remedies.file import File
from onnxbisect.preflight import Reader
from onnxbisect.rewrites import Exactness


@dataclass(frozen=True, kw_only=True)
class RemediedFile:
    """A changed copy of a file. `sentence` says what was changed, without a full stop.

    `exactness` is None if it is that of the remedy. `types` are those of new tensors. `structure` says that nodes were
    added whose tensors are still unknown.
    """

    proto: onnx.ModelProto
    sentence: str
    exactness: Exactness | None = None
    types: Mapping[str, onnx.TypeProto] | None = None
    structure: bool = False


#: Changes a file for a tool. Raises NotApplicable, with the reason, if there is nothing to change or it is impossible.
Apply = Callable[[File, Reader], RemediedFile]


@dataclass(frozen=True, kw_only=True)
class FileRemedy:
    """`answers` are the ids of the findings after which it is tried. `domain` are the values for which it holds, if not
    all.
    """

    id: str
    answers: tuple[str, ...]
    exactness: Exactness
    summary: str
    apply: Apply
    domain: str = ""


def file_remedy(
    id: str,  # noqa: A002 - what it is called everywhere else
    *,
    answers: str,
    exactness: Exactness = Exactness.EXACT,
    domain: str = "",
) -> Callable[[Apply], FileRemedy]:
    """Make a remedy of a function, whose docstring becomes the summary. `answers` are separated by spaces."""

    def made(apply: Apply) -> FileRemedy:
        return FileRemedy(
            id=id,
            answers=tuple(answers.split()),
            exactness=exactness,
            summary=" ".join((apply.__doc__ or "").split()),
            apply=apply,
            domain=domain,
        )

    return made
