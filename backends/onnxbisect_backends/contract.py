"""The interface between compilers and drivers.

These are protocols, not base classes: a third party's backend needs only these attributes and methods, and registers
with the entry-point group `onnx_bisect.backends`. Entry points name a `BackendFactory`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from onnxbisect.probe_format import ProbeFormat
from onnxbisect.verdict import Verdict

if TYPE_CHECKING:  # the API imports this module and must not load ONNX
    import onnx

    from onnxbisect.model.runnable import Sample


@dataclass(frozen=True, kw_only=True)
class Confinement:
    """The part of the machine that a compile sees (`onnxbisect_backends.sandbox.isolation`).

    `hidden` are folders that it does not see, in addition to those hidden from every compile. It reads `probe` and
    writes to `workdir`; the caller of `Backend.compile` sets them. With `required`, a compile that cannot be confined
    does not run.
    """

    hidden: tuple[Path, ...] = ()
    probe: Path | None = None
    workdir: Path | None = None
    required: bool = False


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one compile: wall seconds, bytes of memory, bytes per written file, bytes of kept log.

    A backend may replace defaults by its own limits, except for `seconds_left`: the remaining budget of the search, or
    the longest time for a probe of this size (`probing.prober.time_limit`). `process.run` applies `confinement`; a
    backend that starts programs in another way, or whose tool cannot be confined, must refuse to compile if it is
    `required`.
    """

    seconds: float = 600.0
    seconds_left: float = inf
    memory_bytes: int | None = None
    file_bytes: int | None = 8 << 30
    log_bytes: int = 4 << 20
    confinement: Confinement | None = None

    @property
    def wall_seconds(self) -> float:
        """The seconds after which a compile is killed."""
        return min(self.seconds, self.seconds_left)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of one compile, before it is judged.

    Exactly one of these says how it ended: `exit_code`, `signal`, `timed_out`, or `broken` (a sentence: the compiler
    could not be started, or the machine failed). `interrupted`: another process ended it. `short`: the disk was full,
    so a repeated compile may succeed. `over_memory`: it was killed for exceeding `Limits.memory_bytes`. `log` is stdout
    and stderr together, decoded with replacement and cut to `Limits.log_bytes`, as `log_truncated` says. `artifacts`
    are relative paths of files below the work directory. `peak_memory` is in bytes, for the whole process tree, 0 if
    unknown.
    """

    exit_code: int | None = None
    signal: int | None = None
    over_memory: bool = False
    timed_out: bool = False
    broken: str = ""
    interrupted: bool = False
    short: bool = False
    seconds: float = 0.0
    peak_memory: int = 0
    log: str = ""
    log_truncated: bool = False
    artifacts: tuple[Path, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Description:
    """The compiler and its requirements. `version` and `environment` are part of the key under which verdicts are kept.

    `environment` is a digest of the packages installed with the compiler, if known.

    `ops` are the op types that the target advertises as supported (the default domain's by bare name, others as
    `domain::Op`), None if it advertises nothing. `weights_matter`: verdicts depend on weight values (the target
    quantises with them), so probes that differ only in weights are compiled separately. `dynamic_shapes`: the target
    accepts models whose inputs have unbound dimensions; otherwise the user must bind them. `needs_static`: the tool
    itself takes no input of unknown size, so a piece with one is not asked, and a repaired file has the sizes that were
    bound. `newest_ir` and
    `newest_opset` are the newest versions that the tool fully reads, None if unknown; `newer_unfolded`: it accepts
    newer files, but does not fold their constants (`ProbeFormat.folds`). `oldest_opset` is the oldest operator set
    whose ops it reads in the forms that they have there, None if unknown. `samples` is the number of input samples that
    the target needs beside each probe (`onnxbisect_backends.samples`), taken from a run of the whole model. `named` are
    nodes and tensors for which the target has settings: pieces with them share no verdicts with other pieces of equal
    structure. `boundary_known`: `probe_format` has all that the target does not take of graph inputs and outputs;
    otherwise that is measured where it matters (`onnxbisect_backends.probing.boundary_limits`). `computes_in` is the
    type in which the target stores float32 tensors, `float16` or `bfloat16`; empty if it is another or unknown.
    `disputed` are ops about which real runs contradicted the list that answers for the target, each with what was seen.
    `values_matter`: verdicts depend on the numbers that reach a probe, so that equal pieces of a model are told apart.
    """

    tool: str
    version: str
    environment: str = ""
    ops: frozenset[str] | None = None
    probe_format: ProbeFormat = field(default_factory=ProbeFormat)
    weights_matter: bool = False
    dynamic_shapes: bool = False
    needs_static: bool = False
    newest_ir: int | None = None
    newest_opset: int | None = None
    oldest_opset: int | None = None
    newer_unfolded: bool = False
    samples: int = 0
    named: frozenset[str] = frozenset()
    boundary_known: bool = False
    computes_in: Literal["", "float16", "bfloat16"] = ""
    disputed: Mapping[str, str] = field(default_factory=dict)
    values_matter: bool = False


class Backend(Protocol):
    """One compiler with its options: a target."""

    @property
    def name(self) -> str:
        """The value of `--backend`."""

    @property
    def options(self) -> dict[str, Any]:
        """The effective options as JSON values; part of the key under which verdicts are kept."""

    def describe(self) -> Description:
        """Tool, version and requirements. May start the tool once; the caller caches the result."""

    def check(self) -> str | None:
        """None if the tool can be used here, else a sentence that says what to install."""

    def compile(self, probe: Path, workdir: Path, limits: Limits) -> Outcome:
        """Compile one ONNX file, with the empty directory `workdir` as working directory.

        Called in any process, several at a time; it leaves no process behind in any case.
        """

    def judge(self, outcome: Outcome) -> Verdict:
        """The verdict on an outcome: pass, fail or unresolved, with kind, fingerprint, message and hints."""


@dataclass(frozen=True, kw_only=True)
class Access:
    """The programs, files and network that a backend needs when its compiles are confined.

    `programs` are the paths of all programs it starts, also in `check` and `describe`; programs on `PATH` need not be
    listed unless they are in a home directory. `reads` are further files and folders. `network`: a program connects to
    a server, such as a licence server.
    """

    programs: tuple[str, ...] = ()
    reads: tuple[Path, ...] = ()
    network: bool = False


def access(backend: Backend) -> Access:
    """The backend's attribute `access`, which is optional."""
    found = getattr(backend, "access", None)
    return found if isinstance(found, Access) else Access()


