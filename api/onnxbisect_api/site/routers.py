"""All pages."""

from onnxbisect_api.site import backends, home, job, job_actions, jobs, live, netron, new, session, static

ROUTERS = tuple(
    module.router for module in (static, session, home, jobs, new, job, job_actions, live, netron, backends)
)
