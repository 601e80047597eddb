"""`onnx-bisect extract`: cuts a piece out of a model."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx_bisect
from onnx_bisect.models import load_model
from onnxbisect.errors import OptionError
from onnxbisect.input_value import InputValue
from onnxbisect.report.text import clean, plural
from onnxbisect_cli.arguments import names


def extract(
    path: Path,
    output: Path,
    *,
    nodes: Sequence[str] | None,
    scopes: Sequence[str] | None,
    inputs: Sequence[str] | None,
    outputs: Sequence[str] | None,
    input_shapes: Mapping[str, Sequence[int]],
    input_values: Mapping[str, InputValue],
) -> None:
    """Cut and write; raises OptionError, CutError or ModelError."""
    if sum([nodes is not None, scopes is not None, inputs is not None or outputs is not None]) != 1:
        raise OptionError("Say what to cut out: either --nodes, or --scope, or --inputs and --outputs.")
    loaded = load_model(path, input_shapes, input_values)
    known, tensors = {node.name for node in loaded.model.proto.graph.node}, set(loaded.model.types)
    count = onnx_bisect.extract(
        loaded,
        output,
        nodes=None if nodes is None else names(nodes, known),
        scopes=scopes,
        inputs=None if inputs is None else names(inputs, tensors),
        outputs=None if outputs is None else names(outputs, tensors),
    )
    print(clean(f"{output}: {plural(count, 'node')}"), file=sys.stderr)
