"""Endpoints that answer every method of their path: HEAD as GET, 405 where there is none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from .errors import answer_to

Handler = Callable[[Request], Awaitable[Response]]
# Where a request's scope says which route it took.
ROUTE_KEY: Final = "sample_wire.route"


class Endpoint:
    """A handler as an ASGI application, for all methods, that answers every error.

    With a plain function as a route's endpoint the framework would answer other methods, and
    the server would close the connection of a client that met a fault of ours.

    Args:
        handler: as above.
        path: of the route.
    """

    def __init__(self, handler: Handler, path: str) -> None:
        self._handler = handler
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[ROUTE_KEY] = self._path
        request = Request(scope, receive, send)
        try:
            _check_spelling(scope)
            response = await self._handler(request)
        except Exception as error:  # noqa: BLE001  # every kind has its answer there
            response = answer_to(request, error)
        await response(scope, receive, send)


def _check_spelling(scope: Scope) -> None:
    """Passes for a path that is spelled as it is read: others on the way may not decode it."""
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    if not scope["raw_path"].endswith(path.encode()):
        raise HTTPException(404, "no such route")


def by_method(handlers: Mapping[str, Handler]) -> Handler:
    """A handler that calls one of these.

    Args:
        handlers: by method, in upper case.  GET also answers HEAD.
    """
    heads = ("HEAD",) if "GET" in handlers else ()
    allowed = ", ".join(sorted((*handlers, *heads)))

    async def answer(request: Request) -> Response:
        handler = handlers.get("GET" if request.method == "HEAD" else request.method)
        if handler is None:
            raise HTTPException(405, "method not allowed", {"allow": allowed})
        return await handler(request)

    return answer
