"""create_app: the routes of the session server, as an ASGI application."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...session import TokenizerAdapter
from ..tokenizer import load_tokenizer
from .chat import CHAT_PATH, chat
from .errors import http_error
from .guard import Guard
from .openapi import describe
from .passthrough import forward
from .routing import Endpoint, by_method
from .samples import samples
from .sessions import create, delete, dump, health
from .settings import ServerSettings
from .state import ServerState

_StateHandler = Callable[[ServerState, Request], Awaitable[Response]]


def create_app(settings: ServerSettings, *, tokenizer: TokenizerAdapter | None = None) -> Starlette:
    """The session server as an ASGI application.

    It may be mounted in another application, which then runs its lifespan too
    (`lifespan=app.router.lifespan_context`): that closes the connections to the engine.  Whoever
    runs it finds its ServerState in `app.state.server`, and may let it drain.  The deadlines of
    heads and bodies, and what is left to running requests when the server ends, are kept by
    `serving.http_server`; another HTTP server has its own.

    Args:
        settings: all but host, port and workers are used.
        tokenizer: None loads the one that the settings name.

    Raises:
        ValueError: the engine's kind, the matcher, the tokenizer or its family is not known, or
            the engine does not have what is asked of it.
        OSError: the tokenizer's folder cannot be read.
    """
    if tokenizer is None:
        tokenizer = load_tokenizer(
            settings.tokenizer,
            family=settings.family,
            chat_template=settings.chat_template,
            template_kwargs=settings.template_kwargs,
        )
    state = ServerState(settings, tokenizer)

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield
        await state.engine.aclose()

    app = Starlette(
        routes=_routes(state),
        middleware=[Middleware(Guard, state=state)],
        exception_handlers={HTTPException: http_error},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.server = state
    return app


def _routes(state: ServerState) -> list[Route]:
    """In matching order: the last one takes whatever the others do not."""

    def route(path: str, **handlers: _StateHandler) -> Route:
        bound = {method: functools.partial(handler, state) for method, handler in handlers.items()}
        return Route(path, Endpoint(by_method(bound), path))

    create_route = functools.partial(route, POST=create)
    others = "/sessions/{session_id}/{path:path}"
    return [
        route("/health", GET=health),
        route("/openapi.json", GET=describe),
        create_route("/sessions"),
        create_route("/sessions/"),
        route("/sessions/{session_id}", GET=dump, DELETE=delete),
        route(f"/sessions/{{session_id}}{CHAT_PATH}", POST=chat),
        route("/sessions/{session_id}/samples", POST=samples),
        Route(others, Endpoint(functools.partial(forward, state), others)),
    ]
