"""The engine, over HTTP."""

from __future__ import annotations

import mmap
import re
from dataclasses import dataclass
from typing import Final

import httpx2

from ...errors import SessionError
from ...session import ReplyBytes
from ...session.replies import bad_reply
from .._engine_http import TooLargeError, engine_http, engine_url, failure, read_body
from .budgets import ByteCount
from .headers import RawHeaders
from .settings import ServerSettings

# Smaller bodies find room in what the allocator has.
_MAPPED_BYTES: Final = 1 << 20
_LAST_STATUS: Final = 599
_CONTROLS: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class EngineReply:
    """What the engine answered: status, headers as sent, and the unpacked body."""

    status: int
    headers: RawHeaders
    body: ReplyBytes

    @property
    def content_type(self) -> str:
        """The media type without its parameters, or ""."""
        for name, value in self.headers:
            if name.lower() == b"content-type":
                return value.decode("latin-1").partition(";")[0].strip().lower()
        return ""


class Engine:
    """Calls one engine; each call has a connection of its own.

    Args:
        settings: engine_url, timeout_s, max_connections and max_reply_bytes are used.
        receiving: counts what has come of an answer until all of it has.

    Raises:
        ValueError: engine_url is no URL of an HTTP server.
    """

    def __init__(self, settings: ServerSettings, receiving: ByteCount) -> None:
        self._receiving = receiving
        self._base = engine_url(settings.engine_url)
        self._client = engine_http(settings.timeout_s, settings.max_connections)
        self._max_bytes = settings.max_reply_bytes

    async def send(
        self, method: str, path: str, query: bytes, headers: RawHeaders, body: bytes
    ) -> EngineReply:
        """One exchange.  Nothing is sent twice.

        Args:
            path: absolute, below the engine's base URL.
            query: the query string as the client sent it, without the question mark.

        Raises:
            SessionError: 502 "engine_timeout" where the engine was silent for too long,
                "engine_unreachable" for every other failure of the transport, and
                "bad_engine_reply" for a reply that is larger than max_reply_bytes, and for
                a head that no server may send on: a redirect, say, which is not followed.
        """
        raw_path = self._base.raw_path.rstrip(b"/") + path.encode()
        url = self._base.copy_with(raw_path=raw_path + b"?" + query if query else raw_path)
        try:
            async with self._client.stream(method, url, headers=headers, content=body) as response:
                _check_head(response.status_code, response.headers.raw)
                whole = await _read(response, self._max_bytes, self._receiving)
        except httpx2.TimeoutException as error:
            raise self._timed_out(error) from None
        except httpx2.HTTPError as error:
            raise _transport_error(failure(error), "engine_unreachable") from None
        except TooLargeError:
            raise bad_reply(f"it has more than {self._max_bytes} bytes (max_reply_bytes)") from None
        return EngineReply(response.status_code, response.headers.raw, whole)

    def _timed_out(self, error: httpx2.TimeoutException) -> SessionError:
        waited = f"for {self._client.timeout.read} s (timeout_s)"
        text = f"{type(error).__name__}: the engine was silent {waited}"
        if isinstance(error, httpx2.PoolTimeout):
            text = f"PoolTimeout: all max_connections to the engine were in use {waited}"
        return _transport_error(text, "engine_timeout")

    async def aclose(self) -> None:
        """Closes all connections."""
        await self._client.aclose()


def _transport_error(text: str, code: str) -> SessionError:
    return SessionError(f"backend transport error: {text}", code=code, http_status=502)


def _check_head(status: int, headers: RawHeaders) -> None:
    """What passes can be sent to the client: our own server closes the connection over others."""
    if not _is_final(status):
        raise bad_reply(f"its status is {status}")
    if any(_CONTROLS.search(value) for _, value in headers):
        raise bad_reply("one of its headers holds a control character")


def _is_final(status: int) -> bool:
    """Whether a status can be sent on.  Clients would follow a redirect to wherever it points."""
    return 200 <= status <= _LAST_STATUS and not 300 <= status < 400


async def _read(response: httpx2.Response, max_bytes: int, receiving: ByteCount) -> ReplyBytes:
    """The unpacked body; a large one in memory that goes back to the system with it.

    What the allocator gives to replies that grow with the session stays in holes: 100 MB beside
    a session of 25.
    """
    mapped = _mapped(response.headers, max_bytes)
    with receiving.counted() as count:
        if mapped is None:
            return await read_body(response, max_bytes, count)
        # A body that is shorter or longer than it says is an error of the transport.
        async for chunk in response.aiter_bytes():
            count(mapped.write(chunk))
        return mapped


def _mapped(headers: httpx2.Headers, max_bytes: int) -> mmap.mmap | None:
    """Memory for a large body whose length is told and that is not packed; else None."""
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        return None
    try:
        length = int(headers.get("content-length", ""))
        return mmap.mmap(-1, length) if _MAPPED_BYTES <= length <= max_bytes else None
    except (ValueError, OverflowError, OSError):  # no number, or more than there is
        return None
