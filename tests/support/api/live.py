"""A real server, since only that streams, and notices that a client has gone."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI
from httpx2 import Client

from onnxbisect_api.app import server_config
from onnxbisect_service.settings import Settings


@contextmanager
def served(app: FastAPI, token: str, settings: Settings | None = None) -> Iterator[Client]:
    """A client of the application on a port of this machine."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(server_config(app, settings or Settings(), lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with Client(base_url=address, headers={"Authorization": f"Bearer {token}"}, timeout=30) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
