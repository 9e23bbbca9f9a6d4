"""Calls that overlap, with an engine that answers when the test says so.  Sections 5.4 and 6.

Nobody who got a 200 is left without a turn, and no lock is left behind.
"""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from starlette.requests import Request

from sample_wire.adapters.server.chat import chat
from sample_wire.adapters.server.sessions import delete
from sample_wire.adapters.server.settings import ServerSettings
from sample_wire.adapters.server.state import ServerState
from sample_wire.errors import SessionError

from ._errors import refusal
from ._numbers import NumberTokenizer
from ._serving import Handle, Message
from ._sglang import TOOL, USER, first_turn, second_turn, speaks
from ._stub import NEVER, PATIENCE_S, Gate, StubEngine
from .conftest import StartServer

GONE = (404, "unknown_session")
STALE = (409, "stale_turn")


def held_chat(
    threads: ThreadPoolExecutor,
    session: Handle,
    engine: StubEngine,
    messages: list[Message],
    answer: Any,
) -> tuple[Gate, Future[httpx2.Response]]:
    """A chat that is at the engine, and the gate that lets its answer go."""
    gate = engine.will_hold(answer)
    future = threads.submit(session.chat, messages)
    gate.wait_for_request()
    return gate, future


def finished(gate: Gate, future: Future[httpx2.Response]) -> httpx2.Response:
    """Opens the gate and waits for the chat."""
    gate.open()
    return future.result(PATIENCE_S)


