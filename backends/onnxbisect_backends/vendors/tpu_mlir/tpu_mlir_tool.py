"""A script for TPU-MLIR's own Python: run one of the tool's scripts, and judge its comparisons of numbers.

`tpu_mlir_tool.py FILE ARGUMENTS`. A comparison runs in this process: the tool starts a Python for each, and in it a
process for each tensor, which takes longer than to convert a small model.
"""

import gc
import json
import multiprocessing
import multiprocessing.dummy
import os
import re
import runpy
import sys
import tempfile
import traceback
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: The prefix of this script's lines in the log.
_MARK = "[onnx-bisect]"

#: The variables with the names of the model's outputs, and the sample that is compared where numbers on the first one
#: are wrong.
_OUTPUTS, _ANOTHER = "ONNXBISECT_OUTPUTS", "ONNXBISECT_ANOTHER_SAMPLE"
#: The package that the tool's scripts import its modules from; older versions such as 1.8 have none.
_PACKAGE = "tpu_mlir.python."
#: Its functions that run a model.
_IN_ONNXRUNTIME, _CONVERTED = "onnx_inference", "mlir_inference"
#: Differences that are too small to count: absolute, and of the largest magnitude of the tensor.
_ABSOLUTE, _OF_RANGE = 1e-6, 1e-5
#: Tensors that the tool found to be wrong, and right.
_FAILED = re.compile(r"^[\r ]*\[(\S.*?) *\] +[A-Z_]+ +\[FAILED\]$", re.MULTILINE)
_PASSED = re.compile(r"^[\r ]*\[(\S.*?) *\] +[A-Z_]+ +\[PASSED\]$", re.MULTILINE)


def main(script: str, words: "list[str]") -> None:
    """Run the script with these arguments; it ends the process as it does by itself."""
    sys.excepthook = _say_where
    # the tool creates sockets there, whose paths must be short; "." stays relative
    os.environ["TMPDIR"] = "."
    sys.argv = [script, *words]
    # the modules beside this script must not shadow the tool's
    sys.path[0] = str(Path(script).parent)
    package = _PACKAGE if f"from {_PACKAGE}utils" in Path(script).read_text("utf-8") else ""
    with suppress(ImportError, AttributeError):  # of a version that has others
        runs = Runs(import_module(f"{package}tools.model_runner"))
        shell: Any = import_module(f"{package}utils.mlir_shell")
        shell._os_system = in_this_process(shell._os_system, Path(script).parent)
        shell.f32_blobs_compare = comparing(shell.f32_blobs_compare, runs.again)
    runpy.run_path(script, run_name="__main__")


class Runs:
    """How the tool ran the model in onnxruntime and converted, to run it so on another sample."""

    def __init__(self, runner: Any) -> None:
        self._inputs: dict[str, Any] = {}
        self._runs: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {}
        for name in (_IN_ONNXRUNTIME, _CONVERTED):
            setattr(runner, name, self._noted(name, getattr(runner, name)))

    def _noted(self, name: str, function: "Callable[..., dict[str, Any]]") -> "Callable[..., dict[str, Any]]":

        def run(inputs: "dict[str, Any]", *rest: Any, **named: Any) -> "dict[str, Any]":
            self._inputs = inputs
            self._runs[name] = lambda others: function(others, *rest, **named)
            return function(inputs, *rest, **named)

        return run

    def again(self, target: str, reference: str) -> bool:
        """Write the numbers on the other sample, if there is one; the converted model is the same."""
        import numpy

        sample = os.environ.pop(_ANOTHER, "")
        if not sample or len(self._runs) < 2:
            return False
        print(f"{_MARK} other numbers on made-up input: comparing on another sample", flush=True)
        # without them nothing was compared (tpu_mlir_steps.py)
        Path(target).unlink(missing_ok=True)
        with numpy.load(sample) as stored:
            names = {name: name if name in stored.files else stored.files[0] for name in self._inputs}
            # the tool may have repeated a sample
            inputs: dict[str, Any] = {
                name: numpy.broadcast_to(stored[names[name]], it.shape) for name, it in self._inputs.items()
            }
        numpy.savez("probe_in_f32.npz", **inputs)
        numpy.savez(reference, **self._runs[_IN_ONNXRUNTIME](inputs))
        numpy.savez(target, **self._runs[_CONVERTED](inputs))
        return True


