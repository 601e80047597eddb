"""Scores of outputs: by a metric that exists, or by the user's function in a process of its own."""

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from math import isnan
from pathlib import Path
from typing import Protocol

from onnxbisect.errors import OptionError
from onnxbisect.language import english
from onnxbisect.precision.metric import Outputs, worst
from onnxbisect.precision.wanted import Metric, Wanted
from onnxbisect.report.text import clip
from onnxbisect_backends.contract import Limits
from onnxbisect_backends.logs import last_words
from onnxbisect_backends.sandbox.process import run

_SCRIPT = Path(__file__).with_name("call_metric.py")


class Scorer(Protocol):
    """Gives the value of a metric at the worst sample."""

    @property
    def identity(self) -> str:
        """Equal for metrics that give equal values."""

    def value(self, reference: Sequence[Outputs], outputs: Sequence[Outputs], folder: Path) -> float:
        """The value for these outputs, which are in `folder`, too. Raises OptionError for a metric that fails."""


def scorer_of(want: Wanted, names: Sequence[str], *, reference: Path, samples: Path, limits: Limits) -> Scorer:
    """The metric that is wanted, for a model whose outputs have these names."""
    if want.metric in list(Metric):
        return BuiltIn(want.metric)
    return UserMetric(
        want.metric, names=names, reference=reference, samples=samples, limits=limits, at_most=want.at_most
    )


class BuiltIn:
    """A metric of `onnxbisect.precision.metric`."""

    def __init__(self, metric: str) -> None:
        self.identity = metric

    def value(self, reference: Sequence[Outputs], outputs: Sequence[Outputs], folder: Path) -> float:
        """The value at the worst output of the worst sample."""
        return worst(self.identity, reference, outputs)


class UserMetric:
    """`FILE.py:FUNCTION`: (outputs in full precision, outputs, sample) to a number, all three by their names."""

    def __init__(
        self, metric: str, *, names: Sequence[str], reference: Path, samples: Path, limits: Limits, at_most: bool
    ) -> None:
        file, _, self._function = metric.rpartition(":")
        self._file = Path(file).absolute()
        if not self._file.is_file() or self._file.suffix != ".py":
            raise OptionError(
                english("There is no file {file}.py of a metric.", file=clip(file.removesuffix(".py"), 200))
            )
        self._names, self._reference, self._samples = list(names), reference, samples
        self._limits, self._at_most = limits, at_most

    @property
    def identity(self) -> str:
        """The function, and the content of its file."""
        return f"{self._function} {hashlib.sha256(self._file.read_bytes()).hexdigest()}"

    def value(self, reference: Sequence[Outputs], outputs: Sequence[Outputs], folder: Path) -> float:
        """What the function returns for the worst sample."""
        order, answer = folder.with_suffix(".order"), folder.with_suffix(".score")
        order.write_text(
            json.dumps(
                {
                    "outputs": self._names,
                    "reference": str(self._reference),
                    "found": str(folder),
                    "samples": str(self._samples),
                    "count": len(outputs),
                    "answer": str(answer),
                }
            )
        )
        path = os.pathsep.join(entry for entry in sys.path if entry)
        argv = [sys.executable, "-P", str(_SCRIPT), str(self._file), self._function, str(order)]
        ended = run(argv, cwd=Path.cwd(), env={**os.environ, "PYTHONPATH": path}, limits=self._limits)
        call = f"{self._function}() of {self._file.name}"
        if not answer.is_file():
            raise OptionError(
                english("{call} gave no answer: {reason}.", call=call, reason=clip(last_words(ended), 300))
            )
        return self._read(json.loads(answer.read_text()), call)

    def _read(self, answer: dict[str, object], call: str) -> float:
        detail, sample = clip(str(answer.get("detail")), 300), str(answer.get("sample"))
        file = self._file.name
        match answer.get("problem"):
            case "file":
                raise OptionError(english("{file} cannot be loaded: {said}.", file=file, said=detail))
            case "missing":
                raise OptionError(english("{file} has no function {function}.", file=file, function=detail))
            case "raises":
                raise OptionError(
                    english("{call} raised {said} on sample {sample}.", call=call, said=detail, sample=sample)
                )
            case "returns":
                raise OptionError(
                    english(
                        "{call} returned {kind} on sample {sample}; it has to return a number.",
                        call=call,
                        kind=detail,
                        sample=sample,
                    )
                )
        scores = [float(it) for it in answer["scores"]]  # type: ignore[attr-defined] # the script's list of numbers
        if (wrong := next((number for number, it in enumerate(scores) if isnan(it)), None)) is not None:
            raise OptionError(
                english(
                    "{call} returned NaN on sample {sample}; it has to return a number.", call=call, sample=str(wrong)
                )
            )
        return max(scores) if self._at_most else min(scores)
