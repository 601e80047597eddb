"""What a compiler must look like to the drivers. Small enough to read in a minute.

Protocols, not base classes: a third party's backend needs nothing of ours but these shapes, and registers under
the entry-point group `onnx_bisect.backends`. Entry points name a `BackendFactory`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from onnxbisect.probe_format import ProbeFormat
from onnxbisect.verdict import Verdict

if TYPE_CHECKING:  # the API knows backends, and loads no ONNX
    import onnx

    from onnxbisect.model.values import Sample


@dataclass(frozen=True, kw_only=True)
class Confinement:
    """The part of the machine that a compile sees (`onnxbisect_backends.sandbox.isolation`).

    `hidden` are folders that it does not see, besides those that every compile does not see. `probe` and `workdir` are
    what it reads and writes; the caller of `Backend.compile` sets them. With `required`, a compile that cannot be
    confined does not run.
    """

    hidden: tuple[Path, ...] = ()
    probe: Path | None = None
    workdir: Path | None = None
    required: bool = False


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of one compile: wall seconds, bytes of memory, bytes per written file, bytes of kept log.

    A backend that knows its tool may have bounds of its own where these are the defaults, but for `seconds_left`: what
    the search's budget leaves, or what a probe of this size may take (`onnxbisect.compile_time`). `confinement` is kept
    by `process.run`; a backend that starts programs in another way, or on whose tool it cannot be kept, must refuse to
    compile where it is `required`.
    """

    seconds: float = 600.0
    seconds_left: float = inf
    memory_bytes: int | None = None
    file_bytes: int | None = 8 << 30
    log_bytes: int = 4 << 20
    confinement: Confinement | None = None

    @property
    def wall_seconds(self) -> float:
        """When a compile is to be ended."""
        return min(self.seconds, self.seconds_left)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one compile left behind, before anybody judges it.

    Exactly one of these tells how it ended: `exit_code`, `signal`, `timed_out`, or `broken` (the compiler could
    not be started or the machine failed it: a sentence). `interrupted` says that somebody ended it, and `short` that it
    met a full disk: asked again, it may well end. `over_memory` says that the signal was ours, sent at
    `Limits.memory_bytes`. `log` is stdout and stderr together, decoded with
    replacement and cut to `Limits.log_bytes`; `log_truncated` says so. `artifacts` are files below the work
    directory, relative to it. `peak_memory` is in bytes, of the whole process tree, 0 where unknown.
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
    """The compiler and what it takes. `version` is part of the key under which verdicts are kept, and so is
    `environment`: a digest of what the compiler is installed with, where it is known.

    `ops` are the op types that the target advertises as supported (the default domain's by bare name, others as
    `domain::Op`), None where it advertises nothing. `weights_matter`: verdicts depend on weight values (the target
    quantises with them), so probes that differ in weights only are different questions. `dynamic_shapes`: models
    whose inputs have unbound dimensions are a fair question; without it the user is asked to bind them.
    `newest_ir` and `newest_opset` are the newest versions of the format that the tool reads in full, None where it
    is not known; `newer_unfolded` says that newer files are taken, too, but constants in them are not computed
    beforehand (`ProbeFormat.folds`). `samples` is how many samples of input values the target wants beside each probe
    (`onnxbisect_backends.samples`): what its inputs are when the whole model runs on the user's data. `named` are nodes
    and tensors of the model about which the target was told something: pieces with them are questions of their own,
    whatever else is of their structure. `computes_in` is the type that the target holds float32 tensors in, `float16`
    or `bfloat16`; empty where it is another, or not known.
    """

    tool: str
    version: str
    environment: str = ""
    ops: frozenset[str] | None = None
    probe_format: ProbeFormat = field(default_factory=ProbeFormat)
    weights_matter: bool = False
    dynamic_shapes: bool = False
    newest_ir: int | None = None
    newest_opset: int | None = None
    newer_unfolded: bool = False
    samples: int = 0
    named: frozenset[str] = frozenset()
    computes_in: Literal["", "float16", "bfloat16"] = ""


