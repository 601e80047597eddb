"""Lists the installed backends and whether they can be used."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum

from onnxbisect.errors import BackendUnusableError, OptionError
from onnxbisect_backends.contract import Description
from onnxbisect_backends.options import OptionHelp
from onnxbisect_backends.registry import BrokenBackend, LoadedBackend, available


class BackendState(StrEnum):
    """Whether a backend can be used, the best state first."""

    USABLE = "usable"
    #: Unknown, because the backend requires options.
    WITH_OPTIONS = "usable with options"
    #: Its compiler is not installed or does not run here.
    NOT_USABLE = "not usable"
    #: The backend's own code fails.
    BROKEN = "broken"


@dataclass(frozen=True, kw_only=True)
class BackendInfo:
    """An installed backend. `reason` says why it is not usable without options, or at all; `description` is None then.

    `isolated`: a service can confine its compiles.
    """

    name: str
    state: BackendState
    summary: str = ""
    reason: str = ""
    options: tuple[OptionHelp, ...] = ()
    isolated: bool = False
    description: Description | None = None


def backends() -> tuple[BackendInfo, ...]:
    """All installed backends, usable ones first. Some backends start their tool to read its version."""
    with ThreadPoolExecutor(max_workers=4) as pool:
        found = list(pool.map(_info, available().values()))
    order = list(BackendState)
    return tuple(sorted(found, key=lambda it: order.index(it.state)))


def _info(backend: LoadedBackend | BrokenBackend) -> BackendInfo:
    if isinstance(backend, BrokenBackend):
        return BackendInfo(name=backend.name, state=BackendState.BROKEN, reason=backend.reason)
    description = None
    state, reason = BackendState.USABLE, ""
    try:
        made = backend.factory({})
        if complaint := made.check():
            raise BackendUnusableError(complaint)
        description = made.describe()
    except BackendUnusableError as error:
        state, reason = BackendState.NOT_USABLE, str(error)
    except OptionError as error:  # a required option is missing
        state, reason = BackendState.WITH_OPTIONS, str(error)
    except Exception as error:  # a third party's bug must not hide the others
        state, reason = BackendState.BROKEN, f"{type(error).__name__}: {error}"
    return BackendInfo(
        name=backend.name,
        state=state,
        summary=backend.summary,
        reason=reason,
        options=backend.options,
        isolated=backend.isolated,
        description=description,
    )
