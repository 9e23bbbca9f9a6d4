"""Samples: what a session's turns come to, as one payload."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from ...codec import Layout, encode_samples
from ...payload import Payload
from ...session import Collected, SampleHooks
from .._media_types import PAYLOAD_TYPES, accepted_layout
from .bodies import read_body, samples_request
from .errors import CODE_KEY, error_response
from .sending import SlicedResponse
from .state import ServerState


async def samples(state: ServerState, request: Request) -> Response:
    """POST /sessions/{id}/samples.  Changes nothing, and may be asked any number of times."""
    session = state.session_of(request)
    layout = accepted_layout(request.headers.getlist("accept"))
    if layout is None:
        return _not_acceptable(request)
    asked = samples_request(await read_body(state, request))
    mismatches = await state.reports.of_ends(session)
    # Nothing waits between the reports and the samples, so that no turn can come in between.
    trajectory = state.session_of(request).trajectory
    collecting = trajectory.collecting(
        asked.max_seq_len, asked.metadata, mismatches, state.sample_options
    )
    payload = await _payload(state, collecting, layout)
    return SlicedResponse(payload, PAYLOAD_TYPES[layout], payload.nbytes)


def _not_acceptable(request: Request) -> Response:
    """The answer to a client that takes no layout: it may ask again for one of these."""
    request.scope[CODE_KEY] = "not_acceptable"
    supported = list(PAYLOAD_TYPES.values())
    text = f"none of the accepted media types is a payload's: {', '.join(supported)}"
    return error_response(406, text, code="not_acceptable", supported=supported)


async def _payload(
    state: ServerState, collecting: Callable[[], Collected], layout: Layout
) -> Payload:
    """The payload of a session.  Turns and rows never change: others may run meanwhile."""
    if state.hooks is not None:
        return await _payload_of_tree(state, collecting, state.hooks, layout)
    found = collecting()
    if layout == "compact":  # narrowing reads every row
        return await _encoded_aside(state, found, layout)
    await asyncio.sleep(0)
    return _encoded(state, found, layout)


async def _payload_of_tree(
    state: ServerState, collecting: Callable[[], Collected], hooks: SampleHooks, layout: Layout
) -> Payload:
    """The same for many samples, which would hold up the loop, and so would an operator's hooks.

    They are made and encoded in a worker thread, one session's at a time, since such threads
    only take the interpreter from each other.  Hooks, which may wait for others, wait together.
    """
    async with state.assembling:
        found = await asyncio.to_thread(collecting)
    found = await state.hook_threads.run(hooks.apply, found, state.schema.sample_type)
    return await _encoded_aside(state, found, layout)


async def _encoded_aside(state: ServerState, found: Collected, layout: Layout) -> Payload:
    async with state.assembling:
        return await asyncio.to_thread(_encoded, state, found, layout)


def _encoded(state: ServerState, found: Collected, layout: Layout) -> Payload:
    routing = state.settings.routing
    return encode_samples(
        found.samples,
        found.session_metadata,
        empty_reason=found.empty_reason,
        field_set=state.field_set,
        layout=layout,
        num_experts=None if routing is None else routing.num_experts,
        schema=state.schema,
    )