def request_of(method: str, session_id: str, body: bytes = b"") -> Request:
    """A request as a handler gets it."""
    scope = {
        "type": "http",
        "method": method,
        "headers": [],
        "path_params": {"session_id": session_id},
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    return Request(scope, receive)


def check_no_lock_is_left(session: Handle, engine: StubEngine, messages: list[Message]) -> None:
    """A session whose lock is held would hang here."""
    engine.will(speaks([77]))
    assert session.chat(messages).status_code == 200
    assert session.delete().status_code == 204


def test_a_session_deleted_while_the_engine_works_is_404_for_the_chat(
    threads: ThreadPoolExecutor, session: Handle, engine: StubEngine
) -> None:
    held = held_chat(threads, session, engine, [USER], first_turn())
    assert session.delete().status_code == 204
    assert refusal(finished(*held)) == GONE
    assert refusal(session.samples()) == GONE


def test_a_deletion_does_not_wait_for_the_engine(
    threads: ThreadPoolExecutor, session: Handle, engine: StubEngine
) -> None:
    gate, future = held_chat(threads, session, engine, [USER], first_turn())
    assert session.delete().status_code == 204
    assert not future.done()
    finished(gate, future)


def test_of_two_deletions_one_is_204_and_one_404(
    threads: ThreadPoolExecutor, session: Handle
) -> None:
    both = [threads.submit(session.delete) for _ in range(2)]
    assert sorted(one.result(PATIENCE_S).status_code for one in both) == [204, 404]


def test_a_second_deletion_is_404_while_the_first_waits_for_a_turn() -> None:
    async def scenario() -> None:
        settings = ServerSettings(engine_url="http://127.0.0.1:1", tokenizer="of the test")
        state = ServerState(settings, NumberTokenizer())
        session = state.registry.create()
        request = request_of("DELETE", session.id)
        async with state.lock(session):  # as a turn that is being committed
            first = asyncio.ensure_future(delete(state, request))
            await asyncio.sleep(0)
            assert session.closing
            with pytest.raises(SessionError) as refused:
                await delete(state, request)
            assert refused.value.code == "unknown_session"
            assert state.registry.get(session.id) is session  # it answers until it is gone
            assert not first.done()
        assert (await first).status_code == 204
        with pytest.raises(SessionError):
            state.registry.get(session.id)
        await state.engine.aclose()

    asyncio.run(scenario())


def test_a_chat_that_waits_for_the_lock_is_404_when_its_session_is_deleted_first() -> None:
    async def scenario() -> None:
        settings = ServerSettings(engine_url="http://127.0.0.1:1", tokenizer="of the test")
        state = ServerState(settings, NumberTokenizer())
        session = state.registry.create()
        request = request_of("POST", session.id, b'{"messages":[{"role":"user"}]}')
        async with state.lock(session):
            waiting = asyncio.ensure_future(chat(state, request))
            await asyncio.sleep(0)
            deleting = asyncio.ensure_future(delete(state, request_of("DELETE", session.id)))
            await asyncio.sleep(0)
            assert not waiting.done()
        with pytest.raises(SessionError) as refused:
            await waiting
        assert (refused.value.http_status_hint, refused.value.code) == GONE
        assert (await deleting).status_code == 204
        await state.engine.aclose()

    asyncio.run(scenario())


def test_of_two_chats_from_one_place_the_later_answer_is_409(
    threads: ThreadPoolExecutor, session: Handle, engine: StubEngine
) -> None:
    first = held_chat(threads, session, engine, [USER], first_turn())
    second = held_chat(threads, session, engine, [USER], speaks([40]))
    assert finished(*second).status_code == 200
    assert refusal(finished(*first)) == STALE
    assert session.dump()["metadata"]["accumulated_token_ids"] == [1, 2, 3, 40]
    check_no_lock_is_left(session, engine, [USER])


def test_a_turn_made_anew_meanwhile_makes_a_chat_stale_though_the_count_is_the_same(
    threads: ThreadPoolExecutor, session: Handle, engine: StubEngine
) -> None:
    engine.will(first_turn())
    said = session.chat([USER]).json()["choices"][0]["message"]
    held = held_chat(threads, session, engine, [USER, said, TOOL], second_turn())
    engine.will(speaks([40]))
    assert session.chat([USER]).status_code == 200  # rolls turn 1 back and makes it anew
    assert session.num_records() == 1
    before = session.dump()
    assert refusal(finished(*held)) == STALE
    assert session.dump() == before


def test_a_chat_that_would_roll_back_is_stale_once_another_turn_came(
    threads: ThreadPoolExecutor, session: Handle, engine: StubEngine
) -> None:
    engine.will(first_turn())
    said = session.chat([USER]).json()["choices"][0]["message"]
    held = held_chat(threads, session, engine, [USER], speaks([40]))
    engine.will(second_turn())
    assert session.chat([USER, said, TOOL]).status_code == 200
    assert refusal(finished(*held)) == STALE
    assert session.num_records() == 2


def test_as_many_turns_are_recorded_as_chats_were_answered_200(
    threads: ThreadPoolExecutor, session: Handle, engine: StubEngine
) -> None:
    messages: list[Message] = [USER]
    for num_before in range(3):
        held = [
            held_chat(threads, session, engine, messages, speaks([50 + number]))
            for number in range(4)
        ]
        held.append(held.pop(num_before))
        replies = [finished(*one) for one in held]
        assert sorted(reply.status_code for reply in replies) == [200, 409, 409, 409]
        (good,) = (reply for reply in replies if reply.status_code == 200)
        assert session.num_records() == num_before + 1
        messages += [good.json()["choices"][0]["message"], TOOL]
    check_no_lock_is_left(session, engine, messages)


def test_samples_and_records_are_those_before_a_chat_that_is_at_the_engine(
    threads: ThreadPoolExecutor, routed_session: Handle, engine: StubEngine
) -> None:
    session = routed_session
    engine.will(first_turn())
    said = session.chat([USER]).json()["choices"][0]["message"]
    alone = session.samples().content
    held = held_chat(threads, session, engine, [USER, said, TOOL], second_turn())
    assert session.samples().content == alone
    assert session.num_records() == 1
    assert session.site.http.get("/health").status_code == 200
    assert finished(*held).status_code == 200
    assert session.collect().samples[0].tokens.tolist() == [1, 2, 3, 10, 11, 20, 21, 30, 31]


def test_chats_of_other_sessions_do_not_wait(
    threads: ThreadPoolExecutor, session: Handle, engine: StubEngine
) -> None:
    held = held_chat(threads, session, engine, [USER], first_turn())
    engine.will(first_turn())
    assert session.site.create().chat([USER]).status_code == 200
    assert finished(*held).status_code == 200


def test_a_client_that_hangs_up_ends_the_engines_work_and_may_try_again(
    session: Handle, engine: StubEngine
) -> None:
    engine.will(NEVER, first_turn())
    body = b'{"messages":[{"role":"user","content":"1 2 3"}]}'
    head = f"POST {session.path}/v1/chat/completions HTTP/1.1\r\nhost: h\r\n"
    with socket.create_connection(("127.0.0.1", session.site.port), PATIENCE_S) as sock:
        sock.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        assert engine.asked.wait(PATIENCE_S)
    assert engine.hung_up.wait(PATIENCE_S)
    assert session.num_records() == 0
    assert session.chat([USER]).status_code == 200
    assert session.num_records() == 1
    check_no_lock_is_left(session, engine, [USER])


def test_a_client_that_hangs_up_within_its_body_leaves_nothing(
    session: Handle, engine: StubEngine
) -> None:
    head = f"POST {session.path}/v1/chat/completions HTTP/1.1\r\nhost: h\r\ncontent-length: 99\r\n"
    with socket.create_connection(("127.0.0.1", session.site.port), PATIENCE_S) as sock:
        sock.sendall(head.encode() + b"\r\n{")
    assert session.num_records() == 0
    check_no_lock_is_left(session, engine, [USER])
    assert len(engine.seen) == 1


def test_a_session_that_nobody_uses_is_dropped_when_the_next_is_created(
    threads: ThreadPoolExecutor, start: StartServer, engine: StubEngine
) -> None:
    site = start(idle_timeout_s=1e-9)
    idle = site.create()
    assert idle.samples().status_code == 200
    busy = site.create()
    assert refusal(idle.samples()) == GONE
    held = held_chat(threads, busy, engine, [USER], first_turn())
    site.create()
    assert finished(*held).status_code == 200
    assert busy.num_records() == 1


def test_without_an_idle_timeout_no_session_is_dropped(session: Handle) -> None:
    session.site.create()
    assert session.samples().status_code == 200
