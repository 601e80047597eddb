"""All pages."""

from onnxbisect_api.site import (
    backends,
    compare,
    culprits,
    home,
    inspection,
    job,
    job_actions,
    jobs,
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
        home,
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
