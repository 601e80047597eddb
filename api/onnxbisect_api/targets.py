"""Which targets a job may have: backends by name, with options that they take from strangers."""

from collections.abc import Container, Iterable

from onnxbisect.errors import BackendUnusableError, OptionError
from onnxbisect_api.job_request import TargetRequest
from onnxbisect_backends import remote
from onnxbisect_db.jobs import NewTarget


def checked(targets: Iterable[TargetRequest], offered: Container[str]) -> tuple[NewTarget, ...]:
    """The targets, as they are kept; OptionError where one cannot be. `offered` has the backends that living workers
    take. No tool is touched.
    """
    return tuple(_checked(target, offered) for target in targets)


def _checked(target: TargetRequest, offered: Container[str]) -> NewTarget:
    try:
        remote.find(target.backend)
    except (OptionError, BackendUnusableError) as error:
        if target.backend not in offered:
            raise OptionError(str(error)) from None
        _demand_none(target)
    else:
        remote.make(target.backend, target.options)
    return NewTarget(backend=target.backend, options=target.options)


def _demand_none(target: TargetRequest) -> None:
    """A worker has a backend that is not installed here, so nobody can say which of its options are harmless."""
    if target.options:
        raise OptionError(
            f"The backend '{target.backend}' takes no options over the network until its package is installed beside "
            f"the API, too: they cannot be checked here."
        )
