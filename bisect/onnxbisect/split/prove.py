"""Test that the pieces give the same outputs as the whole model, bit for bit."""

from itertools import chain
from pathlib import Path

from onnxbisect.model.model import Model
from onnxbisect.model.wording import brief, quoted
from onnxbisect.proof import edge_feeds, random_feeds
from onnxbisect.split.manifest import Proof

#: Numbers of samples: random inputs, and inputs with edge values.
_RANDOM, _EDGES = 3, 1


def prove(model: Model, folder: Path) -> Proof:
    """Run the model's own file and the pieces in `folder`, as `run.py` does, on the same inputs.

    Both run in onnxruntime without optimisation and without a time limit. If either cannot run, nothing is proven.
    """
    import onnxruntime  # here, since reading a manifest does without it

    from onnxbisect.split import runner

    runtime = f"onnxruntime {onnxruntime.__version__}, graph optimisation off"

    def unproven(reason: str, samples: int = 0) -> Proof:
        return Proof(proven=False, samples=samples, runtime=runtime, reason=reason)

    inputs = model.proto.graph.input
    samples = 0
    try:
        for feeds in chain(random_feeds(inputs, _RANDOM), edge_feeds(inputs, _EDGES)):
            expected = runner.run_on_host(model.path, {**feeds, **model.input_values})
            found = runner.run(folder, dict(feeds))
            samples += 1
            for name, value in found.items():
                if not runner.same(value, expected[name]):
                    return unproven(f"the pieces give another value of output {quoted(name)}", samples)
    except Exception as error:  # onnxruntime's exceptions share no base class but this
        return unproven(f"onnxruntime does not run it: {brief(str(error))}", samples)
    finally:
        runner.session.cache_clear()
    return Proof(proven=True, samples=samples, runtime=runtime)
