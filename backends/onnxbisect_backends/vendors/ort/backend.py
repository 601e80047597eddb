"""The `onnxruntime` backend: does onnxruntime create a session of the model on its CPU provider?

A real compiler that is always at hand: it refuses unknown ops, dtypes without a kernel, and malformed nodes.
"""

import re
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect_backends.contract import Description, Limits, Outcome
from onnxbisect_backends.logs import crashed, pattern, read_log, refused, unfinished, unresolved
from onnxbisect_backends.options import VerifyOptions, WorthTrying, read_options
from onnxbisect_backends.sandbox.process import with_artifacts
from onnxbisect_backends.verifying import computed, run_onnxruntime

#: Texts of onnxruntime 1.31.1, each seen in a real run; the first match gives the kind.
PATTERNS = (
    pattern(r"(?<![\w.])(?P<op>[\w.]+:\w+)\(-?\d+\) is not a registered function/op"),
    pattern(r"Could not find an implementation for (?P<op>\w+)\(\d+\) node with name '(?P<node>.*)'"),
    pattern(r"No Op registered for (?P<op>\w+) with domain_version of \d+"),
    pattern(r"of input parameter \((?P<tensor>.*?)\) of operator \((?P<op>\w+)\) in node \((?P<node>.*)\) is invalid"),
    pattern(r"Unrecognized attribute: \w+ for operator (?P<op>\w+)"),
    pattern(r"Node \((?P<node>.*)\) Op \((?P<op>\w+)\) \[\w+\]", Kind.ERROR),
    pattern(r"Node ?\((?P<node>.*?)\) with schema\([^)]*\) has (?:in|out)put size", Kind.ERROR),
    pattern(r"In Node, \(\"(?P<node>.*?)\", (?P<op>\w+), ", Kind.ERROR),
)


#: The prefix of every message.
PREAMBLE = re.compile(
    r"^\w+: \[ONNXRuntimeError\] : \d+ : [A-Z_]+ : (?:Load model from \S+ failed:)?"
    r"(?:Fatal error: |This is an invalid model\. )?"
)


_SCRIPT = Path(__file__).with_name("ort_session.py")

#: The newest IR version and opset that a release loads, by what was tried.
_NEWEST = {"1.31": (13, 26)}

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
        return with_artifacts(run_onnxruntime(words, probe, workdir, limits), probe, workdir)

    def compute(self, model: Path, samples: Path, out: Path, workdir: Path, limits: Limits) -> Outcome:
        """Run a model with the optimisations of the options."""
        return computed(model, self._options.optimization, samples, out, workdir, limits)

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
            return unresolved(reading.message, outcome)
        message = PREAMBLE.sub("", reading.message) or "Refused, without a word."
        return refused(outcome, replace(reading, message=message))
