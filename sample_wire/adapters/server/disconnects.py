"""Work that is given up when the client that asked for it has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from ...errors import SessionError

ResultT = TypeVar("ResultT")


class ClientGoneError(SessionError):
    """The client closed its connection before it was answered; nobody reads this."""

    def __init__(self) -> None:
        super().__init__("the client has gone", code="client_gone", http_status=499)


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """The result of the work, which is cancelled when the client closes its connection.

    Args:
        receive: of a request whose body was read.

    Raises:
        ClientGoneError: it has.
    """
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGoneError
        return working.result()
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)
        # A failed task holds its error, that this frame, and this frame the task: until such a
        # circle is collected, so would all that the caller holds be, a plan of the session too.
        del task, working, watching


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