def products(backend: Backend) -> tuple[str, ...]:
    """Globs of the files for the device that a pass creates, relative to the work directory (`Outcome.artifacts`).

    The backend's optional attribute `products`; without it, the glob of all files.
    """
    found = getattr(backend, "products", ())
    return tuple(found) if isinstance(found, tuple) and found else ("*",)


def profile(backend: Backend) -> str:
    """The shipped profile that records what the compiler accepts of each op; empty if there is none.

    The backend's optional attribute `profile`.
    """
    found: str = getattr(backend, "profile", "")
    return found


def input_shapes(backend: Backend) -> Mapping[str, Sequence[int]]:
    """The shapes that the backend's own options give to inputs of the model, by input name.

    The backend's optional attribute `input_shapes`.
    """
    found: Mapping[str, Sequence[int]] = getattr(backend, "input_shapes", {})
    return found


def for_model(backend: Backend, graph: "onnx.GraphProto") -> Backend:
    """The backend for pieces of one model; raises OptionError if its options do not fit the model.

    The result of its optional method `for_model`, or the backend itself: most compilers need not know the whole model.
    `graph` is the model's after loading: nodes have names, and initializers are not among the inputs.
    """
    bind = getattr(backend, "for_model", None)
    return backend if bind is None else cast("Backend", bind(graph))


def own_samples(backend: Backend, inputs: "Sequence[onnx.ValueInfoProto]", most: int) -> "Sequence[Sample] | None":
    """Up to `most` samples that the backend's own options name, for a model of these inputs; None without any.

    The result of its optional method `samples`. Raises OptionError if they do not fit.
    """
    read = getattr(backend, "samples", None)
    return None if read is None else cast("Sequence[Sample] | None", read(inputs, most))