def in_this_process(system: "Callable[..., None]", tools: Path) -> "Callable[..., None]":
    """The tool's function that runs a command, which runs `npz_tool.py` here, with threads for its processes."""

    def run(command: "list[str]", *rest: Any, **named: Any) -> None:
        script = tools / "npz_tool.py"
        if command[0] != script.name or not script.exists():
            return system(command, *rest, **named)
        words = " ".join(command)
        print(f"[Running]: {words}", flush=True)
        before = sys.argv, multiprocessing.Process, multiprocessing.Manager
        sys.argv = words.split()
        threads: Any = multiprocessing.dummy
        multiprocessing.Process, multiprocessing.Manager = threads.Process, threads.Manager  # type: ignore[misc]
        status: object = 0
        gc.freeze()  # it collects garbage after each few tensors
        try:
            runpy.run_path(str(script), run_name="__main__")
        except SystemExit as ended:
            status = ended.code
        except Exception:
            traceback.print_exc()
            status = 1
        finally:
            sys.argv, multiprocessing.Process, multiprocessing.Manager = before  # type: ignore[misc]
        if status:
            raise RuntimeError(f"[!Error]: {words}")
        print(f"[Success]: {words}", flush=True)
        return None

    return run


def comparing(compare: "Callable[..., None]", again: "Callable[[str, str], bool]") -> "Callable[..., None]":
    """The tool's comparison, whose relative measures reject tiny differences of tiny numbers, and inner tensors.

    What it rejects stands only if an output of the model is among it and differs by more than `_is_close` allows.
    Wrong numbers on one made-up sample may be chance: where there is another one, `again` writes the numbers on that.
    """

    def compared(target: str, reference: str, *rest: Any, **named: Any) -> None:
        try:
            _compared(compare, target, reference, *rest, **named)
        except Exception:
            if not again(target, reference):
                raise
            _compared(compare, target, reference, *rest, **named)

    return compared


def _compared(compare: "Callable[..., None]", target: str, reference: str, *rest: Any, **named: Any) -> None:
    said: list[str] = []
    try:
        with _captured() as said:
            compare(target, reference, *rest, **named)
    except Exception:
        rejected = _FAILED.findall(said[0])
        apart = _apart(target, reference, rejected)
        for name, (largest, reach) in apart.items():
            tiny = ", too small to count" if _is_close(largest, reach) else ""
            print(f"{_MARK} [{name}] differs by at most {largest:.3g}, in numbers up to {reach:.3g}{tiny}")
        wrong = [name for name in rejected if name not in apart or not _is_close(*apart[name])]
        outputs = set(json.loads(os.environ.get(_OUTPUTS, "[]")))
        passed = {name.rpartition("_")[0] for name in (*_PASSED.findall(said[0]), *(set(rejected) - set(wrong)))}
        if not rejected or (wrong and not (outputs and outputs <= passed)):
            raise
        why = "inner tensors differ, the model's outputs do not" if wrong else "all of it is too small to count"
        print(f"{_MARK} accepted: {why}", flush=True)


@contextmanager
def _captured() -> "Iterator[list[str]]":
    """Collect what this process and its children print, and print it afterwards."""
    said: list[str] = []
    sys.stdout.flush()
    before = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            yield said
        finally:
            sys.stdout.flush()
            os.dup2(before, 1)
            os.close(before)
            file.seek(0)
            said.append(file.read().decode("utf-8", "backslashreplace"))
            print(said[0], flush=True)


def _apart(target: str, reference: str, names: "list[str]") -> "dict[str, tuple[float, float]]":
    """The largest difference of each tensor, infinite where one is not finite alone, and its largest magnitude."""
    import numpy

    found = {}
    with numpy.load(target) as new, numpy.load(reference) as old:
        for name in names:
            if name not in new.files or name not in old.files or new[name].size != old[name].size:
                continue
            one, other = (array[name].astype(numpy.float64).ravel() for array in (new, old))
            same = (one == other) | (numpy.isnan(one) & numpy.isnan(other))
            finite = numpy.isfinite(one) & numpy.isfinite(other)
            with numpy.errstate(invalid="ignore"):
                gap = numpy.where(same, 0.0, numpy.where(finite, numpy.abs(one - other), numpy.inf))
            reach = numpy.abs(other[numpy.isfinite(other)]).max(initial=0.0)
            found[name] = (float(gap.max(initial=0.0)), float(reach))
    return found


def _is_close(largest: float, reach: float) -> bool:
    """Whether a difference is too small to count, whatever the relative measures say."""
    return largest <= max(_ABSOLUTE, _OF_RANGE * reach)


def _say_where(kind: "type[BaseException]", error: BaseException, trace: "TracebackType | None") -> None:
    """Print the tool's part of the traceback, and the node that was being converted, which the tool omits."""
    while trace and trace.tb_frame.f_code.co_filename != sys.argv[0]:
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)
    nodes = [frame.f_locals["onnx_node"] for frame, _ in traceback.walk_tb(trace) if "onnx_node" in frame.f_locals]
    if nodes:
        said = str(error) or traceback.extract_tb(trace)[-1].line
        print(f"{_MARK} converting {nodes[0].op_type} '{nodes[0].outputs[0]}': {kind.__name__}: {said}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
