"""Any command as a compiler, like `git bisect run`: the words after `--` on the command line.

The command runs as the user typed it: in the directory where onnx-bisect was started, with the user's environment. Only
`TMPDIR` points into the empty work directory of the compile. The log's format is unknown; ops and nodes of the model
that occur in its last complaint, and in others of the same form, become hints.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from onnxbisect.errors import OptionError
from onnxbisect.fingerprint import fingerprint
from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect_backends.commands.mentions import NOTHING, Mentions, mentions
from onnxbisect_backends.commands.named_files import files_named, short_hash
from onnxbisect_backends.contract import Description, Limits, Outcome
from onnxbisect_backends.judging import crashed, unfinished
from onnxbisect_backends.logs import read_log
from onnxbisect_backends.sandbox.process import find_executable, not_found, run, with_artifacts

#: The exit status for no answer, as for `git bisect run`.
_UNRESOLVED = 125


@dataclass(frozen=True, kw_only=True)
class _Ran(Outcome):
    """An outcome, with the ops and nodes named in the log's last complaint."""

    mentions: Mentions = NOTHING


class CommandBackend:
    """Exit status 0 is a pass, 125 unresolved, anything else a failure; a signal is a crash.

    `{model}` is the probe's path, `{workdir}` the empty directory of this compile and `{out}` a path in it that does
    not exist yet; all are absolute. Raises OptionError if `{model}` is not used. Picklable, so that it can be sent to
    worker processes.
    """

    name = "command"

    def __init__(self, argv: Sequence[str], *, cwd: Path | None = None) -> None:
        if not argv:
            raise OptionError("There is no command after '--'; give one, such as: -- python my_compile.py {model}.")
        if not any("{model}" in element for element in argv):
            raise OptionError(
                f"The command '{' '.join(argv)}' does not say where the model goes; write {{model}} in its place."
            )
        self._argv = tuple(argv)
        self._cwd = (cwd or Path.cwd()).absolute()
        self._files = files_named(self._argv, self._cwd)

    @property
    def folder(self) -> Path:
        """The directory it runs in."""
        return self._cwd

    @property
    def options(self) -> dict[str, Any]:
        """The command as typed."""
        return {"command": list(self._argv)}

    def describe(self) -> Description:
        """The version is a hash of the command and the files it names, so an edited script is a new compiler."""
        version = short_hash(json.dumps([self._argv, self._files]))
        return Description(tool=Path(self._argv[0]).name, version=version, dynamic_shapes=True)

    def check(self) -> str | None:
        """Whether the command's first word can be executed."""
        found = find_executable(self._argv[0], cwd=self._cwd, path=os.environ.get("PATH"))
        return None if found else not_found(self._argv[0])

    def compile(self, probe: Path, workdir: Path, limits: Limits) -> Outcome:
        """Run the command on one probe."""
        workdir = workdir.absolute()
        values = {"{model}": str(probe.absolute()), "{workdir}": str(workdir), "{out}": str(workdir / "out")}
        argv = [_fill(element, values) for element in self._argv]
        outcome = run(argv, cwd=self._cwd, env={**os.environ, "TMPDIR": str(workdir)}, limits=limits)
        outcome = with_artifacts(outcome, probe.absolute(), workdir)
        if not outcome.exit_code or outcome.exit_code == _UNRESOLVED:
            return outcome
        kept = {field.name: getattr(outcome, field.name) for field in fields(outcome)}
        return _Ran(**kept, mentions=mentions(read_log(outcome.log).message, probe, outcome.log))

    def judge(self, outcome: Outcome) -> Verdict:
        """Decide by the exit status; the log only provides the message."""
        if verdict := unfinished(outcome):
            return verdict
        reading = read_log(outcome.log)
        if outcome.exit_code == 0:
            return Verdict(status=Status.PASS, seconds=outcome.seconds)
        if verdict := crashed(outcome, reading):
            return verdict
        code = outcome.exit_code
        said = outcome.mentions if isinstance(outcome, _Ran) else NOTHING
        return Verdict(
            status=Status.UNRESOLVED if code == _UNRESOLVED else Status.FAIL,
            kind=Kind.ERROR,
            hints=said.hints,
            fingerprint=fingerprint(said.blanked) if said.hints else reading.fingerprint,
            message=reading.message or f"Ended with exit status {code}, without a word.",
            seconds=outcome.seconds,
        )


def _fill(element: str, values: dict[str, str]) -> str:
    for placeholder, value in values.items():
        element = element.replace(placeholder, value)
    return element
