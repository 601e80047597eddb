"""`onnx-bisect backends check`: whether a compiler compiles at all, and its log."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import onnx

from onnxbisect.answer import shorten_log
from onnxbisect.errors import BackendUnusableError
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.report.text import clean, duration, plural, uncoloured
from onnxbisect.verdict import Status
from onnxbisect_backends import registry
from onnxbisect_backends.contract import Backend, Limits
from onnxbisect_backends.measurement.sample_models import conv_net, write_whole
from onnxbisect_backends.probing.boundary_limits import learn_limits, refused_traits
from onnxbisect_backends.probing.boundary_traits import as_measured, usual_traits
from onnxbisect_backends.sandbox.process import kill_running
from onnxbisect_backends.sandbox.working_folder import working_folder
from onnxbisect_backends.verifying import as_compared, verified
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
            model, probe, workdir = folder / "net.onnx", folder / "probe" / "model.onnx", folder / "work"
            probe.parent.mkdir()
            workdir.mkdir()
            onnx.save(conv_net(), model)
            write_whole(model, as_compared(backend, backend.describe()), probe)
            outcome = backend.compile(probe, workdir, Limits())
            verdict = verified(backend, probe, workdir, Limits(), backend.judge(outcome))
            log = outcome.log
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


#: The limits that a compiler's TOML file can declare.
_DECLARED = (
    *("input_dtypes", "output_dtypes", "min_input_rank", "min_output_rank", "max_input_rank", "max_output_rank"),
    *("empty_inputs", "longest_name", "safe_names"),
)


def measured_boundary(backend: Backend, folder: Path) -> Iterator[str]:
    """Measure what the compiler takes of a model's inputs and outputs; lines for the user.

    The next searches with a backend that does not declare its limits use what was found.
    """
    description = backend.describe()
    calls = learn_limits(backend, usual_traits(), folder, Limits(), kept=True, anew=True)
    refused = refused_traits(backend)
    found = ", ".join(clean(str(trait)) for trait in refused) if refused else "nothing"
    yield f"At a model's boundary it refuses {found} ({plural(calls, 'compile')})."
    limits = as_measured(
        ProbeFormat(),
        dict.fromkeys(refused, False) | dict.fromkeys(set(usual_traits()) - set(refused_traits(backend)), True),
    )
    lines = list(_lines(limits))
    if description.boundary_known:
        if missing := [name for name, _ in lines if not _covers(description.probe_format, limits, name)]:
            yield f"Its backend does not declare this: {', '.join(missing)}."
        return
    yield "Searches use this from now on. To declare it in a TOML file:"
    yield "  boundary_known = true"
    if lines:
        yield "  [probe_format]"
        yield from (f"  {name} = {value}" for name, value in lines)


def _covers(declared: ProbeFormat, measured: ProbeFormat, name: str) -> bool:
    """Whether what is declared is at least as strict as what was measured."""
    wanted, has = getattr(measured, name), getattr(declared, name)
    if isinstance(wanted, frozenset):
        return has is not None and has <= wanted
    if name == "longest_name":
        return has is not None
    if name.startswith("max_"):
        return has is not None and has <= wanted
    return bool(has >= wanted)


def _lines(limits: ProbeFormat) -> Iterator[tuple[str, str]]:
    """The fields that differ from the default, as TOML."""
    for name in _DECLARED:
        value = getattr(limits, name)
        if value == getattr(ProbeFormat(), name):
            continue
        if isinstance(value, frozenset):
            yield name, "[" + ", ".join(f'"{it}"' for it in sorted(value)) + "]"
        else:
            yield name, str(value).lower()
