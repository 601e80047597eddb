"""Configures uvicorn, with the limits that apply before a request reaches the application."""

import resource
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address, ip_network
from typing import Any, cast

import uvicorn
from fastapi import FastAPI

from onnxbisect_api.limits import BoundedProtocol, Connections
from onnxbisect_service.settings import Settings

#: Seconds that open requests, such as event streams, have to end when the server stops.
_GRACE = 2
#: Connections that asyncio accepts before it handles the first of them.
_BACKLOG = 128


def server_config(app: FastAPI, settings: Settings, **more: Any) -> uvicorn.Config:
    """The configuration of a server for `app`."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    # half of the descriptors are for files, the database and model processes
    most = settings.connections if files == resource.RLIM_INFINITY else min(settings.connections, files // 2)
    proxies = settings.trusted_proxies
    connections = Connections(
        most=most, most_of_address=min(settings.address_connections, most), is_proxy=_is_one_of(proxies)
    )
    return uvicorn.Config(
        app,
        # h11 limits the head of a request; httptools would read without limit
        http=cast("Any", partial(BoundedProtocol, connections=connections)),
        ws="none",
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=_GRACE,
        **more,
    )


def _is_one_of(proxies: tuple[str, ...]) -> Callable[[str], bool]:
    networks = [ip_network(proxy) for proxy in proxies]
    return lambda address: any(ip_address(address) in network for network in networks)
