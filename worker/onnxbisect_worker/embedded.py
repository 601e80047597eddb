"""A worker of all backends, and of everything else, in the process of `onnx-bisect serve`."""

from onnxbisect.errors import OptionError
from onnxbisect_backends import registry
from onnxbisect_service.service import Service
from onnxbisect_worker.model_processes.confinement import tell_level
from onnxbisect_worker.model_processes.pool import ModelPool
from onnxbisect_worker.model_processes.protocol import Pool
from onnxbisect_worker.running import Running

#: Slots besides those that compile: for coordinators, reports, and models that are read.
_BESIDE = 6


def embedded(service: Service, hosts: Pool | None = None) -> Running:
    """The worker, to be started. OptionError where redis is set: then workers are processes of their own."""
    settings = service.settings
    if settings.redis_url is not None:
        raise OptionError("ONNXBISECT_REDIS_URL is set, so workers are processes of their own: 'onnx-bisect worker'.")
    tell_level(settings)
    return Running(
        service,
        hosts or ModelPool(settings, service.files),
        sorted(registry.available()),
        control=True,
        beside=_BESIDE,
        # one name, so that after a crash it does not wait until its own lease has run out
        reconciler="embedded",
    )
