"""Values of a model's tensors for samples of its inputs, as input data for the pieces cut from it."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper

from onnxbisect.language import english
from onnxbisect.model.binding import is_unbound
from onnxbisect.model.compute import Computation, Inputs, Values
from onnxbisect.model.deciding import compared_values
from onnxbisect.model.feeds import Fill, Sample, feed
from onnxbisect.model.footprint import dims_of, size_of
from onnxbisect.model.load import MEMORY_LIMIT
from onnxbisect.model.model import Model
from onnxbisect.model.runnable import CARRIERS, unmarked
from onnxbisect.model.scopes import is_constant, qualified
from onnxbisect.model.wording import brief, some

__all__ = ["KEPT_BYTES", "Sample", "TensorValues"]

#: Most bytes of values kept between calls, all samples together.
KEPT_BYTES = 512 << 20


class TensorValues:
    """Runs a model on samples of its inputs to compute requested tensors; keeps some results between calls.

    `given` are the samples; without any, `count` are generated. Values have the dtype of their tensor, or a wider one
    where numpy lacks it (`runnable.CARRIERS`). Values that onnxruntime cannot compute (custom ops, too little memory)
    are generated, and `notes` says so. The first call also computes tensors that later calls may request, small ones
    first, up to `kept_bytes`. Not thread-safe.
    """

    def __init__(
        self,
        model: Model,
        *,
        given: Sequence[Sample] = (),
        count: int = 1,
        kept_bytes: int = KEPT_BYTES,
        memory_limit: int = MEMORY_LIMIT,
    ) -> None:
        self._model = model
        graph = model.proto.graph
        self._inputs = Inputs(graph, given, count, compared_values(graph, model.known))
        self._computation = Computation(model, self._inputs, memory_limit)
        self._memory_limit = memory_limit
        #: The model's tensors. Probes may have more inputs, which were added for the target.
        self._own = {name for node in model.proto.graph.node for name in (*node.input, *node.output)}
        self._left = kept_bytes
        self._kept: dict[str, Values] = {}
        self._made_up: dict[str, None] = {}
        self._too_large: dict[str, None] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about values that are generated instead of computed by the model."""
        notes = []
        if self._made_up:
            notes.append(
                english(
                    "Input samples of cuts are made up for {names}{reason}.",
                    names=some(list(self._made_up)),
                    reason=self._reason(),
                )
            )
        if self._too_large:
            notes.append(
                english(
                    "Input samples of cuts are made up for {names}: running the model up to there would "
                    "take more than the limit of {limit} MB.",
                    names=some(list(self._too_large)),
                    limit=self._memory_limit >> 20,
                )
            )
        return tuple(notes)

    def samples(self, tensors: Sequence[onnx.ValueInfoProto]) -> Iterator[dict[str, np.ndarray]]:
        """Yield for each sample the values of these tensors by name, in their declared shapes.

        Omits values that are not tensors, and tensors with neither a value nor a bound shape.
        """
        fresh = self._compute([value.name for value in tensors if self._is_wanted(value.name)])
        for number in range(self._inputs.count):
            sample = {}
            for value in tensors:
                array = self._value(value.name, number, fresh)
                if array is None or not _fits(array, value.type):
                    array = self._invent(value, number)
                if array is not None:
                    sample[value.name] = array
            yield sample

    def _reason(self) -> str:
        graph, refused = self._model.proto.graph, self._computation.refused
        if not refused:
            return ""
        ops = dict.fromkeys(qualified(graph.node[index]) for index in refused)
        words = next((words for words in refused.values() if words), "")
        if not words:
            return english(": onnxruntime does not run {names}", names=some(list(ops)))
        said = brief(unmarked(words, graph))
        return english(": onnxruntime does not run {names} ({said})", names=some(list(ops)), said=said)

    def _is_wanted(self, name: str) -> bool:
        """Whether the tensor must and can be computed by a run."""
        kind = self._model.types.get(name)
        if kind is not None and not kind.HasField("tensor_type"):
            return False
        return not any(name in there for there in (self._inputs.values, self._model.known, self._kept))

    def _value(self, name: str, number: int, fresh: Mapping[str, Values]) -> np.ndarray | None:
        if name in self._inputs.values:
            return self._inputs.of(name, number)
        if name in self._model.known:
            return self._model.known[name]
        values = self._kept.get(name) or fresh.get(name)
        return values[number] if values else None

    def _invent(self, value: onnx.ValueInfoProto, number: int) -> np.ndarray | None:
        if not value.type.HasField("tensor_type") or is_unbound(value.type):
            return None
        if value.name not in self._too_large and value.name in self._own:
            self._made_up[value.name] = None
        return feed(value, Fill.RANDOM, number)

    def _compute(self, names: Sequence[str]) -> dict[str, Values]:
        """The values of these tensors, as far as the model runs; keeps some within the limit."""
        if not names:
            return {}
        for wanted in (list(dict.fromkeys([*names, *self._worth_keeping()])), names):
            found = self._computation.run(wanted, self._kept)
            if found is not None:
                self._keep(found)
                return found
        self._too_large.update(dict.fromkeys(names))
        return {}

    def _worth_keeping(self) -> list[str]:
        """Tensors at which cuts may be made, smallest first, up to the limit for kept values."""
        sizes = []
        for node in self._model.proto.graph.node:
            for name in () if is_constant(node) else filter(None, node.output):
                size = size_of(self._model.types.get(name))
                if size is not None and self._is_wanted(name):
                    sizes.append((size * self._inputs.count, name))
        left, chosen = self._left, []
        for size, name in sorted(sizes):
            if size > left:
                break
            left -= size
            chosen.append(name)
        return chosen

    def _keep(self, found: Mapping[str, Values]) -> None:
        for name, arrays in found.items():
            size = sum(array.nbytes for array in arrays)
            if size <= self._left:
                self._left -= size
                self._kept[name] = arrays


def _fits(array: np.ndarray, kind: onnx.TypeProto) -> bool:
    """Whether the array matches the declared dtype and the declared dimensions of a tensor."""
    dtype = kind.tensor_type.elem_type
    if not kind.HasField("tensor_type"):
        return False
    numpy_dtype = np.dtype(helper.tensor_dtype_to_np_dtype(CARRIERS.get(dtype, dtype))) if dtype else array.dtype
    return array.dtype == numpy_dtype and (is_unbound(kind) or array.shape == dims_of(kind))
