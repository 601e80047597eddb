"""Test that the pieces give the same outputs as the whole model, bit for bit."""

from collections.abc import Callable
from functools import cache
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any

import onnx

from onnxbisect.cut.write import write
from onnxbisect.language import english
from onnxbisect.model.declared_types import has_narrow_types
from onnxbisect.model.loadable import loadable
from onnxbisect.model.model import Model
from onnxbisect.model.read import original
from onnxbisect.model.session import Clock, Session
from onnxbisect.model.wording import brief, quoted
from onnxbisect.proof import edge_feeds, random_feeds
from onnxbisect.split.manifest import SplitProof

#: Numbers of samples: random inputs, and inputs with edge values.
_RANDOM, _EDGES = 3, 1
#: The name of a copy of the whole model.
_WHOLE = Path("whole.onnx")


def prove(model: Model, folder: Path) -> SplitProof:
    """Run the model's own file and the pieces in `folder`, as `run.py` does, on the same inputs.

    Both run in onnxruntime without optimisation and without a time limit; a file that is too new for it runs at lower
    versions, as the pieces do. Of a model in float16 or bfloat16 each node is rounded to its type, as on an NPU:
    onnxruntime itself rounds where a piece ends, and not within. If either cannot run, nothing is proven.
    """
    import onnxruntime  # here, since reading a manifest does without it

    from onnxbisect.split import runner

    narrow = has_narrow_types(model.proto)
    runtime = english("onnxruntime {version}, graph optimisation off", version=onnxruntime.__version__)
    runtime += ", each node rounded to its own type" if narrow else ""
    run_file = _in_declared_types() if narrow else runner.run_on_host

    def unproven(reason: str, samples: int = 0) -> SplitProof:
        return SplitProof(proven=False, samples=samples, runtime=runtime, reason=reason)

    inputs = model.proto.graph.input
    samples = 0
    try:
        whole = _loadable_file(model, folder)
        for feeds in chain(random_feeds(inputs, _RANDOM), edge_feeds(inputs, _EDGES)):
            expected = run_file(whole, {**feeds, **model.input_values})
            found = runner.run(folder, dict(feeds), by=run_file)
            samples += 1
            for name, value in found.items():
                if not runner.same(value, expected[name]):
                    return unproven(f"the pieces give another value of output {quoted(name)}", samples)
    except Exception as error:  # onnxruntime's exceptions share no base class but this
        return unproven(f"onnxruntime does not run it: {brief(str(error))}", samples)
    finally:
        runner.session.cache_clear()
        for file in folder.glob(f"{_WHOLE.stem}.*"):
            file.unlink()
    return SplitProof(proven=True, samples=samples, runtime=runtime)


def _in_declared_types() -> Callable[[Path, dict[str, Any]], dict[str, Any]]:
    """Runs files like `runner.run_on_host`, but for rounding after each node."""

    @cache
    def session(file: Path) -> Session:
        return Session(onnx.load(file, load_external_data=False), file.parent)

    def run(file: Path, inputs: dict[str, Any]) -> dict[str, Any]:
        names = [*session(file).outputs]
        return dict(zip(names, session(file).run(names, inputs, Clock(inf)), strict=True))

    return run


def _loadable_file(model: Model, folder: Path) -> Path:
    """The model's own file, or where onnxruntime is too old for it a copy in `folder` that it loads."""
    own = original(model)
    lower = loadable(own)
    if lower is own:
        return model.path
    write(lower, model, folder / _WHOLE)
    return folder / _WHOLE
