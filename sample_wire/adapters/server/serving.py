"""How an application is served over HTTP, and how a session server comes to its end."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from .protocol import Deadlines, GuardedProtocol
from .settings import STOP_TIMEOUT_S
from .state import ServerState

# A connection that is closed under a request cannot be retried safely, so clients give it up first:
# OpenAI's after 5 s.  Idle ones are files that are open, and need no token.
_KEEPALIVE_S: Final = 75
# For answers to what was given up.
_MARGIN_S: Final = 2


def http_server(app: ASGIApp) -> uvicorn.Server:
    """Serves an application, one of create_app with the deadlines of its settings."""
    state = getattr(getattr(app, "state", None), "server", None)
    return SessionServer(app, state) if isinstance(state, ServerState) else _plain_server(app)


class SessionServer(uvicorn.Server):
    """Serves create_app's application; when it is told to end, no request is left half done.

    Running requests may finish in stop_timeout_s.  Those that have not are refused with 503,
    and have changed nothing; an answer that is being sent by then breaks off.
    """

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self._state = state
        settings = state.settings
        deadlines = Deadlines(
            settings.head_timeout_s, settings.body_timeout_s, settings.send_timeout_s
        )
        super().__init__(_config(app, deadlines, settings.stop_timeout_s))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's."""
        self._state.is_draining = True
        loop = asyncio.get_running_loop()
        giving_up = loop.call_later(self._state.settings.stop_timeout_s, self._give_up)
        try:
            await super().shutdown(sockets)
        finally:
            giving_up.cancel()

    def _give_up(self) -> None:
        self._state.is_stopping = True
        for connection in list(self.server_state.connections):
            assert isinstance(connection, GuardedProtocol)
            connection.break_off()
        for task in self.server_state.tasks:
            task.cancel()


def _plain_server(app: ASGIApp) -> uvicorn.Server:
    return uvicorn.Server(_config(app, Deadlines(), STOP_TIMEOUT_S))


def _config(app: ASGIApp, limits: Deadlines, stop_timeout_s: float) -> uvicorn.Config:
    class Protocol(GuardedProtocol):
        deadlines = limits

    return uvicorn.Config(
        app,
        loop="uvloop",
        http=Protocol,
        ws="none",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEPALIVE_S,
        timeout_graceful_shutdown=int(stop_timeout_s) + _MARGIN_S,
    )
