"""Parses labels in the query of URLs: `label=repo:net&label=branch:main`."""

import re
from collections.abc import Iterable
from typing import Annotated

from fastapi import Depends, Query

from onnxbisect.language import english
from onnxbisect_api.job_request import LABEL_NAME, ONE_LINE
from onnxbisect_api.problems import Problem

#: A label's name, separator and value; names contain neither separator.
_PARTS = re.compile(r"([^:=]*)([:=]?)(.*)", re.DOTALL)


def read(texts: Iterable[str]) -> dict[str, str]:
    """The labels in texts `name:value` or `name=value`; a 422 for any other text and for repeated names."""
    found = {}
    for text in texts:
        name, mark, value = _PARTS.fullmatch(text).groups()  # type: ignore[union-attr] # it matches any text
        if not mark or not value or not re.fullmatch(LABEL_NAME, name) or not re.fullmatch(ONE_LINE, value):
            raise Problem(422, english("A label is written as name:value, as in label=repo:net."))
        if name in found:
            raise Problem(422, english("The label '{name}' is asked for twice.", name=name))
        found[name] = value
    return found


def _labels(
    label: Annotated[
        list[str] | None,
        Query(max_length=8, description="name:value; several must all be there", examples=["repo:net"]),
    ] = None,
) -> dict[str, str]:
    return read(label or ())


#: A parameter of this type has the labels in the request's query.
TheLabels = Annotated[dict[str, str], Depends(_labels)]
