"""One connection: which requests are read off it, and how long they may take to come.

uvicorn's protocol takes some requests in forms that another server on the way may read
otherwise, which is how one request is hidden in another.  Those are refused here, and the
connection is closed, when what came whole before them was answered.  A head and a body each have
a time in which they must have come, whether anybody waits for them or not; and a client that
stops reading its answer holds what it is made of no longer than that either.  While a request
waits for the answer to another one, nothing more is read.
"""

from __future__ import annotations

import asyncio
import collections
import logging
from collections.abc import MutableMapping, Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple, cast

import httptools
import msgspec
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from .errors import LINGER_S, REFUSAL_KEY
from .headers import REQUEST_ID, identify
from .logs import request_event
from .settings import BODY_TIMEOUT_S, HEAD_TIMEOUT_S, SEND_TIMEOUT_S

_log: Final = logging.getLogger(__name__)
# Tokens and cookies come to a few KB; nginx takes 32 KB in all, Apache 8 KB a line.
MAX_HEAD_BYTES: Final = 1 << 16
_VERSIONS: Final = ("1.0", "1.1")
# What is parsed at a time: requests of 40 bytes become 100 times as large.
_STEP_BYTES: Final = 1 << 14


class Deadlines(NamedTuple):
    """Seconds that the parts of an exchange may take.

    Attributes:
        head_s: for a head to come, from the connection or its own first byte on.
        body_s: for a body to come, from the end of its head on.
        send_s: for the client to take any more of an answer.
    """

    head_s: float = HEAD_TIMEOUT_S
    body_s: float = BODY_TIMEOUT_S
    send_s: float = SEND_TIMEOUT_S


