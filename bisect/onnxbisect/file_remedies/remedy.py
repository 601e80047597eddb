"""A file remedy: one change of a whole model file that answers a finding of the preflight."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import onnx

from onnxbisect.file_remedies.file import File
from onnxbisect.preflight import Reader
from onnxbisect.rewrites import Exactness


@dataclass(frozen=True, kw_only=True)
class Change:
    """A changed copy of a file. `sentence` says what was changed, without a full stop.

    `exactness` is None where it is that of the remedy. `types` are those of tensors that the change brought in.
    `structure` says that nodes were put in whose tensors nothing is known of yet.
    """

    proto: onnx.ModelProto
    sentence: str
    exactness: Exactness | None = None
    types: Mapping[str, onnx.TypeProto] | None = None
    structure: bool = False


#: Changes a file for a tool. Raises NotApplicable, with the reason, where nothing is to be done or it cannot be done.
Apply = Callable[[File, Reader], Change]


@dataclass(frozen=True, kw_only=True)
class FileRemedy:
    """`answers` are the ids of the findings after which it is tried. `domain` says for which values it holds, where
    its exactness is `domain`.
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
