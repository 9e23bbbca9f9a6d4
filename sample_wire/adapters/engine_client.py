"""HttpEngine: SGLang's /generate, for rollouts that hold their conversations themselves.

Needs the extra `client`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self

import httpx2

from .._json import MAX_JSON_DEPTH, encode_json
from .._plain import NotPlainError, plain
from ..errors import ClientError, EncodeError, ServerError
from ._client_answer import MAX_REFUSAL_BYTES
from ._engine_http import engine_http, engine_url, failure, read_body

_JSON: Final = {"content-type": "application/json", "accept": "application/json"}
_MAX_CONNECTIONS: Final = 1024


class HttpEngine:
    """An engine's /generate; one for all rollouts of an event loop, however many.

    A context manager that closes its connections; each call has its own.

    Args:
        url: base URL of the engine.
        timeout_s: how long the engine may keep silent; None for ever.

    Raises:
        ValueError: url is no URL of an HTTP server.
    """

    def __init__(self, url: str, *, timeout_s: float | None = 600.0) -> None:
        base = engine_url(url)
        self._url = base.copy_with(raw_path=base.raw_path.rstrip(b"/") + b"/generate")
        self._http = engine_http(timeout_s, _MAX_CONNECTIONS)

    async def generate(self, body: Mapping[str, Any]) -> bytearray:
        """The reply to a request, a 200, as it came.  Sent once and never again.

        Args:
            body: a JSON object.

        Raises:
            EncodeError: JSON does not carry the body.
            ServerError: a status other than 200, with the engine's text.
            ClientError: the connection failed, or the reply is not whole.
        """
        try:
            content = encode_json(plain(dict(body), MAX_JSON_DEPTH))
        except NotPlainError as error:
            raise EncodeError(f"the request{error.path} {error.rule}") from None
        except ValueError as error:
            raise EncodeError(f"the request cannot be written as JSON: {error}") from None
        try:
            async with self._http.stream(
                "POST", self._url, content=content, headers=_JSON
            ) as response:
                reply = await read_body(response)
        except httpx2.HTTPError as error:
            raise ClientError(f"/generate got no whole answer: {failure(error)}") from error
        if response.status_code != httpx2.codes.OK:
            text = reply[:MAX_REFUSAL_BYTES].decode("utf-8", "replace")
            raise ServerError(response.status_code, None, text)
        return reply

    async def aclose(self) -> None:
        """Closes all connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
