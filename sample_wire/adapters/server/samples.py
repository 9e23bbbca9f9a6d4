"""Samples: what a session's turns come to, as one payload."""

from __future__ import annotations

import asyncio
import copy

from starlette.requests import Request
from starlette.responses import Response

from ...codec import encode_samples
from .bodies import max_seq_len
from .sending import SlicedResponse
from .state import ServerState


async def samples(state: ServerState, request: Request) -> Response:
    """POST /sessions/{id}/samples.  Changes nothing, and may be asked any number of times."""
    session = state.session_of(request)
    limit = max_seq_len(await request.body())
    mismatch = await state.reports.current(session)
    # A copy does not see the turns that come in while others run: it is of one moment.
    trajectory = copy.copy(state.session_of(request).trajectory)
    settings = state.settings
    result = trajectory.collect(
        limit,
        routing=settings.routing,
        speculative=settings.speculative,
        keep_messages=settings.keep_messages,
        schema=state.schema,
    )
    await asyncio.sleep(0)
    metadata = trajectory.written_metadata(mismatch)
    payload = encode_samples(
        result.samples,
        metadata,
        empty_reason=result.empty_reason,
        field_set=settings.field_set,
        schema=state.schema,
    )
    return SlicedResponse(payload, "application/octet-stream", payload.nbytes)
