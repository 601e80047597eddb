"""Labels in addresses: `label=repo:net&label=branch:main`."""

import re
from typing import Annotated

from fastapi import Depends, Query

from onnxbisect_api.job_request import LABEL_NAME, ONE_LINE
from onnxbisect_api.problems import Problem


def _labels(
    label: Annotated[
        list[str] | None,
        Query(max_length=8, description="name:value; several must all be there", examples=["repo:net"]),
    ] = None,
) -> dict[str, str]:
    found = {}
    for text in label or ():
        name, colon, value = text.partition(":")
        if not colon or not value or not re.fullmatch(LABEL_NAME, name) or not re.fullmatch(ONE_LINE, value):
            raise Problem(422, "A label is written as name:value, as in label=repo:net.")
        if name in found:
            raise Problem(422, f"The label '{name}' is asked for twice.")
        found[name] = value
    return found


#: A parameter of this type are the labels that are asked for.
TheLabels = Annotated[dict[str, str], Depends(_labels)]
