"""`onnx-bisect backends`: the compilers of this machine, their options, and whether they compile at all."""

import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import onnx

import onnx_bisect
from onnxbisect.answer import shorten_log
from onnxbisect.errors import BackendUnusableError, OptionError
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.report.text import clean, duration, plural, uncoloured
from onnxbisect.verdict import Status
from onnxbisect_backends import registry
from onnxbisect_backends.contract import Backend, Limits
from onnxbisect_backends.folders import working_folder
from onnxbisect_backends.measurement.sample_models import conv_net, write_whole
from onnxbisect_backends.probing.boundary_limits import learn_limits, refused_traits
from onnxbisect_backends.probing.boundary_traits import as_measured, usual_traits
from onnxbisect_backends.sandbox import isolation
from onnxbisect_backends.sandbox.process import kill_running
from onnxbisect_backends.toolchains import series
from onnxbisect_backends.toolchains.toolchain import Toolchain, toolchain_named, toolchains
from onnxbisect_backends.verifying import as_compared, verified
from onnxbisect_cli.exit_status import stopping
from onnxbisect_cli.reports import COMPILES, CULPRITS, UNRESOLVED
from onnxbisect_cli.speech import show_table


def install(names: Sequence[str], *, everything: bool = False) -> int:
    """Install the named toolchains, or all of them; a failed installation does not stop the others.

    Returns the exit status, 3 if one failed. OptionError for a wrong name.
    """
    known = toolchains()
    if not names and not everything:
        sizes = ", ".join(f"{name} ({versions[-1].gigabytes:g} GB)" for name, versions in known.items())
        raise OptionError(f"Name what to install, or say --all; there are {sizes}.")
    chosen = [_chosen(name) for name in names]
    if everything:
        chosen += [one for versions in known.values() for one in versions if one not in chosen and not one.made]
    failed = 0
    with stopping() as interruption:
        try:
            defined: list[Toolchain] = []
            for one in chosen:  # a wrong version is reported before anything is installed
                try:
                    if not isinstance(one, Toolchain):  # a version without pins in this program
                        with series.opened(one[0], _say) as index:
                            one = index.define(one[1])
                    defined.append(one)
                except BackendUnusableError as error:
                    failed = _report(error)
            for toolchain in defined:
                if toolchain.installed:
                    _say(f"{toolchain.name} {toolchain.version}: installed in {toolchain.folder}")
                    continue
                try:
                    toolchain.install(_say)
                except BackendUnusableError as error:
                    failed = _report(error)
        except KeyboardInterrupt:
            print("onnx-bisect: interrupted; nothing half-made is left.", file=sys.stderr)
            return interruption.exit_code
    return failed


def _report(error: BackendUnusableError) -> int:
    """Print the error; returns its exit status."""
    print(f"onnx-bisect: {clean(str(error))}", file=sys.stderr, flush=True)
    return error.exit_code


def _chosen(name: str) -> Toolchain | tuple[str, str]:
    """A known toolchain, or the name and version to look up on the package index."""
    try:
        return toolchain_named(name)
    except OptionError:
        compiler, _, version = (part.strip() for part in name.partition("=="))
        if version and compiler in series.SERIES:
            return compiler, version
        backend = registry.available().get(name)
        if not isinstance(backend, registry.LoadedBackend):
            raise
        try:
            missing = backend.factory({}).check()
        except OptionError:  # only options are missing, which no installation provides
            missing = None
        if missing:
            raise OptionError(f"'{name}' cannot be installed by this program. {missing}") from None
        raise OptionError(f"'{name}' needs nothing installed.") from None


def _say(line: str) -> None:
    print(clean(line), flush=True)


def show() -> int:
    """Print a row for each backend; a broken one is listed with the reason. Returns the exit status."""
    with stopping(kill_running) as interruption:
        found = onnx_bisect.backends()
    if interruption.number is not None:
        return interruption.exit_code
    rows = []
    for backend in found:
        about = backend.description
        version = "" if about is None else f"{about.tool} {about.version}"
        missing = f"{backend.summary} {backend.reason}".strip() if about is None else ""
        rows.append((backend.name, backend.state, version, missing))
    show_table(("name", "state", "version", "how to get it"), rows)
    print("Options of one: onnx-bisect backends options NAME")
    outside = [clean(it.name) for it in found if it.state is not onnx_bisect.BackendState.BROKEN and not it.isolated]
    level = isolation.available()
    but = f", but for {', '.join(outside)}" if outside and level is not isolation.Isolation.NONE else ""
    isolated = clean(f"Isolation of compiles, and of what reads models, in a service on this machine: {level}{but}.")
    width = max(shutil.get_terminal_size().columns, 40)
    print("\n".join(textwrap.wrap(isolated, width, break_on_hyphens=False)))
    print("Any command:             onnx-bisect run MODEL -- my_compile {model}")
    print("Your own as a TOML file: onnx-bisect run MODEL --backend ./mychip.toml")
    return 0


def show_options(name: str) -> None:
    """Print one paragraph for each option; raises OptionError and BackendUnusableError."""
    options = registry.find(name).options
    if not options:
        print(f"{clean(name)} has no options that it tells.")
    for option in options:
        default = f"  (default: {option.default})" if option.default else ""
        print(clean(f"{option.name}={'|'.join(option.choices) or 'VALUE'}{default}"))
        if option.help:
            print(f"    {clean(option.help)}")
        if option.alternatives:
            print(f"    worth trying: {clean(', '.join(option.alternatives))}")


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
    *("empty_inputs", "max_inputs", "max_outputs", "longest_name", "safe_names"),
)


def measured_boundary(backend: Backend, folder: Path) -> Iterator[str]:
    """Measure what the compiler takes of a model's inputs and outputs; lines for the user.

    The next searches use what was found, beside what the backend declares.
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
            yield f"Its backend does not declare this, which searches use from now on: {', '.join(missing)}."
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
    if name == "empty_inputs":  # True is the looser one, other than with safe_names
        return not has
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
