"""Loads a model file once for all targets, writes its pieces, and checks those that fail.

If onnx.checker or onnxruntime refuses a failing probe and accepts the whole model, the cut broke the probe, and the
compiler's answer is no evidence. What they also refuse in the whole model (custom ops, unsupported features) is
ignored.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path

from onnxbisect.cut import Cutter, write
from onnxbisect.errors import ModelError
from onnxbisect.fingerprint import brief
from onnxbisect.input_value import InputValues
from onnxbisect.model import Established, Model, load
from onnxbisect.model.load import ReadSample
from onnxbisect.model.model import Bounded
from onnxbisect.model.session import Session
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.unitset import UnitSet, size
from onnxbisect_backends.contract import Backend, Description
from onnxbisect_backends.probing.forked import forked
from onnxbisect_backends.probing.prober import WriteProbe

#: Most nodes of a probe that is loaded into onnxruntime; larger ones take too long.
SMALL = 64


class Validity:
    """Both checks for pieces of one model; loads the whole model only when a piece is refused."""

    def __init__(self, model: Path, everything: UnitSet) -> None:
        self._everything = everything
        #: Whether a check refuses nothing of the whole model; each is made only when a piece is refused.
        self._takes_whole = cache(lambda refusal_of: refusal_of(model) is None)

    def objection(self, units: UnitSet, probe: Path) -> str | None:
        """Why the probe file is invalid, as a sentence; None if it is valid."""
        if units == self._everything:
            return None
        refusal = checker_refusal(probe)
        if refusal is not None and self._takes_whole(checker_refusal):
            if end := _end_of_unknown_rank(probe):
                return f"onnx.checker refuses this cut for its {end}, whose rank is not known"
            return f"onnx.checker refuses this cut, though not the whole model: {refusal}"
        if size(units) <= SMALL:
            refusal = runtime_refusal(probe)
            if refusal is not None and self._takes_whole(runtime_refusal):
                return f"onnxruntime refuses this cut, though not the whole model: {refusal}"
        return None


def checker_refusal(path: Path) -> str | None:
    """onnx.checker's error for the file, None if there is none. By path, so that external data may be large."""
    import onnx

    try:
        onnx.checker.check_model(str(path))
    except Exception as error:  # it raises its own errors, protobuf's and RuntimeError
        return brief(str(error)) or type(error).__name__
    return None


def _end_of_unknown_rank(path: Path) -> str:
    """The first input or output of the file that declares no shape; empty where each does."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    ends = [*(("input", it) for it in graph.input), *(("output", it) for it in graph.output)]
    tensors = ((kind, it.name, it.type.tensor_type) for kind, it in ends if it.type.HasField("tensor_type"))
    return next((f"{kind} '{name}'" for kind, name, tensor in tensors if not tensor.HasField("shape")), "")


def runtime_refusal(path: Path) -> str | None:
    """onnxruntime's error when it loads the file on the CPU without optimisation; None if there is none."""
    import onnx

    try:
        Session(onnx.load(path, load_external_data=False), path.parent)
    except Exception as error:  # its exception classes are not public
        return brief(str(error)) or type(error).__name__
    return None


class LoadedModel:
    """A model, loaded once, with the cutter and the validity checks that all its targets share."""

    def __init__(
        self,
        path: Path,
        input_shapes: Mapping[str, Sequence[int]],
        *,
        input_values: InputValues | None = None,
        most_nodes: int | None = None,
        established: Established | None = None,
        sample: ReadSample | None = None,
        bounded: Bounded = forked,
        doubted: Collection[str] = (),
    ) -> None:
        """The arguments are those of `load`, and names of nodes that a search leaves out first (`Universe.doubted`).

        Raises ModelError, also for a model of more nodes than `most_nodes`.
        """
        self.input_shapes, self.sample, self.doubted = input_shapes, sample, doubted
        self.model = load(
            path,
            input_shapes=input_shapes,
            input_values=input_values,
            most_nodes=most_nodes,
            established=established,
            sample=sample,
            bounded=bounded,
        )
        self.cutter = Cutter(self.model)
        self.validity = Validity(self.model.path, self.model.universe.everything)

    @property
    def shapes_without_values(self) -> dict[str, Sequence[int]]:
        """The shapes of the inputs that are left, for files written from this model, in which values are constants."""
        return {name: dims for name, dims in self.input_shapes.items() if name not in self.model.input_values}

    @property
    def file_key(self) -> str:
        """The key of the user's file: of its content and of what is bound, whatever the structure of the model."""
        bound = sorted((name, [int(dim) for dim in dims]) for name, dims in self.input_shapes.items())
        return sha256(json.dumps(["file", self.model.identity, bound]).encode()).hexdigest()


def demand_static(model: Model, backend: Backend, description: Description) -> None:
    """Raise ModelError if the target needs static shapes and an input of the model has unbound dimensions."""
    if description.dynamic_shapes or not model.unbound:
        return
    name = model.unbound[0]
    shape = next(value.type.tensor_type.shape for value in model.proto.graph.input if value.name == name)
    symbols = [str(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or "?" for dim in shape.dim]
    # an image of one pixel would be no example
    sizes = ["1"] * (len(symbols) - 2) + ["224", "224"] if len(symbols) == 4 else ["1"] * len(symbols)
    dims = [symbol if symbol.isdecimal() else size for symbol, size in zip(symbols, sizes, strict=True)]
    others = f" (so have {len(model.unbound) - 1} other inputs)" if len(model.unbound) > 1 else ""
    raise ModelError(
        f"Input '{name}' has dynamic dimensions, [{', '.join(symbols)}]{others}, and {backend.name} needs static ones; "
        f"bind them, for example with --input-shape {name}={','.join(dims)}."
    )


def probe_writer(loaded: LoadedModel, probe_format: ProbeFormat) -> WriteProbe:
    """A function that writes pieces of the model in a target's probe format."""

    def write_probe(units: UnitSet, path: Path) -> Mapping[str, str]:
        piece = loaded.cutter.cut(units, probe_format)
        write(piece, loaded.model, path)
        return piece.renamed

    return write_probe
