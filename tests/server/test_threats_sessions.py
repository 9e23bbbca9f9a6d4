"""Sessions that are guessed at, left behind, ended twice, or asked for several things at once.

Every 200 is a recorded turn, and every recorded turn was a 200 or had nobody left to tell.
"""

from __future__ import annotations

import random
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from ._raw import Reply, chat, connected, one, replies_in, request, sent, until_closed
from ._serving import Handle, Site
from ._sglang import first_turn, speaks
from ._stub import NEVER, PATIENCE_S, StubEngine
from .conftest import StartServer

GONE: Final = (404, "unknown_session")
STALE: Final = (409, "stale_turn")


def changed(session_id: str) -> list[str]:
    """Ids that are not this one, but like it."""
    other = "0" if session_id[-1] != "0" else "1"
    return [
        session_id[:-1] + other,
        session_id[:-1],
        session_id + "0",
        f"{session_id}%20",
        f"{session_id[:-1]}{session_id[-1].upper()}" if session_id[-1].isalpha() else "F" * 32,
        f"%20{session_id}",
        f"{session_id}%00",
        f"{session_id}%0a",
        f"{session_id};x",
        f"{session_id}.",
        "*",
        "-1",
        "null",
        "__proto__",
        "%2e%2e",
        "\\",
        "{session_id}",
    ]


def test_an_id_that_is_only_like_another_finds_nothing(session: Handle) -> None:
    for guess in changed(session.id):
        reply = one(session.site, request("GET", f"/sessions/{guess}"))
        assert reply.refusal == ((404, "not_found") if "%" in guess else GONE), guess


def test_an_id_that_ended_and_one_that_never_was_are_answered_alike(session: Handle) -> None:
    never = "0" * 32
    assert session.delete().status_code == 204
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/samples"), ("GET", "/v1/models")):
        ended, guessed = (
            one(session.site, request(method, f"/sessions/{name}{path}", "x-request-id: r"))
            for name in (session.id, never)
        )
        assert ended.refusal == guessed.refusal == GONE
        assert ended.body.replace(session.id.encode(), never.encode()) == guessed.body
        assert [name for name, _ in ended.headers] == [name for name, _ in guessed.headers]


def test_a_second_deletion_on_the_same_connection_is_404(session: Handle) -> None:
    first, second = sent(
        session.site,
        request("DELETE", session.path, keep=True) + request("DELETE", session.path),
    )
    assert (first.status, second.refusal) == (204, GONE)


def test_of_many_deletions_at_once_one_is_204(session: Handle, threads: ThreadPoolExecutor) -> None:
    raw = request("DELETE", session.path)
    replies = [threads.submit(one, session.site, raw) for _ in range(8)]
    statuses = sorted(reply.result(PATIENCE_S).status for reply in replies)
    assert statuses == [204, *[404] * 7]


def test_a_deletion_does_not_wait_for_a_chat_and_the_chat_leaves_nothing(
    session: Handle, engine: StubEngine
) -> None:
    gate = engine.will_hold(first_turn())
    with connected(session.site) as sock:
        sock.sendall(chat(session))
        gate.wait_for_request()
        assert one(session.site, request("DELETE", session.path)).status == 204
        gate.open()
        (reply,) = replies_in(until_closed(sock))
    assert reply.refusal == GONE
    assert one(session.site, request("GET", session.path)).refusal == GONE


def at_once(session: Handle, engine: StubEngine, num: int) -> list[Reply]:
    """The answers to chats that are all at the engine when the first of them is answered."""
    gates = [engine.will_hold(speaks([50 + index])) for index in range(num)]
    socks = []
    for gate in gates:
        socks.append(connected(session.site))
        socks[-1].sendall(chat(session))
        gate.wait_for_request()
    for gate in gates:
        gate.open()
    replies = []
    for sock in socks:
        with sock:
            replies += replies_in(until_closed(sock))
    return replies


@pytest.mark.parametrize(("trajectory", "expected"), [("linear", 1), ("tree", 6)])
def test_as_many_turns_are_recorded_as_were_answered_200(
    start: StartServer, engine: StubEngine, trajectory: str, expected: int
) -> None:
    session = start(trajectory=trajectory).create()
    replies = at_once(session, engine, 6)
    good = [reply for reply in replies if reply.status == 200]
    assert len(good) == expected
    assert {reply.refusal for reply in replies if reply.status != 200} <= {STALE}
    assert session.site.state.registry.get(session.id).trajectory.version == expected


@pytest.mark.parametrize("cut", [1, 40, -60, -1], ids=["first byte", "head", "body", "last byte"])
def test_a_client_that_goes_within_its_request_leaves_nothing(
    session: Handle, engine: StubEngine, cut: int
) -> None:
    with connected(session.site) as sock:
        sock.sendall(chat(session)[:cut])
    engine.will(first_turn())
    assert one(session.site, chat(session)).status == 200
    assert session.num_records() == len(engine.seen) == 1


@pytest.mark.parametrize("linger", [False, True], ids=["closed", "reset"])
def test_a_client_that_goes_while_the_engine_works_ends_that_work(
    session: Handle, engine: StubEngine, linger: bool
) -> None:
    engine.will(NEVER, first_turn())
    with connected(session.site) as sock:
        sock.sendall(chat(session))
        assert engine.asked.wait(PATIENCE_S)
        if linger:  # an end without a goodbye
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00" + bytes(4))
    assert engine.hung_up.wait(PATIENCE_S)
    assert session.num_records() == 0
    assert one(session.site, chat(session)).status == 200


def test_deletions_among_chats_leave_no_session_half_there(
    site: Site, engine: StubEngine, threads: ThreadPoolExecutor
) -> None:
    """Chats and deletions in an order of chance."""
    chance = random.Random(5)
    sessions = [site.create() for _ in range(6)]
    engine.will(*[speaks([40])] * 30)
    calls = [chat(session) for session in sessions for _ in range(5)]
    calls += [request("DELETE", session.path) for session in sessions]
    chance.shuffle(calls)
    replies = list(threads.map(lambda raw: one(site, raw), calls, timeout=PATIENCE_S))
    assert sorted({reply.status for reply in replies} - {200, 204, 404, 409}) == []
    assert [reply.status for reply in replies].count(204) == 6
    for session in sessions:
        assert one(site, request("GET", session.path)).refusal == GONE
