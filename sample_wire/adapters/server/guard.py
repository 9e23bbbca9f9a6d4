"""What every request passes on its way in, and every answer on its way out.

A request has an id, which stands in its answer, in the log and in what is sent to the engine.
It must carry the token, where the server has one.  An answer that comes before much of its request
was read closes the connection, when the client has had the time to read it.  And each request
is told to the log once, with nothing of a conversation in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import time
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...errors import SessionError
from .budgets import busy
from .errors import CODE_KEY, LINGER_S, REFUSAL_KEY, answer_to
from .headers import REQUEST_ID, identify
from .logs import request_event
from .routing import ROUTE_KEY
from .state import ServerState

_log: Final = logging.getLogger(__name__)
_OPEN_PATH: Final = "/health"
# So much of a body is read on for the connection's sake.
_LITTLE_BYTES: Final = 1 << 16


class Guard:
    """An ASGI application around the routes.

    Args:
        app: the routes.
        state: of the server.
    """

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self._app = app
        self._state = state
        self._num_running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.monotonic()
        exchange = _Exchange(scope, receive, send)
        try:
            await self._answered(exchange)
        finally:
            self._tell(exchange, time.monotonic() - started)

    async def _answered(self, exchange: _Exchange) -> None:
        try:
            if _is_open(exchange.scope):
                await self._app(exchange.scope, exchange.receive, exchange.send)
            elif self._is_unauthorized(exchange.scope):
                await exchange.refuse(_unauthorized())
            else:
                await self._run(exchange)
        except asyncio.CancelledError:
            if not self._state.is_stopping:
                raise
            if exchange.status:  # what has begun cannot be another answer: it breaks off
                exchange.scope[CODE_KEY] = _stopping().code
            else:
                await exchange.refuse(_stopping())

    async def _run(self, exchange: _Exchange) -> None:
        """Runs one of the requests that there may be so many of."""
        most = self._state.settings.max_running_requests
        if self._num_running >= most:
            await exchange.refuse(busy(f"{most} requests are running"))
            return
        self._num_running += 1
        try:
            await self._app(exchange.scope, exchange.receive, exchange.send)
        finally:
            self._num_running -= 1

    def _is_unauthorized(self, scope: Scope) -> bool:
        token = self._state.settings.token
        if token is None:
            return False
        given = Headers(scope=scope).getlist("authorization")
        scheme, _, value = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        same = hmac.compare_digest(value.strip().encode("latin-1"), token.encode())
        return scheme.lower() != "bearer" or not same

    def _tell(self, exchange: _Exchange, seconds: float) -> None:
        scope = exchange.scope
        route = scope.get(ROUTE_KEY, "")
        status, code = scope.get(REFUSAL_KEY, (exchange.status, scope.get(CODE_KEY)))
        told = request_event(exchange.request_id, scope["method"], route, status, code, seconds)
        level = logging.DEBUG if route == _OPEN_PATH and status < 400 else logging.INFO
        _log.log(level, "request", extra=told)


def _is_open(scope: Scope) -> bool:
    """Whether a request asks for health, which is told to anybody at any time."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", "")) == _OPEN_PATH


class _Exchange:
    """A request and its answer, as they pass.

    Attributes:
        scope: of the request.
        request_id: the client's, or one of ours.
        status: of the answer; 0 before there is one.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.status = 0
        self._receive = receive
        self._send = send
        headers = Headers(scope=scope)
        self.request_id = identify(scope)
        # Whether no more comes than may be passed over before the connection's next request.
        self._is_read = (
            "transfer-encoding" not in headers
            and int(headers.get("content-length", "0")) <= _LITTLE_BYTES
        )

    async def refuse(self, error: SessionError) -> None:
        """Answers with an error."""
        response = answer_to(Request(self.scope), error)
        await response(self.scope, self.receive, self.send)

    async def receive(self) -> Message:
        """A part of the request."""
        message = await self._receive()
        if not message.get("more_body"):
            self._is_read = True
        return message

    async def send(self, message: Message) -> None:
        """A part of the answer."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [pair for pair in message["headers"] if pair[0].lower() != REQUEST_ID]
            headers.append((REQUEST_ID, self.request_id.encode()))
            if not self._is_read:
                headers.append((b"connection", b"close"))
            message = {**message, "headers": headers}
        elif not self._is_read and not message.get("more_body"):
            await self._send({**message, "more_body": True})
            await self._linger()
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await self._send(message)

    async def _linger(self) -> None:
        """Takes what the client still sends: it may read the answer only when it is done.

        A connection that is closed with bytes unread takes back the answer too.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                while not self._is_read:
                    await self.receive()


def _unauthorized() -> SessionError:
    return SessionError(
        "the bearer token is missing or wrong", code="unauthorized", http_status=401
    )


def _stopping() -> SessionError:
    return SessionError(
        "the server stops: the request was given up and changed nothing",
        code="stopping",
        http_status=503,
    )
