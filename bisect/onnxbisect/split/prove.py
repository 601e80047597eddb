"""Test that the pieces give the same outputs as the whole model, bit for bit."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any

import onnx

from onnxbisect.cut.write import write
from onnxbisect.errors import ModelError
from onnxbisect.fingerprint import brief
from onnxbisect.language import english, quoted
from onnxbisect.model.model import Model
from onnxbisect.model.opaque import around, recorded_tensors
from onnxbisect.model.read import original
from onnxbisect.model.runnable import Sample
from onnxbisect.model.session import Clock, Session, narrow_types
from onnxbisect.model.versions import loadable
from onnxbisect.proof import demand_recorded, edge_feeds, random_feeds, runnable_feeds
from onnxbisect.split.manifest import MANIFEST, SplitProof

#: Numbers of samples: random inputs, and inputs with edge values.
_RANDOM, _EDGES = 3, 1
#: Runs a file on inputs by their names.
_RunFile = Callable[[Path, dict[str, Any]], dict[str, Any]]
#: The name of a copy of the whole model.
_WHOLE = Path("whole.onnx")


def prove(model: Model, folder: Path, given: Sequence[Sample] = ()) -> SplitProof:
    """Run the model's own file and the pieces in `folder`, as `run.py` does, on the same inputs.

    These are the `given` samples, and made-up ones. Model and pieces run around opaque nodes
    (`onnxbisect.model.opaque`): a sample has what these make, and what they read has to be the same, too. Both run
    in onnxruntime without optimisation and without a time limit; a file that is too new for it runs at lower
    versions, as the pieces do. Of a model in float16 or bfloat16 each node is rounded to its type, as on an NPU:
    onnxruntime itself rounds where a piece ends, and not within. If either cannot run, nothing is proven.
    """
    import onnxruntime  # here, since reading a manifest does without it

    from onnxbisect.split import runner

    narrow = bool(narrow_types(model.proto))
    runtime = english("onnxruntime {version}, graph optimisation off", version=onnxruntime.__version__)
    if narrow:
        runtime = english(
            "onnxruntime {version}, graph optimisation off, each node rounded to its own type",
            version=onnxruntime.__version__,
        )
    run_file = _in_declared_types() if narrow else runner.run_on_host

    def unproven(reason: str, samples: int = 0) -> SplitProof:
        return SplitProof(proven=False, samples=samples, runtime=runtime, reason=reason)

    samples = 0
    try:
        inputs = around(model.proto, model.types.get).graph.input
        own = original(model)
        lower = around(loadable(own), model.types.get)
        whole = model.path if lower is own else folder / _WHOLE
        if lower is not own:  # it is too new for onnxruntime, or has opaque nodes
            write(lower, model, whole)
        made_up = [*random_feeds(inputs, max(_RANDOM, len(given)))]
        filled = ({**made_up[number], **sample} for number, sample in enumerate(given))
        generated = [*made_up[:_RANDOM], *edge_feeds(inputs, _EDGES)]
        for sample in chain(filled, runnable_feeds(model, lower, generated, needed=not given)):
            feeds = {value.name: sample[value.name] for value in inputs}
            expected = run_file(whole, {**feeds, **model.input_values})
            demand_recorded(sample, expected)
            around_custom = _AroundCustom(model, folder, run_file, feeds)
            found = {**runner.run(folder, feeds, by=around_custom), **around_custom.read}
            samples += 1
            for name, value in found.items():
                if not runner.same(value, {**feeds, **expected}[name]):
                    return unproven(f"the pieces give another value of {quoted(name)}", samples)
    except ModelError as error:
        return unproven(str(error), samples)
    except Exception as error:  # onnxruntime's exceptions share no base class but this
        return unproven(f"onnxruntime does not run it: {brief(str(error))}", samples)
    finally:
        runner.session.cache_clear()
        for file in folder.glob(f"{_WHOLE.stem}.*"):
            file.unlink()
    return SplitProof(proven=True, samples=samples, runtime=runtime)


class _AroundCustom:
    """Runs pieces without their opaque nodes, whose outputs are those of the sample; `read` is what they were given."""

    def __init__(self, model: Model, folder: Path, run_file: _RunFile, sample: Mapping[str, Any]) -> None:
        self._model, self._run_file, self._sample = model, run_file, sample
        self._names = {
            piece["file"]: {it["name"]: it["tensor"] for it in (*piece["inputs"], *piece["outputs"])}
            for piece in json.loads((folder / MANIFEST).read_text("utf-8"))["pieces"]
        }
        self.read: dict[str, Any] = {}

    def __call__(self, file: Path, inputs: dict[str, Any]) -> dict[str, Any]:
        proto, names = onnx.load(file, load_external_data=False), self._names[file.name]
        made, read = recorded_tensors(proto, drawn=True)
        if not made:
            return self._run_file(file, inputs)
        fed = {**inputs, **{name: self._sample[names.get(name, name)] for name in made}}
        rest = around(proto, lambda name: self._model.types.get(names.get(name, name)))
        there = dict(fed)
        if rest.graph.node:
            beside = file.with_name(f"{_WHOLE.stem}.{file.name}")
            onnx.save(rest, beside)
            there |= self._run_file(beside, {value.name: fed[value.name] for value in rest.graph.input})
        self.read |= {names.get(name, name): there[name] for name in read}
        return there


def _in_declared_types() -> Callable[[Path, dict[str, Any]], dict[str, Any]]:
    """Runs files like `runner.run_on_host`, but for rounding after each node."""

    @cache
    def session(file: Path) -> Session:
        return Session(onnx.load(file, load_external_data=False), file.parent)

    def run(file: Path, inputs: dict[str, Any]) -> dict[str, Any]:
        names = [*session(file).outputs]
        return dict(zip(names, session(file).run(names, inputs, Clock(inf)), strict=True))

    return run
