"""`onnx-bisect serve`: the API and, if no redis is set, a worker in the same process."""

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from onnxbisect.errors import OptionError
from onnxbisect_api.app import create_app, server_config
from onnxbisect_api.routes.events import Watch
from onnxbisect_api.site import rendering
from onnxbisect_backends import registry
from onnxbisect_cli.operating import is_current, upgrade
from onnxbisect_db import tokens
from onnxbisect_db.database import Database
from onnxbisect_db.errors import SchemaError
from onnxbisect_db.states import Scope
from onnxbisect_service import logs
from onnxbisect_service.service import open_service
from onnxbisect_service.settings import Settings, keep_secrets
from onnxbisect_worker.model_processes.pool import inspection

_BACKLOG = 2048


def serve(settings: Settings) -> None:
    """Serve until a signal. OptionError if the address or database is unavailable, SchemaError for other tables."""
    registry.check_own_folder()
    keep_secrets()
    logs.configure(settings)
    service = open_service(settings)
    with closing(service), listening_socket(settings) as listening:
        current = is_current(service.database)
        if settings.redis_url is None:
            if not current:
                upgrade(service.database)
            from onnxbisect_worker.running import embedded  # slow: it imports the whole worker package

            worker = embedded(service)

            @asynccontextmanager
            async def lifespan(app: FastAPI) -> AsyncIterator[None]:
                worker.start()
                yield
                worker.stop()

            app = create_app(service, inspect_model=inspection, lifespan=lifespan)
            token = _own_token(service.database, settings.data / "token")
        else:
            if not current:
                raise SchemaError("The database has no tables of this version: run 'onnx-bisect migrate' first.")
            app, token = create_app(service, inspect_model=inspection), None
        config = server_config(app, settings)
        for number in (signal.SIGINT, signal.SIGTERM):
            # uvicorn stops at these signals, then raises them again for the previous handler, which must not exit.
            signal.signal(number, lambda _number, _frame: None)
        _Server(config, app, _url(listening), token).run(sockets=[listening])


class _Server(uvicorn.Server):
    """Prints its address as soon as it answers, and ends waiting and streaming requests before it stops."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, url: str, token: Path | None) -> None:
        super().__init__(config)
        self._app = app
        self._url = url
        self._token = token

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.should_exit:
            return
        print(f"onnx-bisect is at {self._url}", flush=True)
        if self._token is not None and sys.stdout.isatty():
            token = self._token.read_text().strip()
            print(f"token: {token} (kept in {self._token})\nlog in: {self._url}/login#{token}", flush=True)
        elif self._token is not None:  # others may read a log
            print(f"the token is in {self._token}; log in at {self._url}/login", flush=True)
        asyncio.get_running_loop().run_in_executor(None, _warm_up, self._app)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        watch: Watch = self._app.state.watch
        watch.end()
        await super().shutdown(sockets)


def _warm_up(app: FastAPI) -> None:
    """Do what the first requests would otherwise wait for."""
    rendering.prepare()
    for route in app.routes:  # FastAPI builds included routers when it first matches a path
        route.matches({"type": "http", "method": "GET", "path": "/-", "root_path": "", "headers": []})
    # a full collection would stop all requests for a tenth of a second
    gc.collect()
    gc.freeze()


def listening_socket(settings: Settings) -> socket.socket:
    """A listening socket at the configured address; OptionError if the address is unavailable."""
    try:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        listening = socket.create_server((settings.host, settings.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise OptionError(
            f"{settings.host}:{settings.port} cannot be listened on: {error.strerror or error}. Another port is "
            f"--port N, 0 for any that is free."
        ) from error
    # Connections inherit this option. Without it a body waits 40 ms for the client to acknowledge the headers. asyncio
    # sets it only for sockets with an explicit protocol, which this one lacks.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _own_token(database: Database, path: Path) -> Path:
    """The file with an admin token for the user who started the service; reused while its token is valid."""
    with database.session() as session:
        if path.is_file() and tokens.check(session, path.read_text().strip()) is not None:
            return path
    issued = database.run(lambda session: tokens.issue(session, tenant="", name="serve", scopes=[Scope.ADMIN]))
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{issued.text}\n")
    return path
