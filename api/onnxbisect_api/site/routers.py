"""The routers of all pages."""

from onnxbisect_api.site import (
    backends,
    compare,
    culprits,
    inspection,
    job,
    job_actions,
    jobs,
    languages,
    live,
    netron,
    new,
    probes,
    session,
    static,
    tokens,
    webhooks,
)

ROUTERS = tuple(
    module.router
    for module in (
        static,
        session,
        languages,
        jobs,
        new,
        job,
        job_actions,
        live,
        netron,
        backends,
        probes,
        compare,
        culprits,
        inspection,
        webhooks,
        tokens,
    )
)
