"""The few engine routes that an agent may use through its session."""

from __future__ import annotations

import functools
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ...session import Session
from .bodies import read_body
from .disconnects import unless_gone
from .headers import to_engine
from .replies import passed_on
from .routing import by_method
from .state import ServerState

# An engine has routes that stop it or change its weights: only what is named here goes through.
ALLOWED_PATHS: Final = frozenset({"v1/models"})


async def forward(state: ServerState, request: Request) -> Response:
    """Any other path below /sessions/{id}."""
    session = state.session_of(request)
    if request.path_params["path"] not in ALLOWED_PATHS:
        raise HTTPException(404, "no such route")
    return await by_method({"GET": functools.partial(_get, state, session)})(request)


async def _get(state: ServerState, session: Session, request: Request) -> Response:
    body = await read_body(state, request)
    call = state.engine.send(
        "GET",
        f"/{request.path_params['path']}",
        request.scope["query_string"],
        to_engine(request.headers.raw, session.id, state.settings),
        body,
    )
    return passed_on(await unless_gone(request.receive, call))
