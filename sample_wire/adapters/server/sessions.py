"""Sessions: created, looked into, deleted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ...errors import SessionError
from ..engines import fast_base64_encoder
from .bodies import check_handshake, read_body
from .sending import SlicedResponse
from .state import ServerState


async def health(state: ServerState, _request: Request) -> Response:
    """GET /health."""
    return JSONResponse({"status": "ok", **_instance(state)})


async def create(state: ServerState, request: Request) -> Response:
    """POST /sessions: a new session, what its samples will look like, and on which server."""
    wire = {"field_set": state.field_set, "schema": state.schema.fingerprint(state.field_set)}
    check_handshake(await read_body(state, request), wire)
    if state.is_draining:
        raise SessionError(
            "the server takes no new sessions: it is about to stop",
            code="draining",
            http_status=503,
        )
    session = state.new_session()
    kind = {"trajectory": state.settings.trajectory}
    return JSONResponse({"session_id": session.id, **wire, **kind, **_instance(state)})


def _instance(state: ServerState) -> dict[str, str]:
    """The server's own id, where it was given one."""
    told = state.settings.instance_id
    return {} if told is None else {"session_server_instance_id": told}


async def dump(state: ServerState, request: Request) -> Response:
    """GET /sessions/{id}: its records, routing included, and its metadata.

    A number that JSON cannot say, a log-probability of -Infinity say, is null in it.
    """
    session = state.session_of(request)
    mismatch = await state.reports.current(session)
    trajectory = state.session_of(request).trajectory
    records = trajectory.iter_records(fast_base64_encoder())
    pieces = _dump_pieces(session.id, records, trajectory.metadata(mismatch))
    return SlicedResponse(pieces, "application/json", None)


def _dump_pieces(
    session_id: str, records: Iterator[dict[str, Any]], metadata: dict[str, Any]
) -> Iterator[bytes]:
    """The dump's JSON record by record: all of them at once may be gigabytes."""
    yield b'{"session_id":%b,"records":[' % msgspec.json.encode(session_id)
    for index, record in enumerate(records):
        yield b"," * (index > 0) + msgspec.json.encode(record)
    yield b'],"metadata":%b}' % msgspec.json.encode(metadata)


async def delete(state: ServerState, request: Request) -> Response:
    """DELETE /sessions/{id}: waits for a turn that is being planned or committed."""
    session = state.registry.start_closing(request.path_params["session_id"])
    async with state.lock(session):
        state.remove(session)
    return Response(status_code=204)
