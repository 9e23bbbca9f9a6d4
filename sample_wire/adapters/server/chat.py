"""Chat: the server builds the prompt's ids, the engine answers, the turn is recorded.

Three phases.  Under the session's lock the turn is planned, which changes nothing.  Without
it the engine is called; anything may happen to the session meanwhile.  Under the lock again
the turn is committed, or refused: whoever gets a 200 finds its turn in the session.

A large request is planned in a worker thread, and a large reply read in one, so that others are
answered meanwhile.
"""

from __future__ import annotations

import asyncio
import functools
import time
from typing import Any, Final, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ...assembly import Turn
from ...session import ChatRequest, Session, TurnPlan, parse_body, upstream_body
from .bodies import chat_body
from .disconnects import unless_gone
from .headers import to_engine
from .memory import LARGE_TEXT_BYTES, give_back, tidied
from .replies import json_response, passed_on, stream_response
from .state import ServerState
from .upstream import EngineReply

CHAT_PATH: Final = "/v1/chat/completions"
# So much text becomes ids in a tenth of a second.
_NEW_BYTES: Final = 1 << 17
# Up to this a reply is read in some milliseconds.
_LARGE_REPLY_BYTES: Final = 1 << 22


class _Planned(NamedTuple):
    chat: ChatRequest
    plan: TurnPlan
    request: dict[str, Any]
    text: bytes


async def chat(state: ServerState, request: Request) -> Response:
    """POST /sessions/{id}/v1/chat/completions."""
    arrived = time.time()
    session = state.session_of(request)
    session.check_open()
    with state.chatting(session), state.budgets.at_engine.counted() as count:
        state.check_room()
        async with chat_body(state, request) as body, state.lock(session):
            planned = await _planned(state, session, body)
            count(len(body) + len(planned.text))  # what it holds takes about as much
        del body  # as large as all that the engine is sent
        reply = await unless_gone(request.receive, _call(state, session, request, planned.text))
        count(len(reply.body))
        if reply.status != 200:
            return passed_on(reply)
        async with state.lock(session):
            turn = await _committed(state, session, planned, reply, arrived)
            state.budgets.count(session)
            trajectory = session.trajectory
            if planned.chat.wants_stream:
                response = stream_response(trajectory.client_reply(turn))
            else:
                response = json_response(reply, trajectory.client_text(turn))
            packing = trajectory.packing(turn)
    # After the answer is made, and beside the loop: packing leaves other threads alone.
    asyncio.get_running_loop().run_in_executor(None, tidied, packing, len(reply.body))
    return response


async def _planned(state: ServerState, session: Session, text: bytes) -> _Planned:
    # What an agent sends again has its ids already.
    if len(text) <= min(state.body_bytes.get(session, 0) + _NEW_BYTES, LARGE_TEXT_BYTES):
        planned = _plan(state, session, text)
    else:
        async with state.planning:
            planned = await asyncio.to_thread(_plan_large, state, session, text)
    state.body_bytes[session] = len(text)
    return planned


def _plan_large(state: ServerState, session: Session, text: bytes) -> _Planned:
    """For a thread of its own."""
    planned = _plan(state, session, text)
    if len(text) >= LARGE_TEXT_BYTES:
        give_back()
    return planned


def _plan(state: ServerState, session: Session, text: bytes) -> _Planned:
    session.check_open()
    routing = state.settings.routing
    chat = state.engine_kind.normalise(
        parse_body(text),
        tokenizer=state.tokenizer,
        routing=routing is not None,
        indexer=state.settings.indexer,
    )
    plan = session.trajectory.plan(chat.body)
    incremental = routing is not None and routing.incremental
    sent = upstream_body(plan, chat.body, incremental=incremental, is_written=True)
    return _Planned(chat, plan, sent, msgspec.json.encode(state.engine_kind.wire_body(sent)))


async def _call(state: ServerState, session: Session, request: Request, text: bytes) -> EngineReply:
    headers = to_engine(request.headers.raw, session.id, state.settings)
    if not any(name == b"content-type" for name, _ in headers):
        headers.append((b"content-type", b"application/json"))
    query = request.scope["query_string"]
    return await state.engine.send("POST", state.engine_kind.path, query, headers, text)


async def _committed(
    state: ServerState, session: Session, planned: _Planned, reply: EngineReply, arrived: float
) -> Turn:
    """Records the turn.  A large reply is read beside the loop, and only recorded on it."""
    session.check_open()
    read = functools.partial(
        session.trajectory.read,
        planned.plan,
        planned.request,
        reply.body,
        timestamp=time.time(),
        request_timestamp=arrived,
    )
    if len(reply.body) <= _LARGE_REPLY_BYTES:
        return read()()
    async with state.planning:
        record = await asyncio.to_thread(read)
    session.check_open()
    return record()
