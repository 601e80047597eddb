"""The `onnxruntime` backend: does onnxruntime create a session of the model on its CPU provider?

A real compiler that is always at hand: it refuses unknown ops, dtypes without a kernel, and malformed nodes.
"""

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect_backends.contract import Description, Limits, Outcome
from onnxbisect_backends.judging import crashed, unfinished
from onnxbisect_backends.logs import Pattern, compile_pattern, read_log
from onnxbisect_backends.options import VerifyOptions, WorthTrying, read_options
from onnxbisect_backends.sandbox.process import clean_env, run, with_artifacts


def _pattern(regex: str, kind: Kind = Kind.UNSUPPORTED) -> Pattern:
    return Pattern(regex=compile_pattern(regex), kind=kind)


#: Texts of onnxruntime 1.31.1, each seen in a real run; the first match gives the kind.
PATTERNS = (
    _pattern(r"(?<![\w.])(?P<op>[\w.]+:\w+)\(-?\d+\) is not a registered function/op"),
    _pattern(r"Could not find an implementation for (?P<op>\w+)\(\d+\) node with name '(?P<node>.*)'"),
    _pattern(r"No Op registered for (?P<op>\w+) with domain_version of \d+"),
    _pattern(r"of input parameter \((?P<tensor>.*?)\) of operator \((?P<op>\w+)\) in node \((?P<node>.*)\) is invalid"),
    _pattern(r"Unrecognized attribute: \w+ for operator (?P<op>\w+)"),
    _pattern(r"Node \((?P<node>.*)\) Op \((?P<op>\w+)\) \[\w+\]", Kind.ERROR),
    _pattern(r"Node ?\((?P<node>.*?)\) with schema\([^)]*\) has (?:in|out)put size", Kind.ERROR),
    _pattern(r"In Node, \(\"(?P<node>.*?)\", (?P<op>\w+), ", Kind.ERROR),
)


#: The prefix of every message.
PREAMBLE = re.compile(
    r"^\w+: \[ONNXRuntimeError\] : \d+ : [A-Z_]+ : (?:Load model from \S+ failed:)?"
    r"(?:Fatal error: |This is an invalid model\. )?"
)


_SCRIPT = Path(__file__).with_name("ort_session.py")
_RUN_SCRIPT = Path(__file__).with_name("ort_run.py")

#: The newest IR version and opset that a release loads, by what was tried.
_NEWEST = {"1.31": (13, 26)}

#: A session holds about three times the weights. Its own limit for one folded constant (`ort_session.py`) does not
#: bound many of them, or what a hostile model of a few bytes takes in other ways.
_MEMORY, _MEMORY_OF_BYTE = 2 << 30, 16

#: The exit status of `ort_session.py` for a refusal.
_REFUSED = 3


class OrtOptions(VerifyOptions):
    """The options of the backend."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    optimization: Annotated[Literal["disable_all", "enable_basic", "enable_extended", "enable_all"], WorthTrying()] = (
        Field(default="enable_all", description="onnxruntime's graph optimisation level")
    )


class OnnxRuntimeBackend:
    """Session creation on the CPU provider, in a process of its own."""

    name = "onnxruntime"
    isolated = True
    Options = OrtOptions

    def __init__(self, options: dict[str, str]) -> None:
        self._options = read_options(OrtOptions, options, self.name)

    @property
    def options(self) -> dict[str, Any]:
        """The effective options."""
        return self._options.model_dump(exclude=self._options.idle)

    @property
    def verifies_within(self) -> float | None:
        """`contract.verification`."""
        return self._options.within

    def describe(self) -> Description:
        """The version installed beside this program."""
        try:
            installed = version("onnxruntime")
        except PackageNotFoundError:  # installed from another distribution, such as onnxruntime-gpu
            installed = "unknown"
        ir, opset = _NEWEST.get(installed.rpartition(".")[0], (None, None))
        return Description(
            tool="onnxruntime",
            version=installed,
            dynamic_shapes=True,
            newest_ir=ir,
            newest_opset=opset,
            boundary_known=True,
        )

    def check(self) -> str | None:
        """Whether onnxruntime can be imported."""
        return None if find_spec("onnxruntime") else "onnxruntime is not installed; run: pip install onnxruntime."

    def compile(self, probe: Path, workdir: Path, limits: Limits) -> Outcome:
        """Create a session of one probe."""
        words = [str(_SCRIPT), str(probe.absolute()), self._options.optimization.upper()]
        return with_artifacts(self._run(words, probe, workdir, limits), probe, workdir)

    def compute(self, model: Path, samples: Path, out: Path, workdir: Path, limits: Limits) -> Outcome:
        """Run a model with the optimisations of the options."""
        words = [str(_RUN_SCRIPT), str(model.absolute()), self._options.optimization.upper()]
        return self._run([*words, str(samples.absolute()), str(out.absolute())], model, workdir, limits)

    def judge(self, outcome: Outcome) -> Verdict:
        """Decide by the exit status; the error gives kind and hints."""
        if verdict := unfinished(outcome):
            return verdict
        if outcome.exit_code == 0:
            return Verdict(status=Status.PASS, seconds=outcome.seconds)
        reading = read_log(outcome.log, PATTERNS)
        if verdict := crashed(outcome, reading):
            return verdict
        if outcome.exit_code != _REFUSED:
            return Verdict(status=Status.UNRESOLVED, kind=Kind.ERROR, message=reading.message, seconds=outcome.seconds)
        return Verdict(
            status=Status.FAIL,
            kind=reading.kind or Kind.ERROR,
            fingerprint=reading.fingerprint,
            message=PREAMBLE.sub("", reading.message) or "Refused, without a word.",
            hints=reading.hints,
            seconds=outcome.seconds,
        )

    def _run(self, words: Sequence[str], model: Path, workdir: Path, limits: Limits) -> Outcome:
        # -P: this package's own modules must not shadow others; PYTHONPATH: it imports what this process can import
        path = os.pathsep.join(entry for entry in sys.path if entry)
        own = {"PYTHONPATH": path, "PYTHONIOENCODING": "utf-8:backslashreplace"}
        # the official builds send telemetry to Microsoft by default
        env = clean_env(workdir, extra={**own, "ORT_DISABLE_TELEMETRY": "1"})
        limits = replace(limits, memory_bytes=min(limits.memory_bytes or _memory(model), _memory(model)))
        return run([sys.executable, "-P", *words], cwd=workdir, env=env, limits=limits)


def _memory(probe: Path) -> int:
    """The bytes of memory that a session of this file, and of the data beside it, may hold, the same for small ones."""
    beside = sum(path.stat().st_size for path in probe.parent.iterdir() if path.is_file())
    return _MEMORY + _MEMORY_OF_BYTE * (beside >> 20 << 20)
