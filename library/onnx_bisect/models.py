"""`inspect` and `extract`: inspect a model and cut pieces out of it, without compiling."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path

from onnx_bisect.backend_choice import BackendChoice, chosen_backend
from onnx_bisect.steps.known_target import inspect_for, known_target
from onnxbisect import preflight
from onnxbisect.cut import cut_between, cut_modules, units_of_nodes, write
from onnxbisect.errors import OptionError
from onnxbisect.input_value import InputValues
from onnxbisect.model.load import ReadSample
from onnxbisect_backends import contract
from onnxbisect_backends.probing.loaded_model import LoadedModel

#: The path of an ONNX file, or a model that was read already, which several calls may share.
Source = str | PathLike[str] | LoadedModel

__all__ = ["InputValues", "Shapes", "Source", "extract", "inspect", "load_model"]

#: The dimensions of each input, by its name.
Shapes = Mapping[str, Sequence[int]]


def load_model(
    model: Source,
    input_shapes: Shapes | None = None,
    input_values: InputValues | None = None,
    sample: ReadSample | None = None,
) -> LoadedModel:
    """Read the model if `model` is a path. `input_shapes` then binds dynamic dimensions, and `input_values` replaces
    inputs by constants; `sample` has values on which it runs. Raises ModelError.
    """
    if isinstance(model, LoadedModel):
        return model
    return LoadedModel(Path(model), input_shapes or {}, input_values=input_values, sample=sample)


def inspect(
    model: Source,
    *,
    backend: BackendChoice | None = None,
    options: Mapping[str, object] | None = None,
    input_shapes: Shapes | None = None,
    input_values: InputValues | None = None,
) -> preflight.Inspection:
    """The ops and variants of a model, and known reasons for which `backend`, or any compiler, may refuse it.

    Compiles nothing. A backend that cannot be used here and has no recorded profile gets the general findings, with a
    note. Raises ModelError and OptionError.
    """
    if backend is None:
        return preflight.inspect(load_model(model, input_shapes, input_values).model)
    chosen = chosen_backend(backend, options or {})
    loaded = load_model(model, {**contract.input_shapes(chosen), **(input_shapes or {})}, input_values)
    return inspect_for(loaded.model, known_target(chosen))


def extract(
    model: Source,
    output: str | PathLike[str],
    *,
    nodes: Sequence[str] | None = None,
    scopes: Sequence[str] | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    input_shapes: Shapes | None = None,
    input_values: InputValues | None = None,
) -> int:
    """Write nodes, modules (`scopes`), or all nodes between two sets of tensors, as a model of their own.

    Nodes that do not depend on the model's inputs are folded into constants, except those that `nodes` names.

    Returns the number of nodes written. Raises OptionError, CutError or ModelError.
    """
    path = Path(output)
    if sum([nodes is not None, scopes is not None, inputs is not None or outputs is not None]) != 1:
        raise OptionError("Say what to cut out: either nodes, or scopes, or inputs and outputs.")
    if not path.parent.is_dir():
        raise OptionError(f"{path.parent} is no folder; create it first.")
    loaded = load_model(model, input_shapes, input_values)
    if path.exists() and path.samefile(loaded.model.path):
        raise OptionError(f"{path} is the model itself; write the piece elsewhere.")
    if nodes is not None:
        piece = loaded.cutter.cut(units_of_nodes(loaded.model, nodes))
    elif scopes is not None:
        piece = cut_modules(loaded.model, scopes)
    else:
        piece = cut_between(loaded.model, inputs or (), outputs or ())
    write(piece, loaded.model, path)
    return len(piece.proto.graph.node)
