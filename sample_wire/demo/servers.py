"""Servers: the embedded engine, if it is wanted, and the session server, while the demo runs.

Their processes import this module: nothing of the agents' is imported here.
"""

from __future__ import annotations

import contextlib
import multiprocessing.process
import socket
from typing import Final

import httpx2
import msgspec

from ..adapters.server import ServerSettings, create_app
from ..adapters.server.processes import bound, serve_on, url_of
from ..errors import SampleWireError
from .engine import EngineSettings, ReplaySettings
from .engine.app import create_app as create_engine_app
from .engine.serving import engine_of
from .processes import Serve, serving

# Both begin to listen before they start; this is for starting on a busy machine.
_START_S: Final = 60.0


class DemoError(SampleWireError):
    """The demo's rollout failed, or what came back is not what it must be."""


class Servers:
    """Runs the servers until the stack ends.

    Args:
        server: the session server's settings.
        engine: of the embedded engine; None where server.engine_url names one that runs.
        stack: ends them.
        serve: how the session server is served, see `serving`; None as the command does.

    Attributes:
        engine_url, server_url: where they listen.
        server_pid: the session server's process.
    """

    def __init__(
        self,
        server: ServerSettings,
        engine: EngineSettings | ReplaySettings | None,
        stack: contextlib.ExitStack,
        serve: Serve | None = None,
    ) -> None:
        self._processes: list[multiprocessing.process.BaseProcess] = []
        self._stack = stack
        self.engine_url = server.engine_url
        if engine is not None:
            self.engine_url = self._start("embedded engine", _serve_engine, engine)
            server = msgspec.structs.replace(server, engine_url=self.engine_url)
        self.server_url = self._start("session server", serve or _serve_sessions, server)
        pid = self._processes[-1].pid
        assert pid is not None
        self.server_pid = pid

    def wait(self) -> None:
        """Returns when both answer.

        Raises:
            DemoError: one does not.
        """
        for name, url in (("engine", self.engine_url), ("session server", self.server_url)):
            try:
                found = httpx2.get(f"{url}/health", timeout=_START_S, trust_env=False)
            except httpx2.HTTPError as error:
                raise DemoError(f"the {name} at {url} is not up: {error}") from error
            if not found.is_success:
                raise DemoError(f"the {name} at {url} is not up: {found.status_code} for /health")

    def fates(self) -> str:
        """Which of the processes have ended, as a further part of an error's text."""
        return "".join(
            f"; the {process.name} has ended with exit code {process.exitcode}"
            for process in self._processes
            if process.exitcode is not None
        )

    def _start(self, name: str, serve: Serve, settings: object) -> str:
        sock = bound("127.0.0.1", 0)
        url = url_of(sock)
        self._processes.append(self._stack.enter_context(serving(name, sock, serve, settings)))
        return url


def _serve_engine(sock: socket.socket, settings: EngineSettings | ReplaySettings) -> None:
    serve_on(sock, create_engine_app(engine_of(settings)))


def _serve_sessions(sock: socket.socket, settings: ServerSettings) -> None:
    serve_on(sock, create_app(settings))
