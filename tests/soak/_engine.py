"""The embedded engine as a process that tells of a request that it holds.

Run as `python -m tests.soak._engine PORT` it prints where it listens.  A chat with the header
x-soak-hold is told by one more line, and never answered: so it is at the engine for certain
when the process is killed.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from sample_wire.adapters.server.processes import bound, serve_on, url_of
from sample_wire.demo.engine import Engine, EngineSettings
from sample_wire.demo.engine.app import create_app

HOLD: Final = "x-soak-hold"
SETTINGS: Final = EngineSettings(
    num_layers=2, num_experts=8, top_k=2, hidden_size=32, num_heads=2, mean_answer_tokens=8
)


class Holding:
    """An application some of whose requests are never answered."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if HOLD.encode() in dict(scope.get("headers", ())):
            print("held", flush=True)
            await asyncio.Event().wait()
        await self._app(scope, receive, send)


def main(port: int) -> None:
    """The process."""
    with bound("127.0.0.1", port) as sock:
        print(f"serving on {url_of(sock)}", flush=True)
        serve_on(sock, Holding(create_app(Engine(SETTINGS))))


if __name__ == "__main__":
    main(int(sys.argv[1]))
