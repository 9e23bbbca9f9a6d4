"""The engine, over HTTP."""

from __future__ import annotations

from dataclasses import dataclass

import httpx2

from ...errors import SessionError
from .._engine_http import engine_http, engine_url, read_body
from .headers import RawHeaders
from .settings import ServerSettings


@dataclass(frozen=True, slots=True)
class EngineReply:
    """What the engine answered: status, headers as sent, and the unpacked body."""

    status: int
    headers: RawHeaders
    body: bytes | bytearray

    @property
    def content_type(self) -> str:
        """The media type without its parameters, or ""."""
        for name, value in self.headers:
            if name.lower() == b"content-type":
                return value.decode("latin-1").partition(";")[0].strip().lower()
        return ""


class Engine:
    """Calls one engine; connections are kept and shared.

    Args:
        settings: engine_url, timeout_s and max_connections are used.

    Raises:
        ValueError: engine_url is no URL of an HTTP server.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._base = engine_url(settings.engine_url)
        self._client = engine_http(settings.timeout_s, settings.max_connections)

    async def send(
        self, method: str, path: str, query: bytes, headers: RawHeaders, body: bytes
    ) -> EngineReply:
        """One exchange.  Nothing is sent twice.

        Args:
            path: absolute, below the engine's base URL.
            query: the query string as the client sent it, without the question mark.

        Raises:
            SessionError: 502 "engine_unreachable", for every failure of the transport.
        """
        raw_path = self._base.raw_path.rstrip(b"/") + path.encode()
        url = self._base.copy_with(raw_path=raw_path + b"?" + query if query else raw_path)
        try:
            async with self._client.stream(method, url, headers=headers, content=body) as response:
                whole = await read_body(response)
        except httpx2.HTTPError as error:
            text = f"backend transport error: {type(error).__name__}: {error}"
            raise SessionError(text, code="engine_unreachable", http_status=502) from None
        return EngineReply(response.status_code, response.headers.raw, whole)

    async def aclose(self) -> None:
        """Closes all connections."""
        await self._client.aclose()
