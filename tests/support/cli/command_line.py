"""Runs `onnx-bisect` in a directory of its own, with a verdict base of its own.

`call` runs it in this process, which saves the second that importing takes; compilers are real processes all the
same. `start` runs the installed program, for tests about processes.
"""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from onnxbisect_cli import main
from support import TESTS

CASES = TESTS / "cases"
PROGRAM = str(Path(sys.executable).with_name("onnx-bisect"))


@dataclass(frozen=True, kw_only=True)
class Done:
    code: int
    out: str
    err: str

    def sentence(self) -> str:
        """The one line that a user's mistake ends with."""
        assert self.out == ""
        assert "Traceback" not in self.err
        (line,) = self.err.splitlines()
        prefix, _, sentence = line.partition("onnx-bisect: ")
        assert prefix == ""
        assert sentence[-1] in ".!?", sentence
        return sentence


@dataclass(frozen=True, kw_only=True)
class Shell:
    """A working directory with a verdict base."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    capture: pytest.CaptureFixture[str]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "ONNXBISECT_CACHE_DIR": str(self.folder / "cache"), "COLUMNS": "100"}

    def start(self, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [PROGRAM, *arguments],
            cwd=self.folder,
            env=self.environment if environment is None else environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def call(self, *arguments: str) -> Done:
        with self.monkeypatch.context() as patch:
            patch.chdir(self.folder)
            patch.setattr(sys, "argv", ["onnx-bisect", *arguments])
            for name, value in self.environment.items():
                patch.setenv(name, value)
            handlers, level = [*logging.root.handlers], logging.root.level
            try:
                with pytest.raises(SystemExit) as end:
                    copy_context().run(main.run)  # a process of its own would keep the language to itself
            finally:  # the service logs to what is standard error now, and is closed before the next test
                logging.root.handlers[:] = handlers
                logging.root.setLevel(level)
        code = end.value.code
        assert isinstance(code, int)
        out, err = self.capture.readouterr()
        assert "Traceback" not in err, err
        return Done(code=code, out=out, err=err)

    def report(self, *arguments: str) -> dict[str, Any]:
        """`onnx-bisect run …` as its JSON document; the report of a model with culprits."""
        done = self.call("run", "--format", "json", *arguments)
        assert done.out, done.err
        report: dict[str, Any] = json.loads(done.out)
        return report


def check(case: str, *options: str) -> Sequence[str]:
    """The opaque compiler of a case, as what follows `--`."""
    return ["--", sys.executable, str(CASES / "check.py"), "{model}", "--rule", str(CASES / f"{case}.json"), *options]


def truth(case: str) -> list[list[str]]:
    found: list[list[str]] = json.loads((CASES / f"{case}.json").read_text())["truth"]
    return sorted(found)


def culprits(report: dict[str, Any]) -> list[list[str]]:
    return sorted(culprit["nodes"] for culprit in report["culprits"])
