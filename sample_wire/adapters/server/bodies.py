"""The bodies of requests: read as far as they may go, and those beside chat checked."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple

import msgspec
from starlette.requests import Request

from ...errors import SessionError
from ...session import parse_body
from .state import ServerState

# Handshakes have 100 bytes, agents' metadata some KB.
SMALL_BODY_BYTES: Final = 1 << 20


class _Stated(msgspec.Struct):
    """What a handshake may state.  All else in it is passed over, and nothing is made of it."""

    field_set: msgspec.Raw = msgspec.Raw(b"null")
    schema: msgspec.Raw = msgspec.Raw(b"null")


async def read_body(state: ServerState, request: Request) -> bytes:
    """The body of a request that is no chat.

    Raises:
        SessionError: as `chat_body`.
        ClientDisconnect: the client has gone.
    """
    most = min(SMALL_BODY_BYTES, state.settings.max_body_bytes)
    async with _body(state, request, most) as body:
        return body


def chat_body(
    state: ServerState, request: Request
) -> contextlib.AbstractAsyncContextManager[bytes]:
    """The body of a chat; it counts as on its way until this is left.

    Raises:
        SessionError: when it is entered, 413 "body_too_large" as soon as that is known, or 503
            "busy" where there is no room for it.
        ClientDisconnect: the client has gone.
    """
    return _body(state, request, state.settings.max_body_bytes)


@contextlib.asynccontextmanager
async def _body(state: ServerState, request: Request, most: int) -> AsyncIterator[bytes]:
    if int(request.headers.get("content-length", "0")) > most:
        raise _too_large(most)
    body = bytearray()
    with state.budgets.incoming.counted() as count:
        async for chunk in request.stream():
            body += chunk
            if len(body) > most:
                raise _too_large(most)
            count(len(chunk))
            state.budgets.check_incoming()
        yield bytes(body)


def _too_large(most: int) -> SessionError:
    return SessionError(f"a body has at most {most} bytes", code="body_too_large", http_status=413)


class SamplesRequest(NamedTuple):
    """What is asked of a session's samples.

    Attributes:
        max_seq_len: tokens that a sample may have; None for no limit.
        metadata: what the agent leaves to the samples, an object if it is meant to be one.
    """

    max_seq_len: int | None
    metadata: object


def samples_request(body: bytes) -> SamplesRequest:
    """A samples request.

    Raises:
        SessionError: 400, for a body that is no JSON object, or a limit that is no integer.
    """
    found = parse_body(body)
    limit = found.get("max_seq_len")
    if limit is not None and type(limit) is not int:
        raise SessionError(
            "max_seq_len is not an integer and not null",
            code="invalid_max_seq_len",
            http_status=400,
        )
    return SamplesRequest(limit, found.get("metadata"))


def check_handshake(body: bytes, ours: dict[str, Any]) -> None:
    """Passes unless a client states another field set or schema than ours.

    A body that is no JSON object states nothing: clients that know no handshake may send
    anything.

    Raises:
        SessionError: 409 "schema_mismatch".
    """
    try:
        theirs = msgspec.json.decode(body or b"{}", type=_Stated)
    except (msgspec.DecodeError, RecursionError):
        return
    for key in _Stated.__struct_fields__:
        if not _agrees(getattr(theirs, key), ours[key]):
            raise SessionError(
                f"the client's {key} is not the server's, which is {ours[key]}",
                code="schema_mismatch",
                http_status=409,
            )


def _agrees(stated: msgspec.Raw, ours: Any) -> bool:
    """Whether what is stated is ours, or null."""
    try:
        return msgspec.json.decode(stated, type=type(ours) | None) in (None, ours)
    except (msgspec.DecodeError, UnicodeError):
        return False
