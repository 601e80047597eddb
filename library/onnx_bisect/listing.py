"""Which compilers can be asked here."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum

from onnxbisect.errors import BackendUnusableError, OptionError
from onnxbisect_backends.contract import Description
from onnxbisect_backends.options import OptionHelp
from onnxbisect_backends.registry import BrokenBackend, LoadedBackend, available


class BackendState(StrEnum):
    """Whether a backend can be asked, the best first."""

    USABLE = "usable"
    #: It does not say without the options that it demands.
    WITH_OPTIONS = "usable with options"
    #: Its compiler is not there.
    NOT_USABLE = "not usable"
    #: The backend itself does not work.
    BROKEN = "broken"


@dataclass(frozen=True, kw_only=True)
class BackendInfo:
    """A backend that is installed. `reason` says why it is not usable as it is, `description` is its tool's where it
    is. `isolated`: a service can confine its compiles.
    """

    name: str
    state: BackendState
    summary: str = ""
    reason: str = ""
    options: tuple[OptionHelp, ...] = ()
    isolated: bool = False
    description: Description | None = None


def backends() -> tuple[BackendInfo, ...]:
    """All of them, usable ones first. Some start their tool to learn its version."""
    with ThreadPoolExecutor(max_workers=4) as pool:
        found = list(pool.map(_asked, available().values()))
    order = list(BackendState)
    return tuple(sorted(found, key=lambda it: order.index(it.state)))


def _asked(backend: LoadedBackend | BrokenBackend) -> BackendInfo:
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
    except OptionError as error:  # it cannot be asked about without options
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