def vendor_files(backend: Backend, probe: Path) -> None:
    """Write further files beside a failing model that the vendor's support needs.

    Calls the backend's optional method `vendor_files` with the model's path. `reproduce.sh` has the commands of the
    compile, to be run in that folder; the file names are those of `onnxbisect.report.files.VENDOR_FILES`, and samples
    are in its folder `dataset`.
    """
    write = getattr(backend, "vendor_files", None)
    if write is not None:
        write(probe)


def computes(backend: Backend) -> bool:
    """Whether the compiler's own arithmetic can be asked for numbers here: it has the optional method `compute`."""
    return hasattr(backend, "compute")


def compute(backend: Backend, model: Path, samples: Path, out: Path, workdir: Path, limits: Limits) -> Outcome:
    """Run a model in the compiler's own arithmetic, as its chip would.

    Calls the backend's optional method `compute`. `samples` is a folder of `0.npz`, `1.npz`, …, keyed by the model's
    inputs, beside which may be other files. `workdir` is empty, or what a compile of this model left. The exit code is
    0 if `out`, which does not exist yet, has a file of the same name for each, keyed by the place of each output.
    """
    run = cast("Callable[..., Outcome]", getattr(backend, "compute"))  # noqa: B009 - it is optional
    return run(model, samples, out, workdir, limits)


def compare_layers(
    backend: Backend, model: Path, sample: Path, workdir: Path, limits: Limits
) -> "tuple[Outcome, Mapping[str, float]] | None":
    """How near the tensors of a model that the tool compares by itself come to full precision, as cosines by name.

    Calls the backend's optional method `compare_layers`; None without it. `sample` is a file as in `compute`, `workdir`
    what that left. A tensor's error is that of all layers before it, too; without an answer there are none.
    """
    run = getattr(backend, "compare_layers", None)
    return None if run is None else cast("tuple[Outcome, Mapping[str, float]]", run(model, sample, workdir, limits))


def verification(backend: Backend) -> float | None:
    """How far the numbers of what compiles may be from onnxruntime's, as a share of an output's largest number.

    The backend's optional attribute `verifies_within`; None, also without it, if nothing is to be compared. Drivers
    compare (`onnxbisect_backends.verifying`), with what `compute` gives.
    """
    found: float | None = getattr(backend, "verifies_within", None)
    return found


def computes_mixed(backend: Backend) -> bool:
    """Whether the compiler quantises by itself, and can be told here what to leave: it has the optional methods
    `list_quantised` and `compute_mixed`.
    """
    return hasattr(backend, "compute_mixed")


def list_quantised(backend: Backend, model: Path, samples: Path, workdir: Path, limits: Limits) -> Outcome:
    """Have a compiler list the tensors that it quantises, by the names that it has for them after fusing.

    Calls the backend's optional method `list_quantised`. `samples` is as in `compute`. The exit code is 0 if
    `workdir` has `tensors.json`, a list of names. It may have `errors.json`, too: the names of each layer of the
    compiler's own table of errors, the worst layer first, which is a hint.
    """
    run = cast("Callable[..., Outcome]", getattr(backend, "list_quantised"))  # noqa: B009 - it is optional
    return run(model, samples, workdir, limits)


def compute_mixed(
    backend: Backend, model: Path, samples: Path, keep: Sequence[str], out: Path, workdir: Path, limits: Limits
) -> Outcome:
    """Run a model in the compiler's own arithmetic, these tensors in high precision and all others quantised.

    Calls the backend's optional method `compute_mixed`. `keep` are names that `list_quantised` gave, and `workdir` is
    the folder of that call. Otherwise as `compute`.
    """
    run = cast("Callable[..., Outcome]", getattr(backend, "compute_mixed"))  # noqa: B009 - it is optional
    return run(model, samples, keep, out, workdir, limits)


class BackendFactory(Protocol):
    """Creates a backend from the user's `--option key=value` pairs; raises OptionError naming the nearest key."""

    def __call__(self, options: dict[str, str]) -> Backend:
        """Validate the options and create the backend, without starting the tool."""
