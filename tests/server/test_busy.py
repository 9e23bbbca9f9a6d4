"""What requests take while they run has limits too, and health is told beyond them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from sample_wire.session import Message

from ._errors import refusal
from ._numbers import NumberTokenizer
from ._raw import chat as chat_request
from ._raw import connected, first, request
from ._serving import Handle, Site, running
from ._sglang import USER, first_turn
from ._stub import JSON_TYPE, PATIENCE_S, Answer, StubEngine
from .conftest import StartServer

BUSY: Final = (503, "busy")
FULL: Final = (503, "memory_full")
LARGE_TEXT: Final = "1 " * (1 << 18)
TOKEN: Final = "secret"
PART: Final = 50_000
CHUNKED: Final = ("transfer-encoding", "chunked")


def wait_for(site: Site, is_so: Callable[[], bool]) -> None:
    """Asks for health until something is so."""
    for _ in range(10_000):
        if is_so():
            return
        assert site.http.get("/health").status_code == 200
    raise AssertionError("it is not so")


def padded(session: Handle, num_bytes: int) -> bytes:
    """A chat request whose body has about so many bytes more than it needs."""
    return chat_request(session, body={"messages": [USER], "user": "x" * num_bytes})


@pytest.fixture
def narrow(start: StartServer) -> Site:
    """A server with room for little more than one body of a few that may be sent."""
    return start(max_incoming_bytes=PART + PART // 2)


def test_bodies_on_their_way_beyond_the_limit_are_refused(narrow: Site, engine: StubEngine) -> None:
    session = narrow.create()
    incoming = narrow.state.budgets.incoming
    whole = padded(session, 2 * PART)
    with connected(narrow) as slow, connected(narrow) as other:
        slow.sendall(whole[:PART])
        wait_for(narrow, lambda: incoming.num_bytes > PART - 1000)
        other.sendall(padded(session, PART))
        reply = first(other)
        assert reply.refusal == BUSY
        assert reply.header("retry-after") == "5"
        assert reply.header("connection") == "close"
        assert engine.seen == []
    wait_for(narrow, lambda: incoming.num_bytes == 0)


def test_there_is_room_again_when_a_body_has_been_read(narrow: Site, engine: StubEngine) -> None:
    session = narrow.create()
    for _ in range(3):
        engine.will(first_turn())
        assert session.chat([USER], user="x" * PART).status_code == 200
    assert narrow.state.budgets.incoming.num_bytes == 0


@pytest.mark.parametrize("path", ["/sessions", "/sessions/{id}/samples"])
def test_every_body_counts(narrow: Site, path: str) -> None:
    session = narrow.create()
    incoming = narrow.state.budgets.incoming
    whole = request("POST", path.replace("{id}", session.id), body=b" " * 2 * PART)
    with connected(narrow) as slow:
        slow.sendall(whole[:PART])
        wait_for(narrow, lambda: incoming.num_bytes > PART - 1000)
    wait_for(narrow, lambda: incoming.num_bytes == 0)


@pytest.mark.parametrize("path", ["/sessions", "/sessions/{id}/samples"])
def test_other_bodies_than_chats_have_a_mebibyte(site: Site, path: str) -> None:
    session = site.create()
    path = path.replace("{id}", session.id)
    assert site.http.post(path, content=b" " * (1 << 20) + b"{}").status_code == 413
    fitting = b'{"metadata":"' + b"x" * ((1 << 20) - 15) + b'"}'
    assert site.http.post(path, content=fitting).status_code == 200


def test_so_many_requests_run_at_a_time_and_health_is_told_beside_them(
    start: StartServer, engine: StubEngine, threads: ThreadPoolExecutor
) -> None:
    site = start(max_running_requests=1)
    session = site.create()
    gate = engine.will_hold(first_turn())
    waiting = threads.submit(session.chat, [USER])
    gate.wait_for_request()
    refused = site.http.get(session.path)
    assert refusal(refused) == BUSY
    assert refused.headers["retry-after"] == "5"
    assert site.http.get("/health").status_code == 200
    gate.open()
    assert waiting.result(PATIENCE_S).status_code == 200
    wait_for(site, lambda: site.http.get(session.path).status_code == 200)


def test_a_request_without_the_token_takes_no_place(start: StartServer) -> None:
    site = start(max_running_requests=1, token=TOKEN)
    refused = request("POST", "/sessions", body=b"{}" * PART)[: PART // 2]
    with connected(site) as intruder:
        intruder.sendall(refused)
        assert first(intruder).status == 401
        bearer = {"authorization": f"Bearer {TOKEN}"}
        assert site.http.post("/sessions", headers=bearer).status_code == 200


@pytest.mark.parametrize("told", ["length", "chunks"])
def test_what_has_come_of_an_engines_answer_counts_as_held(
    start: StartServer, engine: StubEngine, told: str
) -> None:
    length = ("content-length", str(1 << 21)) if told == "length" else CHUNKED
    site = start(max_held_bytes=PART)
    early, late = site.create(), site.create()
    body = b"x" * 2 * PART if told == "length" else b"%x\r\n" % (4 * PART) + b"x" * 2 * PART
    engine.will(Answer(200, body, [JSON_TYPE, length]))
    at_engine = site.state.budgets.at_engine
    with connected(site) as agent:
        agent.sendall(chat_request(early))
        wait_for(site, lambda: at_engine.num_bytes > PART)
        assert refusal(late.chat([USER])) == FULL
        assert len(engine.seen) == 1
    wait_for(site, lambda: at_engine.num_bytes == 0)
    engine.will(first_turn())
    assert late.chat([USER]).status_code == 200


class Slow(NumberTokenizer):
    """Takes its time with long conversations, as long as the test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = threading.Event()
        self.may_go_on = threading.Event()

    def render(
        self, messages: Sequence[Message], tools: Sequence[Any] | None, kwargs: Mapping[str, Any]
    ) -> list[int]:
        if len(messages[0]["content"]) >= len(LARGE_TEXT):
            self.is_asked.set()
            assert self.may_go_on.wait(PATIENCE_S)
            return [1, 2, 3]
        return super().render(messages, tools, kwargs)


