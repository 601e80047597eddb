"""Validates a job's targets: backends by name, with options allowed for remote clients."""

from collections.abc import Collection, Iterable

from onnxbisect.errors import BackendUnusableError, OnnxBisectError, OptionError
from onnxbisect.language import english
from onnxbisect_api.job_request import TargetRequest
from onnxbisect_backends import registry, remote
from onnxbisect_backends.options import unknown
from onnxbisect_backends.other_options import OtherOptions
from onnxbisect_db.jobs import NewTarget
from onnxbisect_service.search_spec import Alternatives


def checked(
    targets: Iterable[TargetRequest], offered: Collection[str], alternatives: Alternatives = None
) -> tuple[NewTarget, ...]:
    """The targets to store; OptionError if a target, or one of its `alternatives`, is invalid.

    `offered` has the backends of live workers, which may be missing here. No compiler is started.
    """
    return tuple(_checked(target, offered, alternatives) for target in targets)


def _checked(target: TargetRequest, offered: Collection[str], alternatives: Alternatives) -> NewTarget:
    try:
        remote.find(target.backend)
    except (OptionError, BackendUnusableError) as error:
        if target.backend not in offered:
            raise _refused(target.backend, error, offered) from None
        _demand_none(target, alternatives)
    else:
        remote.make(target.backend, target.options)
        if alternatives is not None and alternatives != "all":
            for key, value in ((key, value) for key, values in alternatives.items() for value in values):
                remote.make(target.backend, {**target.options, key: value})
            OtherOptions.of(target.backend, target.options, alternatives)  # validates keys without values, too
    return NewTarget(backend=target.backend, options=target.options)


def _refused(name: str, error: OnnxBisectError, offered: Collection[str]) -> OptionError:
    """An OptionError for a remote client, without the registry's advice for command lines."""
    known = {*registry.available(), *offered}
    return OptionError(str(error) if name in known or name.endswith(".toml") else unknown("backend", name, known))


def _demand_none(target: TargetRequest, alternatives: Alternatives) -> None:
    """OptionError if a backend that only workers have is given options, because the API cannot validate them."""
    if target.options or alternatives is not None:
        raise OptionError(
            english(
                "The backend '{backend}' takes no options over the network until its package is installed beside "
                "the API, too: they cannot be checked here.",
                backend=target.backend,
            )
        )
