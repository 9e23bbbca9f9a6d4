"""HTTP to an engine: its URL, the connections to it, and how its large replies are read."""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import AsyncGenerator, Callable
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Final

import httpx2

LAST_PORT: Final = 65535
# What zlib unpacks, by the window that it is told; 16 more means gzip.
_WINDOW_BITS: Final = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}
_KNOWN_ENCODINGS: Final = ("", "identity", *_WINDOW_BITS)
# Unpacking this much takes a few milliseconds.
_STEP_BYTES: Final = 1 << 20
# The libraries' own texts quote what they could not read, and what could not be sent.
_FAILURES: Final[tuple[tuple[type[httpx2.HTTPError], str], ...]] = (
    (httpx2.PoolTimeout, "all connections to the engine were used for too long"),
    (httpx2.TimeoutException, "the engine was silent for too long"),
    (httpx2.ConnectError, "no connection to the engine could be made"),
    (httpx2.LocalProtocolError, "the request cannot be sent over HTTP"),
    (httpx2.RemoteProtocolError, "what the engine sent is no whole reply of HTTP"),
    (httpx2.NetworkError, "the connection to the engine broke off"),
    (httpx2.DecodingError, "the reply's content encoding is not known, or is broken"),
)


def engine_url(text: str) -> httpx2.URL:
    """The base URL of an engine.

    Raises:
        ValueError: it is no URL of an HTTP server.
    """
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL as error:
        raise ValueError(f"the engine's URL is malformed: {error}") from None
    # httpx2 escapes what no host name may hold, instead of refusing it.
    if url.scheme not in ("http", "https") or not url.host or "%" in url.host:
        raise ValueError("the engine's URL starts with http:// or https:// and names a host")
    if url.query or url.fragment or (url.port or 1) > LAST_PORT:
        raise ValueError("the engine's URL is a host, maybe a port, and maybe a path")
    return url


def engine_http(timeout_s: float | None, max_connections: int) -> httpx2.AsyncClient:
    """A client that uses no connection twice.

    An engine that sends more than it told would have the rest taken for the answer to the next
    call, which may be another session's.  A new connection costs a turn 0.2 of 5 ms on loopback.

    Args:
        timeout_s: how long the engine may keep silent; None for ever.
    """
    return httpx2.AsyncClient(
        timeout=httpx2.Timeout(timeout_s),
        limits=httpx2.Limits(max_connections=max_connections, max_keepalive_connections=0),
        headers={"connection": "close"},
        # One session's cookies are not another's: none is kept, those of clients pass.
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        trust_env=False,  # a proxy of the environment is not meant for the engine
    )


def failure(error: httpx2.HTTPError) -> str:
    """What is told of a failed exchange: the error's class, and nothing that anybody sent."""
    words = (text for kind, text in _FAILURES if isinstance(error, kind))
    return f"{type(error).__name__}: {next(words, 'the exchange failed')}"


class TooLargeError(Exception):
    """A body is larger than it may be."""


async def read_body(
    response: httpx2.Response,
    max_bytes: int | None = None,
    count: Callable[[int], object] | None = None,
) -> bytearray:
    """The unpacked body, put together as it comes: joining 130 MB at the end holds up the loop.

    Args:
        max_bytes: that it may have when it is unpacked; None for no limit.
        count: told how many bytes have come, time after time.

    Raises:
        TooLargeError: it has more; no more than that was held at any time.
        httpx2.HTTPError: it breaks off, or its content encoding is not known.
    """
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in _KNOWN_ENCODINGS:
        raise httpx2.DecodingError("the content encoding is not known")
    if max_bytes is not None and _told_length(response.headers) > max_bytes:
        raise TooLargeError
    body = bytearray()
    async with contextlib.aclosing(_unpacked(response, encoding)) as chunks:
        async for chunk in chunks:
            body += chunk
            if count is not None:
                count(len(chunk))
            if max_bytes is not None and len(body) > max_bytes:
                raise TooLargeError
    return body


def _told_length(headers: httpx2.Headers) -> int:
    try:
        return int(headers.get("content-length", ""))
    except ValueError:
        return 0


async def _unpacked(response: httpx2.Response, encoding: str) -> AsyncGenerator[bytes, None]:
    """The body in pieces.  A few packed bytes may be a thousand times as many: they are unpacked
    in steps, and between two of them the loop serves others."""
    if encoding not in _WINDOW_BITS:
        async for chunk in response.aiter_bytes():
            yield chunk
        return
    unpacking = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        async for packed in response.aiter_raw():
            while packed:
                yield unpacking.decompress(packed, _STEP_BYTES)
                packed = unpacking.unconsumed_tail
                await asyncio.sleep(0)
        yield unpacking.flush()
    except zlib.error as error:
        raise httpx2.DecodingError("the packed body is broken") from error
    if not unpacking.eof:
        raise httpx2.DecodingError("the packed body breaks off")
