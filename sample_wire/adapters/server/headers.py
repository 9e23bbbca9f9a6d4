"""Which headers go on to the engine, and which come back."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Scope

from .settings import ServerSettings

RawHeaders = list[tuple[bytes, bytes]]
ROUTING_KEY: Final = b"x-smg-routing-key"
REQUEST_ID: Final = b"x-request-id"
_SAFE_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
# RFC 9110, section 7.6.1: these belong to one connection, and a proxy must not pass them on.
_HOP_BY_HOP: Final = frozenset(
    (
        *(b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"upgrade"),
        *(b"proxy-authenticate", b"proxy-authorization"),
    )
)
_SELF_MADE: Final = frozenset((b"content-length", b"transfer-encoding"))
# accept-encoding: what the client can unpack says nothing of what we can.  content-encoding:
# bodies are rendered anew.  referer: it may hold the session's URL, and so its id.
_NOT_TO_ENGINE: Final = (
    _HOP_BY_HOP
    | _SELF_MADE
    | {b"host", b"expect", b"accept-encoding", b"content-encoding", b"referer"}
    | {ROUTING_KEY, REQUEST_ID}
)
# Our own server adds server and date; with two of them some clients refuse the reply.
_NOT_TO_CLIENT: Final = _HOP_BY_HOP | _SELF_MADE | {b"content-encoding", b"server", b"date"}


def to_engine(
    headers: Iterable[tuple[bytes, bytes]], session_id: str, settings: ServerSettings
) -> RawHeaders:
    """A client's headers for the engine, with the session's routing key and no other.

    The request's id goes on as it is, whatever a Connection header says of it.  A name with an
    underscore ends here: gateways read it as a hyphen, and it would pass for what is ours.

    The engine is asked not to compress: base64 of a hundred megabytes costs seconds.  Where
    the server has a token, what a client authorizes itself with is that, and stays here.
    """
    own = {b"authorization"} if settings.token is not None else set()
    headers = list(headers)
    return [
        *(pair for pair in _without(headers, _NOT_TO_ENGINE | own) if b"_" not in pair[0]),
        *(pair for pair in headers if pair[0] == REQUEST_ID),
        (b"accept-encoding", b"identity"),
        (b"X-SMG-Routing-Key", routing_key(session_id)),
    ]


def routing_key(session_id: str) -> bytes:
    """What a router in front of several engines keeps a session's turns together by.

    Whoever knows a session's id may use it; from this key nobody can tell the id.
    """
    return hashlib.sha256(session_id.encode()).hexdigest()[:32].encode()


def identify(scope: Scope) -> str:
    """A request's id: its own, where it may stand in a log, or a new one.

    From then on the request has that header, and no other of its kind.
    """
    given = Headers(scope=scope).get(REQUEST_ID.decode(), "")
    request_id = given if _SAFE_ID.fullmatch(given) else secrets.token_hex(16)
    others = [pair for pair in scope["headers"] if pair[0] != REQUEST_ID]
    scope["headers"] = [*others, (REQUEST_ID, request_id.encode())]
    return request_id


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
