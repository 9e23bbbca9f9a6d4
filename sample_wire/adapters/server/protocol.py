"""One connection: which requests are read off it, and how long they may take to come.

uvicorn's protocol takes some requests in forms that another server on the way may read
otherwise, which is how one request is hidden in another.  Those are refused here, and the
connection is closed.  A head and a body each have a time in which they must have come, whether
anybody waits for them or not; and a client that stops reading its answer holds what it is made
of no longer than that either.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final, NamedTuple

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_log: Final = logging.getLogger(__name__)
# Tokens and cookies come to a few KB; nginx takes 32 KB in all, Apache 8 KB a line.
MAX_HEAD_BYTES: Final = 1 << 16
# What a client that is refused may still send before its connection is cut: with bytes of it
# unread, the system would take the answer back too.
_LINGER_S: Final = 1.0
_VERSIONS: Final = ("1.0", "1.1")


class Deadlines(NamedTuple):
    """Seconds that the parts of an exchange may take.

    Attributes:
        head_s: for a head to come, from the connection or its own first byte on.
        body_s: for a body to come, from the end of its head on.
        send_s: for the client to take any more of an answer.
    """

    head_s: float = 30.0
    body_s: float = 120.0
    send_s: float = 120.0


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, strict and with deadlines.

    Attributes:
        deadlines: of all connections of a server, whose own subclass sets them.
    """

    deadlines = Deadlines()

    _is_in_head = False
    _is_in_body = False
    _is_refused = False
    _head_bytes = 0
    _timer: asyncio.TimerHandle | None = None
    _send_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait for the first head."""
        super().connection_made(transport)
        self._watch(self.deadlines.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends all waiting."""
        self._unwatch()
        self._unwatch_sending()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Reads on, unless the connection was refused; an endless head is."""
        if self._is_refused:
            return
        was_in_body = self._is_in_body
        super().data_received(data)
        if self._is_in_head and not was_in_body:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse_head()
        if self._timer is None and self.timeout_keep_alive_task is None and self._is_idle():
            self._watch(self.deadlines.head_s)  # empty lines came, and a head may yet

    def on_message_begin(self) -> None:
        """A head begins; that of a connection's first request is waited for already."""
        super().on_message_begin()
        self._is_in_head, self._head_bytes = True, 0
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

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  # uvicorn's
        """Refuses what is no HTTP."""
        self._refuse(400, "no valid HTTP request", code="bad_http")

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
        """Answers and closes; nothing more is read."""
        if self._is_refused:
            return
        self._unwatch()
        self._is_refused = True
        _log.info("refused", extra={"status": status, "code": code})
        if self.transport.is_closing():
            return
        if not self._may_answer():
            self.transport.close()
            return
        self.transport.write(_refusal(status, text, code))
        self.transport.write_eof()
        self.loop.call_later(_LINGER_S, self.transport.close)

    def _may_answer(self) -> bool:
        """Whether an answer of our own would be taken for that of the request it is for."""
        if self._is_in_body:
            return not self.cycle.response_started and not self.pipeline
        return self._is_idle()

    def _is_idle(self) -> bool:
        """Whether no request that came whole waits for its answer."""
        # uvicorn declares a cycle, but has none before the first head.
        return self.cycle is None or (  # type: ignore[redundant-expr]
            self.cycle.response_complete and not self._is_in_body
        )

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


def _is_chunked(codings: Sequence[bytes], version: str) -> bool:
    """Whether a message has no transfer coding, or the one that we can undo."""
    return not codings or (
        version == "1.1" and len(codings) == 1 and codings[0].strip().lower() == b"chunked"
    )


def _refusal(status: int, text: str, code: str) -> bytes:
    """A whole answer, in the form that all errors have."""
    body = msgspec.json.encode({"error": text, "code": code})
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
        "content-type: application/json\r\n"
        f"content-length: {len(body)}\r\n"
        "connection: close\r\n\r\n"
    )
    return head.encode() + body