@contextlib.contextmanager
def planning(
    engine: StubEngine, threads: ThreadPoolExecutor, **settings: Any
) -> Iterator[tuple[Handle, Slow, Any]]:
    """A session of which a large chat is being planned, until the tokenizer may go on."""
    tokenizer = Slow()
    with running(tokenizer, engine.url, **settings) as site:
        session = site.create()
        chatting = threads.submit(session.chat, [{"role": "user", "content": LARGE_TEXT}])
        try:
            assert tokenizer.is_asked.wait(PATIENCE_S)
            yield session, tokenizer, chatting
        finally:
            tokenizer.may_go_on.set()
            chatting.result(PATIENCE_S)


def test_others_are_answered_while_a_large_chat_is_planned(
    engine: StubEngine, threads: ThreadPoolExecutor
) -> None:
    engine.will(first_turn(), first_turn())
    with planning(engine, threads) as (session, tokenizer, chatting):
        assert session.site.http.get("/health").status_code == 200
        assert session.site.create().chat([USER]).status_code == 200
        tokenizer.may_go_on.set()
        assert chatting.result(PATIENCE_S).status_code == 200
        assert session.num_records() == 1


def test_a_large_chat_counts_as_on_its_way_until_it_is_planned(
    engine: StubEngine, threads: ThreadPoolExecutor
) -> None:
    with planning(engine, threads) as (session, tokenizer, chatting):
        incoming = session.site.state.budgets.incoming
        assert incoming.num_bytes > len(LARGE_TEXT)
        engine.will(first_turn())
        tokenizer.may_go_on.set()
        assert chatting.result(PATIENCE_S).status_code == 200
        assert incoming.num_bytes == 0


def test_a_session_is_deleted_after_its_large_chat_is_planned(
    engine: StubEngine, threads: ThreadPoolExecutor
) -> None:
    with planning(engine, threads) as (session, tokenizer, chatting):
        engine.will(first_turn())
        deleting = threads.submit(session.delete)
        held = session.site.state.registry.get(session.id)
        wait_for(session.site, lambda: held.closing)
        assert not deleting.done()
        tokenizer.may_go_on.set()
        assert deleting.result(PATIENCE_S).status_code == 204
        assert refusal(chatting.result(PATIENCE_S)) == (404, "unknown_session")


def test_what_the_engine_is_sent_counts_as_held(
    start: StartServer, engine: StubEngine, threads: ThreadPoolExecutor
) -> None:
    site = start(max_held_bytes=PART)
    early, late = site.create(), site.create()
    gate = engine.will_hold(Answer(500, b"{}"))
    waiting = threads.submit(early.chat, [USER], user="x" * PART)
    gate.wait_for_request()
    assert refusal(late.chat([USER])) == FULL
    assert refusal(site.http.post("/sessions")) == FULL
    gate.open()
    assert waiting.result(PATIENCE_S).status_code == 500
    engine.will(first_turn())
    assert late.chat([USER]).status_code == 200
    early.delete()
    late.delete()
