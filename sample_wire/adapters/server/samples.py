"""Samples: what a session's turns come to, as one payload."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from ...codec import encode_samples
from .bodies import samples_request
from .sending import SlicedResponse
from .state import ServerState


async def samples(state: ServerState, request: Request) -> Response:
    """POST /sessions/{id}/samples.  Changes nothing, and may be asked any number of times."""
    session = state.session_of(request)
    asked = samples_request(await request.body())
    mismatches = await state.reports.of_ends(session)
    # Nothing waits between the reports and the samples, so that no turn can come in between.
    trajectory = state.session_of(request).trajectory
    found = trajectory.collected(
        asked.max_seq_len, asked.metadata, mismatches, state.sample_options
    )
    # Turns and rows never change once they are made: others may run before they are encoded.
    await asyncio.sleep(0)
    payload = encode_samples(
        found.samples,
        found.session_metadata,
        empty_reason=found.empty_reason,
        field_set=state.field_set,
        schema=state.schema,
    )
    return SlicedResponse(payload, "application/octet-stream", payload.nbytes)
