"""Compares what a compiled model computes with onnxruntime's numbers: a model that computes others fails as `numeric`.

That concerns backends with the optional method `compute`, where the user gives the option `verify`. A probe that
compiles is run on its samples in the compiler's own arithmetic and in onnxruntime, and their outputs are compared.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from onnxbisect.fingerprint import fingerprint, headline
from onnxbisect.language import english
from onnxbisect.model.scopes import walk
from onnxbisect.model.shapeops import RANDOM
from onnxbisect.proof import Tolerance, fault
from onnxbisect.report.text import clip
from onnxbisect.verdict import Hints, Kind, Status, Table, Verdict
from onnxbisect_backends.contract import (
    Backend,
    Description,
    Limits,
    Outcome,
    compare_layers,
    compute,
    verification,
)
from onnxbisect_backends.logs import last_words
from onnxbisect_backends.samples import made_up, samples_folder, samples_of
from onnxbisect_backends.sandbox.process import clean_env, run

#: A session holds about three times the weights. The limit for one folded constant (`ort_session.py`) does not bound
#: many of them, or what a hostile model of a few bytes takes in other ways.
_MEMORY, _MEMORY_OF_BYTE = 2 << 30, 16
_SCRIPT = Path(__file__).with_name("ort_run.py")
#: Folders of outputs in the work directory of a compile.
_REFERENCE, _NUMBERS = "onnx-bisect-reference", "onnx-bisect-numbers"
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)
#: Samples beside a probe that is compared: made-up ones are repeated before other numbers are believed.
COMPARED_ON = 2
#: So many nodes are asked about in fewer seconds than the tool's own table of errors takes.
_FEW_NODES = 16
#: Differences up to here are too small to count, whatever the numbers are.
_ABSOLUTE = 1e-6
#: Integers of a target that computes in a low type: so many, and this share of them others, are no ties.
_MANY, _SHARE = 8, 0.5


def as_compared(backend: Backend, description: Description) -> Description:
    """The description, with what comparing needs, where the user wants that."""
    if verification(backend) is None:
        return description
    return replace(description, samples=max(description.samples, COMPARED_ON), values_matter=True, weights_matter=True)


def verified(backend: Backend, probe: Path, workdir: Path, limits: Limits, verdict: Verdict) -> Verdict:
    """The verdict on a probe; where it passes and the user wants that, what comparing its numbers gives.

    `workdir` is that of its compile.
    """
    share = verification(backend)
    if share is None or not verdict.passed:
        return verdict
    return compared(backend, probe, workdir, limits, verdict, share)


def compared(backend: Backend, probe: Path, workdir: Path, limits: Limits, verdict: Verdict, share: float) -> Verdict:
    """The pass of a probe, or the failure, if outputs differ by more than this share of their largest number.

    Where nothing can be compared, the message of the pass says why.
    """
    graph = onnx.load(probe, load_external_data=False).graph
    folder, count = samples_folder(probe), len(samples_of(probe))
    if not count:
        return _not_compared(verdict, english("the values of its inputs are not known"))
    if drawn := sorted({node.op_type for node in walk(graph)} & RANDOM):
        return _not_compared(verdict, english("{op} draws random numbers", op=drawn[0]))
    reference, numbers = workdir / _REFERENCE, workdir / _NUMBERS
    lifted: Callable[[], AbstractContextManager[None]] = getattr(backend, "lifted", nullcontext)
    with lifted():  # limits of this process that a driver has
        ended = computed(probe, "disable_all", folder, reference, workdir, limits)
    if ended.exit_code != 0:
        return _not_compared(verdict, english("onnxruntime cannot run it: {reason}", reason=last_words(ended)))
    ended = compute(backend, probe, folder, numbers, workdir, limits)
    verdict = replace(verdict, seconds=verdict.seconds + ended.seconds)
    if ended.timed_out:
        message = english("Still running the compiled model after {seconds} s.", seconds=f"{ended.seconds:.0f}")
        return replace(verdict, status=Status.UNRESOLVED, kind=Kind.TIMEOUT, message=message)
    if ended.exit_code != 0:
        return _not_compared(
            verdict, english("the compiled model does not run here: {reason}", reason=last_words(ended))
        )
    names = [it.name for it in graph.output]
    of_floats = any(it.type.tensor_type.elem_type in _FLOATS for it in graph.input)
    files = [f"{number}.npz" for number in range(count)]
    found = [_faults(reference / file, numbers / file, names, share, of_floats) for file in files]
    # one made-up sample may hit what rounding decides, such as a tie
    wrong = [it for it in found if any(it.values())]
    if not wrong or (made_up(probe) and len(wrong) < len(found)):
        return replace(verdict, tables=(*verdict.tables, _table(found[0])))
    # Its tensors tell the search where the wrong numbers begin.
    faults = wrong[0]
    said_wrong = {name: said for name, said in faults.items() if said}
    first = next(iter(said_wrong.values()))
    failure = replace(
        verdict,
        status=Status.FAIL,
        kind=Kind.NUMERIC,
        fingerprint=fingerprint(first),
        message=headline(f"{first}."),
        hints=Hints(tensors=tuple(said_wrong), right=tuple(name for name in faults if name not in said_wrong)),
        tables=(*verdict.tables, _table(faults)),
    )
    if len(graph.node) <= _FEW_NODES:
        return failure
    return _with_layers(failure, backend, probe, folder / files[found.index(wrong[0])], workdir, limits, share)


def computed(model: Path, level: str, samples: Path, out: Path, workdir: Path, limits: Limits) -> Outcome:
    """`contract.compute`, by onnxruntime with this level of optimisation (`ort_run.py`)."""
    words = [str(_SCRIPT), str(model.absolute()), level.upper(), str(samples.absolute()), str(out.absolute())]
    return run_onnxruntime(words, model, workdir, limits)


def run_onnxruntime(words: Sequence[str], model: Path, workdir: Path, limits: Limits) -> Outcome:
    """Run a script that uses onnxruntime, within the memory that a session of the model may hold."""
    # -P: this package's own modules must not shadow others; PYTHONPATH: it imports what this process can import
    path = os.pathsep.join(entry for entry in sys.path if entry)
    own = {"PYTHONPATH": path, "PYTHONIOENCODING": "utf-8:backslashreplace"}
    # the official builds send telemetry to Microsoft by default
    env = clean_env(workdir, extra={**own, "ORT_DISABLE_TELEMETRY": "1"})
    # the same for small ones, and for the data beside the file
    beside = sum(path.stat().st_size for path in model.parent.iterdir() if path.is_file())
    memory = _MEMORY + _MEMORY_OF_BYTE * (beside >> 20 << 20)
    limits = replace(limits, memory_bytes=min(limits.memory_bytes or memory, memory))
    return run([sys.executable, "-P", *words], cwd=workdir, env=env, limits=limits)


def _faults(expected: Path, computed: Path, names: Sequence[str], share: float, of_floats: bool) -> dict[str, str]:
    """What is wrong with each output, empty if nothing is; those that are no tensors of numbers are not compared."""
    faults = {}
    with np.load(expected) as before, np.load(computed) as after:
        for place, name in enumerate(names):
            if (key := str(place)) not in before or before[key].dtype.kind not in "fciub":
                continue
            if key not in after:
                faults[name] = english("'{output}' is missing", output=name)
                continue
            old, new = before[key], after[key]
            if old.dtype.kind in "iub" and of_floats:
                faults[name] = _of_integers(name, old, new)
            else:
                faults[name] = fault(name, old, new, Tolerance(absolute=_ABSOLUTE, relative=share))
    return faults


def _of_integers(name: str, old: np.ndarray, new: np.ndarray) -> str:
    """What is wrong with integers that come of floats: rounding decides ties, but not most places of many."""
    if old.shape == new.shape:
        others = int((old != new).sum())
        if old.size < _MANY or others <= _SHARE * old.size:
            return ""
    return fault(name, old, new, Tolerance(absolute=0, relative=0)) if old.size else ""


def _not_compared(verdict: Verdict, why: str) -> Verdict:
    said = english("It compiles; its numbers were not compared: {reason}.", reason=clip(why, 300))
    return replace(verdict, message=headline(said))


def _table(faults: Mapping[str, str]) -> Table:
    rows = tuple((name, "other" if said else "same") for name, said in faults.items())
    return Table(title="Numbers against onnxruntime's", columns=("tensor", "numbers"), rows=rows, counted="numbers")


def _with_layers(
    failure: Verdict, backend: Backend, probe: Path, sample: Path, workdir: Path, limits: Limits, share: float
) -> Verdict:
    """The failure, with what the tool's own table says of inner tensors, where it finds wrong ones, too."""
    answer = compare_layers(backend, probe, sample, workdir, limits)
    if answer is None:
        return failure
    ended, cosines = answer
    failure = replace(failure, seconds=failure.seconds + ended.seconds)
    # the cosine of numbers with an error of this share
    least = 1 - share * share / 2
    wrong = [name for name, cosine in cosines.items() if cosine < least]
    if not wrong:
        return failure
    hints = failure.hints
    right = [name for name in cosines if name not in wrong and name not in hints.tensors]
    return replace(
        failure,
        hints=replace(
            hints,
            tensors=tuple(dict.fromkeys((*hints.tensors, *wrong))),
            right=tuple(dict.fromkeys((*hints.right, *right))),
        ),
    )
