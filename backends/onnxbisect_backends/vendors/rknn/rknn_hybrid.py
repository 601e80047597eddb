"""A script for RKNN-Toolkit2's own Python: quantise a model but for some tensors, and run it on the simulator.

`rknn_hybrid.py MODEL SAMPLES ORDER`: SAMPLES is a folder of `N.npz` keyed by the model's inputs, ORDER is JSON, of
which `config` goes to `RKNN.config`. The first call quantises, and writes `tensors.json`, the names of the tensors that
are integers then, and `analysis/error_analysis.txt`, the toolkit's own table of errors, unless the tensors are large:
it writes them all as text. A call with `out`, the folder of `N.npz` to write, keyed by the place of each output, keeps
the tensors of `keep` in float16 and runs each sample. All calls of one model have the same working directory. Exit
status 0: done. 3: refused, with the reason in the last line. Anything else: the toolkit was not called.
"""

import ctypes
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

try:
    import numpy as np
    import onnx
    import ruamel.yaml
    from rknn.api import RKNN
except (ImportError, OSError) as error:  # a system library is missing, which says nothing about the model
    print(f"RKNN-Toolkit2 cannot be loaded: {error}", file=sys.stderr)
    sys.exit(2)

sys.path.append(str(Path(__file__).parent))
from rknn_convert import analyse, load, simulate, write_dataset  # type: ignore[import-not-found]

_REFUSED = 3
#: What it says of a name that it has listed itself.
_UNKNOWN = re.compile(r"Invalid operands name '(.*)' in custom_quantize_layers")
#: The kind of tensors that the toolkit does not quantise: inputs and outputs, which it gives integer twins.
_NOT_QUANTISED = "float32"


def main(model: str, samples: str, order: str) -> int:
    """Quantise if that is not done yet, and run the model if that is wanted; returns the exit status."""
    asked = json.loads(order)
    try:
        if not Path("tensors.json").is_file():
            _quantise(model, _samples(model, Path(samples)), asked["config"])
        if "out" in asked:
            out = Path(asked["out"])
            rknn = _chosen(model, asked["keep"], out.name, asked["config"])
            _done("init_runtime", rknn.init_runtime())
            simulate(rknn, _samples(model, Path(samples)), out)
            rknn.release()
    except Exception as error:  # the toolkit has already printed details
        said = [line for line in str(error).splitlines() if line.strip()]
        print(f"\n{said[-1].strip() if said else type(error).__name__}", file=sys.stderr)
        return _REFUSED
    return 0


def _samples(model: str, folder: Path) -> list[list[np.ndarray]]:
    """The arrays of each sample, in the order of the model's inputs."""
    graph = onnx.load(model, load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    names = [it.name for it in graph.input if it.name not in weights]
    return [load(str(folder / f"{number}.npz"), names) for number in range(len(list(folder.glob("*.npz"))))]


def _quantise(model: str, samples: list[list[np.ndarray]], config: dict[str, object]) -> None:
    dataset = write_dataset(samples)
    rknn = RKNN(verbose=False)
    _done("config", rknn.config(**config))
    _done("load_onnx", rknn.load_onnx(model=model))
    _done("hybrid_quantization_step1", rknn.hybrid_quantization_step1(dataset=dataset, proposal=False))
    rknn.release()
    found = _settings(model)["quantize_parameters"]
    integers = [name for name, it in found.items() if it["dtype"] != _NOT_QUANTISED]
    # it lists some that it then does not know, such as an operand of an Add that it has made
    while True:
        try:
            _chosen(model, integers, "every", config).release()
            break
        except ValueError as error:
            unknown = _UNKNOWN.search(str(error))
            if unknown is None or unknown[1] not in integers:
                raise
            integers.remove(unknown[1])
    rknn = _chosen(model, [], "none", config)
    analyse(rknn, model, samples[0], Path("analysis"))
    rknn.release()
    Path("tensors.json").write_text(json.dumps(integers))


def _settings(model: str) -> dict[str, dict[str, Any]]:
    """What the first step wrote of each tensor."""
    text = Path(f"{Path(model).stem}.quantization.cfg").read_text()
    settings: dict[str, dict[str, Any]] = ruamel.yaml.YAML(typ="safe").load(text)
    return settings


def _chosen(model: str, keep: list[str], name: str, config: dict[str, object]) -> RKNN:
    """The model with these tensors in float16."""
    stem = Path(model).stem
    settings = _settings(model)
    settings["custom_quantize_layers"] = dict.fromkeys(keep, "float16")
    chosen = f"{name}.cfg"
    with Path(chosen).open("w") as stream:
        ruamel.yaml.YAML(typ="safe").dump(settings, stream)
    rknn = RKNN(verbose=False)
    _done("config", rknn.config(**config))
    _done(
        "hybrid_quantization_step2",
        rknn.hybrid_quantization_step2(
            model_input=f"{stem}.model", data_input=f"{stem}.data", model_quantization_cfg=chosen
        ),
    )
    return rknn


def _done(step: str, returned: int) -> None:
    if returned != 0:
        raise ValueError(f"{step} returned {returned}.")


if __name__ == "__main__":
    status = main(*sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)
    # skip destructors of libraries, which could change the exit status
    os._exit(status)
