"""Requests to the session server, by the standard library: a client that costs little itself."""

from __future__ import annotations

import bisect
import contextlib
import http.client
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from .errors import BenchError

_PATIENCE_S: Final = 600.0
_PIECE_BYTES: Final = 1 << 20


class Span(NamedTuple):
    """When something began and ended, in seconds of time.monotonic, which all processes share."""

    started: float
    ended: float

    @property
    def length_s(self) -> float:
        """How long it took."""
        return self.ended - self.started


class Windows:
    """Spans that follow on each other.

    Args:
        spans: none begins before the one before it has ended.
    """

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans
        self._begins = [span.started for span in spans]

    def meet(self, other: Span) -> bool:
        """Whether one of them has a moment in common with another span."""
        last = bisect.bisect_right(self._begins, other.ended) - 1
        return last >= 0 and other.started <= self._spans[last].ended


class Server:
    """A session server, asked over one connection that is kept.

    Args:
        url: of it.
    """

    def __init__(self, url: str) -> None:
        host = urlsplit(url)
        self._http = http.client.HTTPConnection(
            str(host.hostname), host.port or 80, timeout=_PATIENCE_S
        )

    def create(self) -> str:
        """A new session's id."""
        session_id: str = self.told("POST", "/sessions")["session_id"]
        return session_id

    def told(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON of an answer.

        Raises:
            BenchError: the server refuses.
            OSError: there is no answer.
        """
        return msgspec.json.decode(self.ask(method, path, body))

    def delete(self, session_id: str) -> None:
        """Ends a session."""
        self.ask("DELETE", f"/sessions/{session_id}")

    def ask(self, method: str, path: str, body: Any = None) -> bytearray:
        """The body of an answer, received into one buffer.

        Raises:
            BenchError: the server refuses.
            OSError: there is no answer.
        """
        content = b"" if body is None else msgspec.json.encode(body)
        self._http.request(method, path, content, {"content-type": "application/json"})
        response = self._http.getresponse()
        received = _body(response)
        if not 200 <= response.status < 300:
            raise BenchError(f"{method} {path}: {response.status} {received[:500].decode()}")
        return received

    def close(self) -> None:
        """Closes the connection."""
        self._http.close()


@contextlib.contextmanager
def connected(url: str) -> Iterator[Server]:
    """A server to ask while the block runs."""
    with contextlib.closing(Server(url)) as server:
        yield server


def timed(began: float) -> Span:
    """From then to now."""
    return Span(began, time.monotonic())


def _body(response: http.client.HTTPResponse) -> bytearray:
    if response.length is not None:
        body = bytearray(response.length)
        view = memoryview(body)
        while view:
            count = response.readinto(view)
            if not count:
                raise BenchError("the server closed the connection early")
            view = view[count:]
        response.read()  # the end of it, which frees the connection
        return body
    body, piece = bytearray(), memoryview(bytearray(_PIECE_BYTES))
    while count := response.readinto(piece):
        body += piece[:count]
    return body