class Backend(Protocol):
    """One compiler with its options: a target."""

    @property
    def name(self) -> str:
        """The word after `--backend`."""

    @property
    def options(self) -> dict[str, Any]:
        """The effective options, JSON-able; part of the key under which verdicts are kept."""

    def describe(self) -> Description:
        """Tool, version and what it expects of probes. May start the tool once; cached by the caller."""

    def check(self) -> str | None:
        """None where the tool can be used here, else one sentence that says what to install."""

    def compile(self, probe: Path, workdir: Path, limits: Limits) -> Outcome:
        """Hand one ONNX file to the compiler, with the empty directory `workdir` as its working directory.

        Called in any process, several at a time; leaves no process behind, whatever happens.
        """

    def judge(self, outcome: Outcome) -> Verdict:
        """Read the outcome: pass, fail or unresolved, with kind, fingerprint, message and hints."""


@dataclass(frozen=True, kw_only=True)
class Access:
    """What a backend's programs need of a machine of which they see only a part.

    `programs` are the paths of what it starts, for `check` and `describe` as well; what `PATH` leads to need not be
    named unless it lies in somebody's home. `reads` are further files and folders. `network`: a program asks somebody,
    such as a licence server.
    """

    programs: tuple[str, ...] = ()
    reads: tuple[Path, ...] = ()
    network: bool = False


def access(backend: Backend) -> Access:
    """What the backend's attribute `access` says; it may have none."""
    found = getattr(backend, "access", None)
    return found if isinstance(found, Access) else Access()


def products(backend: Backend) -> tuple[str, ...]:
    """Globs of the files that a pass leaves for the device, relative to the work directory (`Outcome.artifacts`).

    What the backend's attribute `products` says; of one that has none, all files that it wrote.
    """
    found = getattr(backend, "products", ())
    return tuple(found) if isinstance(found, tuple) and found else ("*",)


def profile(backend: Backend) -> str:
    """The shipped profile that records what the compiler takes of each op; empty where none does.

    What the backend's attribute `profile` says; it may have none.
    """
    found: str = getattr(backend, "profile", "")
    return found


def input_shapes(backend: Backend) -> Mapping[str, Sequence[int]]:
    """The dimensions that the backend's own options give to inputs of the model, whatever the file says.

    What its attribute `input_shapes` says; it may have none.
    """
    found: Mapping[str, Sequence[int]] = getattr(backend, "input_shapes", {})
    return found


def for_model(backend: Backend, graph: "onnx.GraphProto") -> Backend:
    """The backend for pieces of one model; raises OptionError where its options do not fit the model.

    What its method `for_model` returns, or itself: most compilers need not know what a piece was cut out of. `graph` is
    the model's as it was read: nodes have names, and initializers are not among the inputs.
    """
    bind = getattr(backend, "for_model", None)
    return backend if bind is None else cast("Backend", bind(graph))


def own_samples(backend: Backend, inputs: "Sequence[onnx.ValueInfoProto]", most: int) -> "Sequence[Sample] | None":
    """The samples that the backend's own options name for a model of these inputs, at most so many; None without any.

    What its method `samples` returns; it may have none. Raises OptionError where they do not fit.
    """
    read = getattr(backend, "samples", None)
    return None if read is None else cast("Sequence[Sample] | None", read(inputs, most))


def vendor_files(backend: Backend, probe: Path) -> None:
    """Put beside a failing model what the vendor's support asks for besides it and the log.

    What the backend's method `vendor_files` does, given the model's path; it may have none. `reproduce.sh` has the
    commands of the compile, to be run in that folder; the names of the files are those of
    `onnxbisect.report.files.VENDOR_FILES`, and samples are in its folder `dataset`.
    """
    write = getattr(backend, "vendor_files", None)
    if write is not None:
        write(probe)


class BackendFactory(Protocol):
    """Makes a backend from the user's `--option key=value` pairs; raises OptionError naming the nearest key."""

    def __call__(self, options: dict[str, str]) -> Backend:
        """Validate the options and build the backend; touches no tool."""
