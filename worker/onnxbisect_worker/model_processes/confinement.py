"""Whether the compiles of this installation, and what reads its models, are confined; what of it they must not see."""

import logging
import os
import resource
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from onnxbisect.errors import OptionError
from onnxbisect_backends.contract import Access, Confinement, access
from onnxbisect_backends.sandbox import isolation
from onnxbisect_backends.sandbox.confine import fork_confined
from onnxbisect_backends.sandbox.confined_view import confined_view
from onnxbisect_backends.sandbox.isolation import Isolation
from onnxbisect_backends.sandbox.supervise import MOST_PROCESSES, bound
from onnxbisect_worker.model_processes.layout import Layout
from onnxbisect_worker.model_processes.messages import Setup

if TYPE_CHECKING:  # reading settings takes pydantic-settings and httpx2, for which model processes have no use
    from onnxbisect_service.settings import Settings

log = logging.getLogger(__name__)


def level(settings: "Settings") -> Isolation:
    """How far compiles, and what reads models, are kept away from the rest of this machine. OptionError where they have
    to be, and cannot.
    """
    if settings.isolation == "none":
        return Isolation.NONE
    found = isolation.available()
    if settings.isolation == "required" and found is Isolation.NONE:
        raise OptionError(
            "ONNXBISECT_ISOLATION is 'required', and the kernel allows this user no namespaces here; SECURITY.md says "
            "what allows them, and what holds without."
        )
    return found


def tell_level(settings: "Settings") -> None:
    """Log it, and what makes it worthless. OptionError as of `level`."""
    found = level(settings)
    log.info("isolation of compiles and of what reads models: %s", found)
    if found is not Isolation.NONE and os.geteuid() == 0:
        log.warning("this runs as root, to whom /proc/sys belongs: isolation does not hold; use a user of its own")


def confinement(settings: "Settings") -> Confinement | None:
    """What holds for every compile, and for what reads models; None where they see what their user sees."""
    if level(settings) is Isolation.NONE:
        return None
    return Confinement(
        hidden=(settings.data.absolute(), settings.cache.absolute()), required=settings.isolation == "required"
    )


def confine(setup: Setup, own: Path, ground: Layout) -> int | None:
    """Confine this process, which has one thread and has read nothing of a model: None in the process that goes on, and
    the status with which that ended in this one (`confine.fork_confined`).

    It sees what its compiles see together, since it starts them: what their backend needs, and of the hidden folders
    the files of this model and `own`, to which alone it writes. A backend that does not bear isolation has none here
    either, unless it is required; then its compiles are refused.
    """
    wanted = setup.confinement
    if wanted is None or not (wanted.required or ground.isolated):
        return None
    reached = Access() if isinstance(ground.backend, Exception) else access(ground.backend)
    files = [
        setup.model,
        *setup.calibration.values(),
        *setup.samples.values(),
        *([] if setup.prepared is None else [setup.prepared]),
    ]
    if setup.files and isinstance(ground.model, Path):
        files.append(str(ground.model.parent))
    seen = confined_view(
        replace(wanted, workdir=own),
        [sys.executable, *reached.programs],
        cwd=own,
        env=setup.environment,
        reads=[*map(Path, files), *reached.reads, *(Path(entry) for entry in sys.path if entry)],
    )
    try:
        status = fork_confined(seen, network=reached.network)
    except OSError as error:  # whoever waits for this process tells its last words
        print(f"could not be isolated: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(1)
    if status is None:
        bound(resource.RLIMIT_NPROC, MOST_PROCESSES)
    return status
