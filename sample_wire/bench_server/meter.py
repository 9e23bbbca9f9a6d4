"""The session server as `sample-wire serve` runs it, with a ticker in its loop."""

from __future__ import annotations

import socket
from typing import Final

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from ..adapters.server import ServerSettings, create_app
from ..adapters.server.processes import serve_on
from .ticker import Ticker

GAP_PATH: Final = "/bench/longest_gap"


class Meter:
    """Tells the longest gap of the loop since it was asked last; passes on all other requests.

    Args:
        app: the session server.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._ticker: Ticker | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == GAP_PATH:
            body = msgspec.json.encode(await self._longest_gap_s())
            length = [(b"content-length", b"%d" % len(body))]
            await send({"type": "http.response.start", "status": 200, "headers": length})
            await send({"type": "http.response.body", "body": body})
        else:
            await self._app(scope, receive, send)

    async def _longest_gap_s(self) -> float:
        before = self._ticker
        if before is not None:
            await before.__aexit__()
        self._ticker = await Ticker().__aenter__()
        return 0.0 if before is None else before.longest_s


def serve_metered(sock: socket.socket, settings: ServerSettings) -> None:
    """Serves until SIGTERM."""
    app = create_app(settings)
    app.add_middleware(Meter)
    serve_on(sock, app)
