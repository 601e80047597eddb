"""`onnx-bisect backends check`: whether a compiler compiles at all, and its log."""

from collections.abc import Mapping
from pathlib import Path

import onnx

from onnxbisect.answer import shorten_log
from onnxbisect.errors import BackendUnusableError
from onnxbisect.report.text import clean, duration, uncoloured
from onnxbisect.verdict import Status, Verdict
from onnxbisect_backends import registry
from onnxbisect_backends.contract import Backend, Limits
from onnxbisect_backends.measurement.sample_models import conv_net, write_whole
from onnxbisect_backends.sandbox.process import kill_running
from onnxbisect_backends.sandbox.working_folder import working_folder
from onnxbisect_cli.boundary_check import measured_boundary
from onnxbisect_cli.results import COMPILES, CULPRITS, UNRESOLVED
from onnxbisect_cli.signals import stopping

_SAYS = {
    Status.PASS: ("compiles a small net of convolutions", COMPILES),
    Status.FAIL: ("fails on a small net of convolutions that every compiler should take", CULPRITS),
    Status.UNRESOLVED: ("gives no answer", UNRESOLVED),
}


def check(name: str, options: Mapping[str, str]) -> int:
    """Compile once and show verdict, log and what is measured of the boundary; returns the exit status.

    Raises BackendUnusableError.
    """
    backend = registry.make(name, dict(options))
    if complaint := backend.check():
        raise BackendUnusableError(complaint)
    with working_folder() as folder:
        with stopping(kill_running) as interruption:
            verdict, log = _ask(backend, folder)
            measured = list(measured_boundary(backend, folder)) if verdict.passed else []
        if interruption.number is not None:
            return interruption.exit_code
    says, code = _SAYS[verdict.status]
    description = backend.describe()
    print(f"{clean(f'{description.tool} {description.version}')} {says} ({duration(verdict.seconds)}).")
    if verdict.message:
        kind = f"{verdict.kind.value}: " if verdict.kind else ""
        print(f"{kind}{clean(verdict.message)}")
    print("Its log:" if log.strip() else "It wrote no log.")
    for line in uncoloured(shorten_log(log)).splitlines():
        print(f"  {clean(line)}")
    for line in measured:
        print(line)
    return code


def _ask(backend: Backend, folder: Path) -> tuple[Verdict, str]:
    model, probe, workdir = folder / "net.onnx", folder / "probe" / "model.onnx", folder / "work"
    probe.parent.mkdir()
    workdir.mkdir()
    onnx.save(conv_net(), model)
    write_whole(model, backend.describe(), probe)
    outcome = backend.compile(probe, workdir, Limits())
    return backend.judge(outcome), outcome.log
