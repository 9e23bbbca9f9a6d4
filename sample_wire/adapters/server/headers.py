"""Which headers go on to the engine, and which come back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

RawHeaders = list[tuple[bytes, bytes]]
ROUTING_KEY: Final = b"x-smg-routing-key"
# RFC 9110, section 7.6.1: these belong to one connection, and a proxy must not pass them on.
_HOP_BY_HOP: Final = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"upgrade")
)
_SELF_MADE: Final = frozenset((b"content-length", b"transfer-encoding"))
# accept-encoding: what the client can unpack says nothing of what we can.  content-encoding:
# bodies are rendered anew.
_NOT_TO_ENGINE: Final = (
    _HOP_BY_HOP
    | _SELF_MADE
    | {b"host", b"expect", b"accept-encoding", b"content-encoding", ROUTING_KEY}
)
# Our own server adds server and date; with two of them some clients refuse the reply.
_NOT_TO_CLIENT: Final = _HOP_BY_HOP | _SELF_MADE | {b"content-encoding", b"server", b"date"}


def to_engine(headers: Iterable[tuple[bytes, bytes]], session_id: str) -> RawHeaders:
    """A client's headers for the engine, with the session's routing key and no other.

    The engine is asked not to compress: base64 of a hundred megabytes costs seconds.
    """
    kept = _without(headers, _NOT_TO_ENGINE)
    return [*kept, (b"accept-encoding", b"identity"), (b"X-SMG-Routing-Key", session_id.encode())]


def to_client(headers: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
    """The engine's headers for the client."""
    return [(name.lower(), value) for name, value in _without(headers, _NOT_TO_CLIENT)]


def _without(headers: Iterable[tuple[bytes, bytes]], dropped: frozenset[bytes]) -> RawHeaders:
    """The headers without these, and without those that a Connection header names."""
    headers = list(headers)
    named = {
        option.strip().lower()
        for name, value in headers
        if name.lower() == b"connection"
        for option in value.split(b",")
    }
    return [(name, value) for name, value in headers if name.lower() not in dropped | named]
