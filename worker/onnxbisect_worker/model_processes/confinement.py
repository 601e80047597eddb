"""What a model process sees of the machine: variables, files and namespaces."""

import logging
import os
import resource
import sys
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from onnxbisect.errors import OptionError
from onnxbisect_backends import registry
from onnxbisect_backends.contract import Access, Confinement, access
from onnxbisect_backends.sandbox import isolation
from onnxbisect_backends.sandbox.confine import fork_confined
from onnxbisect_backends.sandbox.confined_view import confined_view
from onnxbisect_backends.sandbox.supervise import MOST_PROCESSES, bound
from onnxbisect_worker.model_requests.layout import PreparedFiles
from onnxbisect_worker.model_requests.protocol import Setup

if TYPE_CHECKING:  # settings import pydantic-settings and httpx2, which model processes do not need
    from onnxbisect_service.settings import Settings

#: Names and patterns of the worker's variables that compilers need, in addition to those of a backend's TOML file and
#: of `Settings.compiler_env`.
_PASSED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_*", "TZ", "VIRTUAL_ENV"),
    *("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "DYLD_*", "XDG_*_HOME", "XDG_RUNTIME_DIR"),
    # variables of vendors' scripts, licences, accelerators, the docker daemon
    *("TPUC_ROOT", "PROJECT_ROOT", "*_LICENSE_FILE", "CUDA_*", "NVIDIA_*", "OMP_NUM_THREADS"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"),
)
_OURS = "ONNXBISECT_"
#: The folder of toolchains: the only variable of this program that is no setting of the service.
_CACHE = "ONNXBISECT_CACHE_DIR"

log = logging.getLogger(__name__)


def environment(folder: Path, inherit: Sequence[str] = ()) -> dict[str, str]:
    """All variables of a process whose temporary files go into the folder, without secrets of the service.

    `inherit` adds variables by name.
    """

    def passes(name: str) -> bool:
        if name.startswith(_OURS):
            return name == _CACHE
        return name in inherit or any(fnmatchcase(name, pattern) for pattern in _PASSED)

    found = {name: value for name, value in os.environ.items() if passes(name)}
    if (own := registry.own_folder()) is not None:
        found[registry.FOLDER] = str(own)  # absolute, because the process works in another folder
    return {**found, "TMPDIR": str(folder), "ORT_DISABLE_TELEMETRY": "1"}


def level(settings: "Settings") -> isolation.Isolation:
    """How far compiles and model processes are isolated. OptionError if isolation is required and impossible."""
    if settings.isolation == "none":
        return isolation.Isolation.NONE
    found = isolation.available()
    if settings.isolation == "required" and found is isolation.Isolation.NONE:
        raise OptionError(
            "ONNXBISECT_ISOLATION is 'required', and the kernel allows this user no namespaces here; SECURITY.md says "
            "what allows them, and what holds without."
        )
    return found


def tell_level(settings: "Settings") -> None:
    """Log the level, and what weakens it. OptionError as for `level`."""
    found = level(settings)
    log.info("isolation of compiles and of what reads models: %s", found)
    if found is not isolation.Isolation.NONE and os.geteuid() == 0:
        log.warning("this runs as root, to whom /proc/sys belongs: isolation does not hold; use a user of its own")


def confinement(settings: "Settings") -> Confinement | None:
    """The confinement of every compile and model process; None if they see all that their user sees."""
    if level(settings) is isolation.Isolation.NONE:
        return None
    return Confinement(
        hidden=(settings.data.absolute(), settings.cache.absolute()), required=settings.isolation == "required"
    )


def confine(setup: Setup, own: Path, layout: PreparedFiles) -> int | None:
    """Confine this process, which has one thread and has read nothing of a model (`confine.fork_confined`).

    Returns None in the process that continues, and that one's exit status in this process. The process sees what its
    compiles together need: the files of their backend and, of the hidden folders, the files of this model and `own`,
    the only folder it can write to. A backend that does not work under isolation has none, unless isolation is
    required; then its compiles are refused.
    """
    wanted = setup.confinement
    if wanted is None or not (wanted.required or layout.isolated):
        return None
    reached = Access() if isinstance(layout.backend, Exception) else access(layout.backend)
    case = setup.case
    names = [case.onnx, *case.spec.files, *([] if case.prepared is None else [case.prepared])]
    data = [setup.paths[sha256] for sha256 in names]
    if (own_backends := registry.own_folder()) is not None:
        data.append(own_backends)
    if case.files and isinstance(layout.model, Path):
        data.append(layout.model.parent)
    seen = confined_view(
        replace(wanted, workdir=own),
        [sys.executable, *reached.programs],
        cwd=own,
        env=setup.environment,
        reads=[*data, *reached.reads, *(Path(entry) for entry in sys.path if entry)],
    )
    try:
        status = fork_confined(seen, network=reached.network)
    except OSError as error:  # the parent process reports this output
        print(f"could not be isolated: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(1)
    if status is None:
        bound(resource.RLIMIT_NPROC, MOST_PROCESSES)
    return status
