"""What the commands that prove a repair take alike: how far it may go, and on which samples it is proven."""

from pathlib import Path
from typing import Annotated

import typer

Samples = Annotated[
    Path | None,
    typer.Option(
        "--samples",
        metavar="PATH",
        help="A folder, zip or tar of samples of the inputs, .npz keyed by their names.",
    ),
]
SampleCount = Annotated[int, typer.Option("--count", min=1, help="Random inputs, and as many with edge values.")]
Absolute = Annotated[float, typer.Option("--absolute", min=0, help="Difference allowed to every number.")]
Relative = Annotated[
    float, typer.Option("--relative", min=0, help="And beside it, as a share of the output's largest magnitude.")
]
Allow = Annotated[
    str,
    typer.Option(
        "--allow",
        metavar="exact|rounding|approximate|domain",
        help="The least exact replacements that may be used ('onnx-bisect rules' shows what each promises).",
    ),
]
