"""The session server in a process of its own, as the command `serve` runs it, and its meter.

Run as `python -m benchmarks._session_server SETUP`, SETUP being a Setup as JSON, it reads the ids
of a session from standard input (int64), prints its port, and serves until it is killed.  It
knows neither the replies nor the rows of the session: its memory is what a server's is.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from contextvars import ContextVar
from time import perf_counter, thread_time
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
from starlette.types import ASGIApp, Receive, Scope, Send

from benchmarks._client import LOOPBACK
from sample_wire.adapters.server import ServerSettings, create_app
from sample_wire.adapters.server.processes import serve_on
from sample_wire.adapters.server.upstream import Engine, EngineReply
from sample_wire.assembly import RoutingSpec
from sample_wire.bench_server.ticker import TICK_S, Ticker
from sample_wire.session import Message

CALLS_PATH: Final = "/benchmark/calls"
TICKER_PATH: Final = "/benchmark/ticker"


class Setup(msgspec.Struct):
    """What the process is told.

    Attributes:
        engine_url, routing: settings of the server.
        num_new: ids that each turn's prompt adds.
    """

    engine_url: str
    routing: RoutingSpec
    num_new: int


class Call(msgspec.Struct):
    """What one request cost in the server, in seconds.

    Attributes:
        ready_s: from the request's head to the response's head.
        whole_s: to the response's end.
        engine_s: of both, what the engine and the transport to and from it took.
        cpu_s: processor time of the server's thread from head to head.
        engine_cpu_s: of that, what the transport to and from the engine took.
    """

    ready_s: float = 0.0
    whole_s: float = 0.0
    engine_s: float = 0.0
    cpu_s: float = 0.0
    engine_cpu_s: float = 0.0


_current: ContextVar[Call] = ContextVar("call")


class Meter:
    """Keeps what each request cost, and runs a ticker in the server's loop on demand."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._calls: list[Call] = []
        self._num_open = 0
        self._ticker = Ticker()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["path"] == CALLS_PATH:
            while self._num_open:  # a client has its answer before the call has ended here
                await asyncio.sleep(TICK_S)
            await _answer(send, msgspec.json.encode(self._calls))
            self._calls.clear()
        elif scope["path"] == TICKER_PATH:
            await _answer(send, await self._tick(scope["method"]))
        else:
            await self._measured(scope, receive, send)

    async def _measured(self, scope: Scope, receive: Receive, send: Send) -> None:
        call, started, cpu_started = Call(), perf_counter(), thread_time()
        _current.set(call)

        async def noted(event: MutableMapping[str, Any]) -> None:
            if event["type"] == "http.response.start":
                call.ready_s = perf_counter() - started
                call.cpu_s = thread_time() - cpu_started
            await send(event)

        self._num_open += 1
        await self._app(scope, receive, noted)
        self._num_open -= 1
        call.whole_s = perf_counter() - started
        self._calls.append(call)

    async def _tick(self, method: str) -> bytes:
        """POST starts a ticker, DELETE stops it and tells its longest gap."""
        if method == "POST":
            self._ticker = await Ticker().__aenter__()
        else:
            await self._ticker.__aexit__()
        return msgspec.json.encode(self._ticker.longest_s)


class SessionTokenizer:
    """Gives the prompts of one session, whatever the messages say.

    Rendering costs nothing here, as it is no part of what is measured.

    Args:
        ids: of the whole session.
        num_new: ids that each prompt adds.
    """

    max_trim_tokens = 0
    allowed_append_roles = frozenset({"user"})

    def __init__(self, ids: npt.NDArray[np.int64], num_new: int) -> None:
        self._ids = ids
        self._num_new = num_new

    def template_kwargs(self, request_kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
        return dict(request_kwargs or {})

    def render(self, *_: object) -> list[int]:
        return self._after(0)

    def append(self, checkpoint_ids: Sequence[int], *_: object) -> tuple[int, list[int]]:
        return len(checkpoint_ids), self._after(len(checkpoint_ids))

    def decode(self, ids: Sequence[int]) -> str:
        return "word " * len(ids)

    def decode_message(self, ids: Sequence[int]) -> str:
        return self.decode(ids)

    def mismatch(
        self,
        messages: Sequence[Message],  # noqa: ARG002  # the protocol's, as those below
        tools: Sequence[Any] | None,  # noqa: ARG002
        kwargs: Mapping[str, Any],  # noqa: ARG002
        ids: Sequence[int],  # noqa: ARG002
    ) -> list[dict[str, Any]]:
        return []

    def _after(self, start: int) -> list[int]:
        ids: list[int] = self._ids[start : start + self._num_new].tolist()
        return ids


async def _answer(send: Send, body: bytes) -> None:
    length = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": length})
    await send({"type": "http.response.body", "body": body})


def _time_engine_calls() -> None:
    """Has every call of the engine noted with the request that it was made for."""
    send = Engine.send

    async def timed(self: Engine, *arguments: Any) -> EngineReply:
        call, started, cpu_started = _current.get(), perf_counter(), thread_time()
        try:
            return await send(self, *arguments)
        finally:
            call.engine_s += perf_counter() - started
            call.engine_cpu_s += thread_time() - cpu_started

    Engine.send = timed  # type: ignore[assignment,method-assign]  # the call is as it was


def main(text: str) -> None:
    """The process that is measured."""
    setup = msgspec.json.decode(text, type=Setup)
    ids = np.frombuffer(sys.stdin.buffer.read(), np.int64)
    settings = ServerSettings(
        engine_url=setup.engine_url, tokenizer="of the benchmark", routing=setup.routing
    )
    _time_engine_calls()
    app = create_app(settings, tokenizer=SessionTokenizer(ids, setup.num_new))
    app.add_middleware(Meter)
    with socket.create_server((LOOPBACK, 0)) as sock:
        print(sock.getsockname()[1], flush=True)
        serve_on(sock, app)


if __name__ == "__main__":
    main(sys.argv[1])
