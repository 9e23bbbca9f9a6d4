"""Samples: what a session's turns come to, as one payload."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from ...codec import encode_samples
from ...payload import Payload
from ...session import Collected, SampleHooks
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
    collecting = trajectory.collecting(
        asked.max_seq_len, asked.metadata, mismatches, state.sample_options
    )
    payload = await _payload(state, collecting)
    return SlicedResponse(payload, "application/octet-stream", payload.nbytes)


async def _payload(state: ServerState, collecting: Callable[[], Collected]) -> Payload:
    """The payload of a session.  Turns and rows never change: others may run meanwhile."""
    if state.hooks is not None:
        return await _payload_of_tree(state, collecting, state.hooks)
    found = collecting()
    await asyncio.sleep(0)
    return _encoded(state, found)


async def _payload_of_tree(
    state: ServerState, collecting: Callable[[], Collected], hooks: SampleHooks
) -> Payload:
    """The same for many samples, which would hold up the loop, and so would an operator's hooks.

    They are made and encoded in a worker thread, one session's at a time, since such threads
    only take the interpreter from each other.  Hooks, which may wait for others, wait together.
    """
    async with state.assembling:
        found = await asyncio.to_thread(collecting)
    found = await state.hook_threads.run(hooks.apply, found, state.schema.sample_type)
    async with state.assembling:
        return await asyncio.to_thread(_encoded, state, found)


def _encoded(state: ServerState, found: Collected) -> Payload:
    return encode_samples(
        found.samples,
        found.session_metadata,
        empty_reason=found.empty_reason,
        field_set=state.field_set,
        schema=state.schema,
    )
