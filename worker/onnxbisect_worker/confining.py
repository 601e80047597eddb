"""Whether the compiles of this installation are confined, and what of it they must not see."""

from onnxbisect.errors import OptionError
from onnxbisect_backends import isolation
from onnxbisect_backends.contract import Confinement
from onnxbisect_backends.isolation import Isolation
from onnxbisect_worker.settings import Settings


def level(settings: Settings) -> Isolation:
    """How far compiles are kept away from the rest of this machine. OptionError where they have to be, and cannot."""
    if settings.isolation == "none":
        return Isolation.NONE
    found = isolation.available()
    if settings.isolation == "required" and found is Isolation.NONE:
        raise OptionError(
            "ONNXBISECT_ISOLATION is 'required', and the kernel allows this user no namespaces here; SECURITY.md says "
            "what allows them, and what holds without."
        )
    return found


def confinement(settings: Settings) -> Confinement | None:
    """What holds for every compile; None where they see what their user sees."""
    if level(settings) is Isolation.NONE:
        return None
    return Confinement(
        hidden=(settings.data.absolute(), settings.cache.absolute()), required=settings.isolation == "required"
    )
