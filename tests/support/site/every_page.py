"""The address of every page, in one place: what is to hold of all of them is tested of all of them."""

import importlib
import pkgutil

from fastapi import APIRouter
from fastapi.routing import APIRoute

from onnxbisect_api import site
from support.site.scenery import Scene

#: GET routes that are no pages of their own, and why.
NO_PAGES = {
    "/": "leads to /jobs",
    "/jobs/compare": "leads to /compare",
    "/static/{version}/{name:path}": "scripts and styles",
    "/jobs/{job_id}/stream": "events of a page",
}

#: A page that says so.
NOT_THERE = "/jobs/00000000-0000-7000-8000-000000000000"


def routes() -> set[str]:
    """The paths that the site's modules answer to a GET."""
    found = set()
    for module in pkgutil.iter_modules(site.__path__, f"{site.__name__}."):
        router = getattr(importlib.import_module(module.name), "router", None)
        if isinstance(router, APIRouter):
            pages = [route for route in router.routes if isinstance(route, APIRoute)]
            found |= {page.path for page in pages if "GET" in (page.methods or ())}
    return found


def addresses(scene: Scene) -> dict[str, tuple[str, ...]]:
    """Where each route is looked at: in every state that looks different."""
    return {
        "/login": ("/login",),
        "/jobs": ("/jobs", "/jobs?state=failed&label=repo:nothing"),
        "/culprits": ("/culprits", "/culprits?state=fixed"),
        "/culprits/{culprit_id}": (f"/culprits/{scene.culprit}",),
        "/new": ("/new",),
        "/inspect": ("/inspect",),
        "/backends": ("/backends",),
        "/jobs/{job_id}": (
            *(f"/jobs/{job}" for job in (scene.done, scene.several, scene.hostile, scene.failed, scene.running)),
            f"/jobs/{scene.several}?target=2",
            f"/jobs/{scene.hostile}?target=1",
            NOT_THERE,
        ),
        "/jobs/{job_id}/probes": tuple(f"/jobs/{job}/probes" for job in (scene.done, scene.hostile, scene.running)),
        "/jobs/{job_id}/probes/{name}": (
            f"/jobs/{scene.done}/probes/{scene.probe}",
            f"/jobs/{scene.hostile}/probes/{scene.hostile_probe}",
        ),
        "/compare": (
            f"/compare?a={scene.done}",
            *(f"/compare?a={scene.done}&b={job}" for job in (scene.hostile, scene.several, scene.running)),
        ),
        "/webhooks": ("/webhooks",),
        "/webhooks/{webhook_id}": (f"/webhooks/{scene.webhook}",),
        "/tokens": ("/tokens",),
        "/jobs/{job_id}/culprits/{number}/netron": (f"/jobs/{scene.hostile}/culprits/1/netron?target=1",),
    }


def all_addresses(scene: Scene) -> list[str]:
    """Of every page."""
    return [address for found in addresses(scene).values() for address in found]
