"""Large bodies, sent in slices: between two of them the loop serves everybody else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from .disconnects import ClientGoneError, unless_gone

# Writing this much to a socket takes well under a millisecond.
SLICE_BYTES: Final = 1 << 18


class SlicedResponse(Response):
    """A body that comes in pieces, each sent in slices.

    Args:
        pieces: the body's bytes in order.
        media_type: of the body.
        size: its whole length in bytes, or None where it is not known beforehand; then it is
            sent in HTTP chunks.
    """

    def __init__(
        self, pieces: Iterable[bytes | memoryview], media_type: str, size: int | None
    ) -> None:
        self._pieces = pieces
        super().__init__(None, 200, None, media_type)
        del self.headers["content-length"]
        if size is not None:
            self.headers["content-length"] = str(size)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the body; gives up when the client has gone."""
        with contextlib.suppress(ClientGoneError):
            await unless_gone(receive, self._send(scope, send))

    async def _send(self, scope: Scope, send: Send) -> None:
        """A HEAD request gets no body, and none is made for it."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        if scope["method"] != "HEAD":
            for piece in _slices(self._pieces):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _slices(pieces: Iterable[bytes | memoryview]) -> Iterator[memoryview]:
    for piece in pieces:
        view = memoryview(piece)
        for start in range(0, len(view), SLICE_BYTES):
            yield view[start : start + SLICE_BYTES]
