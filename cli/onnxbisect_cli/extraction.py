"""`onnx-bisect extract`: a piece of a model, for its own sake."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from onnxbisect.cut import Cutter, cut_between, units_of_nodes, write
from onnxbisect.errors import OptionError
from onnxbisect.model import load
from onnxbisect.report.text import plural
from onnxbisect_backends.probing.forked import forked
from onnxbisect_cli.arguments import names


def extract(
    path: Path,
    output: Path,
    *,
    nodes: Sequence[str] | None,
    inputs: Sequence[str] | None,
    outputs: Sequence[str] | None,
    input_shapes: Mapping[str, Sequence[int]],
) -> None:
    """Cut and write; OptionError, CutError or ModelError where that cannot be."""
    by_tensors = inputs is not None or outputs is not None
    if (nodes is None) == (not by_tensors):
        raise OptionError("Say what to cut out: either --nodes, or --inputs and --outputs.")
    if output.exists() and path.exists() and output.samefile(path):
        raise OptionError(f"{output} is the model itself; write the piece elsewhere.")
    if not output.parent.is_dir():
        raise OptionError(f"{output.parent} is no folder; create it first.")
    model = load(path, input_shapes=input_shapes, bounded=forked)
    if nodes is not None:
        piece = Cutter(model).cut(units_of_nodes(model, names(nodes, {node.name for node in model.proto.graph.node})))
    else:
        tensors = set(model.types)
        piece = cut_between(model, names(inputs or (), tensors), names(outputs or (), tensors))
    write(piece, model, output)
    print(f"{output}: {plural(len(piece.proto.graph.node), 'node')}", file=sys.stderr)