class _Flow(FlowControl):
    """uvicorn's, which reads on with every answer, whatever else was read and has to wait."""

    _is_holding = False

    def hold(self, is_holding: bool) -> None:
        """Stops reading, or ends that."""
        was_holding, self._is_holding = self._is_holding, is_holding
        if is_holding:
            self.pause_reading()
        elif was_holding:
            self.resume_reading()

    def resume_reading(self) -> None:
        """As uvicorn's, but for what is on hold."""
        if not self._is_holding:
            super().resume_reading()


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, strict and with deadlines.

    Attributes:
        deadlines: of all connections of a server, whose own subclass sets them.
    """

    deadlines = Deadlines()

    flow: _Flow
    _unread: bytes | memoryview = b""
    _is_in_head = False
    _is_in_body = False
    _is_refused = False
    _has_begun = False
    _head_bytes = 0
    _begun_at = 0.0
    _refusal = b""
    _timer: asyncio.TimerHandle | None = None
    _send_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait for the first head."""
        super().connection_made(transport)
        self.flow = _Flow(transport)
        # Requests that were read and are not answered; the first one runs.
        self._due: collections.deque[RequestResponseCycle] = collections.deque()
        self._watch(self.deadlines.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends all waiting; uvicorn tells it to the last request only."""
        for cycle in self._due:
            _disconnect(cycle)
        self._unwatch()
        self._unwatch_sending()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Reads on, unless the connection was refused; an endless head is."""
        if not self._is_refused:
            self._unread = memoryview(bytes(self._unread) + data)
            self._read_on()

    def on_response_complete(self) -> None:
        """A request is answered: the next one runs, or more is read."""
        super().on_response_complete()
        self._due.popleft()
        if not self.transport.is_closing():
            self._read_on()
            self._send_refusal()

    def on_message_begin(self) -> None:
        """A head begins; that of a connection's first request is waited for already."""
        super().on_message_begin()
        self._is_in_head, self._has_begun, self._head_bytes = True, True, 0
        self._begun_at = self.loop.time()
        if self._timer is None:
            self._watch(self.deadlines.head_s)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Takes a field of the head; what comes behind the body must not pass for one."""
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        num_bytes = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if num_bytes > MAX_HEAD_BYTES:
            self._refuse_head()
        if self._is_refused or self._is_ambiguous():
            raise ValueError("the head is refused")  # ends the parser; data_received answers 400
        super().on_headers_complete()
        self._due.append(self.cycle)
        self._is_in_head, self._is_in_body = False, True
        self._watch(self.deadlines.body_s)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._is_in_body = False
        self._unwatch()
        super().on_message_complete()

    def pause_writing(self) -> None:
        """The client takes no more for now."""
        super().pause_writing()
        self._unwatch_sending()
        self._send_timer = self.loop.call_later(self.deadlines.send_s, self.transport.abort)

    def resume_writing(self) -> None:
        """It took nearly all that there was for it."""
        self._unwatch_sending()
        super().resume_writing()

    def break_off(self) -> None:
        """Ends a connection whose answer has begun and is not whole."""
        if self._due and self._due[0].response_started:
            _disconnect(self._due[0])
            self.transport.abort()

    def _read_on(self) -> None:
        """Reads what came, as far as no request waits for the answer to another one."""
        while self._unread and not self.pipeline and not self._is_refused:
            step, self._unread = self._unread[:_STEP_BYTES], self._unread[_STEP_BYTES:]
            self._read(step)
        self.flow.hold(bool(self._unread))

    def _read(self, data: bytes | memoryview) -> None:
        self._unset_keepalive_if_required()
        self._has_begun = False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self._refuse(400, "no valid HTTP request", code="bad_http")
        if self._is_in_head and not self._has_begun:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse_head()
        if self._timer is None and self.timeout_keep_alive_task is None and self._is_idle():
            self._watch(self.deadlines.head_s)  # empty lines came, and a head may yet

    def _is_ambiguous(self) -> bool:
        """Whether a head, which the parser took, leaves open where its message ends or goes.

        The parser refuses two lengths, a length beside chunks, and chunks that are malformed.
        """
        version = self.parser.get_http_version()
        hosts = [value for name, value in self.headers if name == b"host"]
        codings = [value for name, value in self.headers if name == b"transfer-encoding"]
        return (
            version not in _VERSIONS
            or len(hosts) > 1
            or (version == "1.1" and not hosts)
            or not _is_chunked(codings, version)
            or bool(self.parser.should_upgrade())
            or b"#" in self.url
        )

    def _refuse_head(self) -> None:
        self._refuse(431, f"a head has at most {MAX_HEAD_BYTES} bytes", code="head_too_large")

    def _overdue(self) -> None:
        self._timer = None
        if self.flow.read_paused:  # by us: the client cannot send
            self._watch(self.deadlines.body_s)
        elif not self._is_in_head and not self._is_in_body:
            self.transport.close()  # nothing was asked
        else:
            self._refuse(408, "the request took too long to come", code="slow_request")

    def _refuse(self, status: int, text: str, *, code: str) -> None:
        """Answers and closes, when what came before is answered; nothing more is read."""
        if self._is_refused:
            return
        self._unwatch()
        self._is_refused, self._unread = True, b""
        if self._is_in_body and self.cycle.response_started:
            self.transport.close()
            return
        scope = cast("MutableMapping[str, Any]", self.scope)
        request_id = identify(scope)
        self._refusal = _refusal(status, text, code, request_id)
        if self._is_in_body and not self.pipeline:
            scope[REFUSAL_KEY] = (status, code)  # the application tells of it
        else:
            seconds = self.loop.time() - self._begun_at
            method = scope.get("method", "")
            _log.info("request", extra=request_event(request_id, method, "", status, code, seconds))
        if self._is_in_body:
            self._drop()
        self._send_refusal()

    def _drop(self) -> None:
        """The application waits no longer for the body of a request, or never sees it."""
        _disconnect(self._due.pop())
        if self.pipeline:
            self.pipeline.popleft()  # the last to come

    def _send_refusal(self) -> None:
        """Answers with a refusal, should there be one, when all before it was answered."""
        if self._refusal and not self._due and not self.transport.is_closing():
            self.transport.write(self._refusal)
            self._refusal = b""
            self.transport.write_eof()
            self.loop.call_later(LINGER_S, self.transport.close)

    def _is_idle(self) -> bool:
        """Whether no request that was read waits for its answer, and none is being read."""
        return not (self._due or self._is_in_body or self._is_refused)

    def _watch(self, seconds: float) -> None:
        self._unwatch()
        self._timer = self.loop.call_later(seconds, self._overdue)

    def _unwatch_sending(self) -> None:
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _disconnect(cycle: RequestResponseCycle) -> None:
    """Whoever answers this request learns that nobody waits for it."""
    cycle.disconnected = True
    cycle.message_event.set()


def _is_chunked(codings: Sequence[bytes], version: str) -> bool:
    """Whether a message has no transfer coding, or the one that we can undo."""
    return not codings or (
        version == "1.1" and len(codings) == 1 and codings[0].strip().lower() == b"chunked"
    )


def _refusal(status: int, text: str, code: str, request_id: str) -> bytes:
    """A whole answer, in the form that all errors have."""
    body = msgspec.json.encode({"error": text, "code": code})
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
        "content-type: application/json\r\n"
        f"content-length: {len(body)}\r\n"
        f"{REQUEST_ID.decode()}: {request_id}\r\n"
        "connection: close\r\n\r\n"
    )
    return head.encode() + body
