"""Bodies without an end, requests that do not come, and heads that stop half way.

Deadlines are short here and long elsewhere; nothing is measured but that they come.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import socket
from collections.abc import Iterator
from typing import Final

import pytest

from ._raw import chat as chat_request
from ._raw import connected, first, one, replies_in, request, sent, until_closed
from ._serving import Handle, Site
from ._sglang import first_turn
from ._stub import PATIENCE_S, StubEngine
from .conftest import StartServer

SHORT_S: Final = 0.1
LONG_S: Final = 3600.0
MOST: Final = 100_000
TE: Final = "transfer-encoding: chunked"
TOO_LARGE: Final = (413, "body_too_large")
BODY_ROUTES: Final = (
    ("POST", "/sessions"),
    ("POST", "/sessions/{id}/v1/chat/completions"),
    ("POST", "/sessions/{id}/samples"),
    ("GET", "/sessions/{id}/v1/models"),
)


class Told(logging.Handler):
    """Waits for what the server tells of a request when it has done with it."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._routes: queue.Queue[str] = queue.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self._routes.put(vars(record).get("route", ""))

    def wait_for(self, route: str) -> None:
        """Returns when a request of that route is done with."""
        while self._routes.get(timeout=PATIENCE_S) != route:
            pass


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[Told]:
    """What the server tells from here on."""
    handler = Told()
    logger = logging.getLogger("sample_wire.adapters.server")
    with caplog.at_level(logging.INFO, logger.name):
        logger.addHandler(handler)
        yield handler
        logger.removeHandler(handler)


@pytest.fixture
def small(start: StartServer) -> Handle:
    """A session of a server that takes small bodies only."""
    return start(max_body_bytes=MOST).create()


@pytest.fixture
def short_heads(start: StartServer) -> Handle:
    """A session of a server that waits for heads a short time, and for bodies a long one."""
    return start(head_timeout_s=SHORT_S, body_timeout_s=LONG_S).create()


@pytest.fixture
def short_bodies(start: StartServer) -> Handle:
    """A session of a server that waits for bodies a short time, and for heads a long one."""
    return start(head_timeout_s=LONG_S, body_timeout_s=SHORT_S).create()


@pytest.mark.parametrize(("method", "path"), BODY_ROUTES)
def test_a_body_that_tells_it_is_too_large_is_413_before_it_comes(
    small: Handle, engine: StubEngine, method: str, path: str
) -> None:
    head = request(method, path.replace("{id}", small.id), f"content-length: {MOST + 1}")
    with connected(small.site) as sock:
        sock.sendall(head)
        reply = first(sock)
    assert reply.refusal == TOO_LARGE
    assert reply.text == f"a body has at most {MOST} bytes"
    assert reply.header("connection") == "close"
    assert engine.seen == []


@pytest.mark.parametrize(("method", "path"), BODY_ROUTES)
def test_a_body_in_chunks_is_413_when_it_has_come_to_the_limit(
    small: Handle, engine: StubEngine, method: str, path: str
) -> None:
    head = request(method, path.replace("{id}", small.id), TE)
    chunk = b"%x\r\n%b\r\n" % (MOST + 1, b"a" * (MOST + 1))  # and no end
    with connected(small.site) as sock:
        sock.sendall(head + chunk)
        reply = first(sock)
    assert reply.refusal == TOO_LARGE
    assert engine.seen == []


def test_a_client_that_waits_after_a_413_is_cut_off(small: Handle) -> None:
    (reply,) = sent(small.site, request("POST", "/sessions", f"content-length: {MOST + 1}"))
    assert reply.refusal == TOO_LARGE


def test_a_client_that_sends_all_of_a_body_that_is_too_large_can_read_the_answer(
    small: Handle,
) -> None:
    reply = one(small.site, chat_request(small, body=b"a" * (64 * MOST)))
    assert reply.refusal == TOO_LARGE


def test_a_body_as_large_as_it_may_be_is_taken(small: Handle, engine: StubEngine) -> None:
    engine.will(first_turn())
    text = b'{"messages":[{"role":"user","content":"1 2 3"}]}'
    assert one(small.site, chat_request(small, body=text + b" " * (MOST - len(text)))).status == 200


def test_after_a_413_the_session_goes_on_as_before(small: Handle, engine: StubEngine) -> None:
    engine.will(first_turn())
    assert one(small.site, chat_request(small)).status == 200
    before = small.dump()
    assert one(small.site, chat_request(small, body=b"a" * 2 * MOST)).refusal == TOO_LARGE
    assert small.dump() == before


def unread(size: int) -> bytes:
    """A request whose body nobody reads, and another behind it."""
    raw = request("POST", f"/sessions/{'0' * 32}/samples", body=b"a" * size, keep=True)
    return raw + request("GET", "/health")


def test_a_refusal_before_a_large_body_ends_the_connection(site: Site) -> None:
    (reply,) = sent(site, unread(65_537))
    assert reply.refusal == (404, "unknown_session")
    assert reply.header("connection") == "close"


def test_a_refusal_before_a_small_body_passes_over_it(site: Site) -> None:
    refused, good = sent(site, unread(65_536))
    assert refused.refusal == (404, "unknown_session")
    assert good.body == b'{"status":"ok"}'


@pytest.mark.parametrize("data", [b"", b"GET /hea", b"GET /health HTTP/1.1\r\nx: a"], ids=repr)
def test_a_head_that_does_not_come_ends_the_connection(short_heads: Handle, data: bytes) -> None:
    with connected(short_heads.site) as sock:
        sock.sendall(data)
        replies = replies_in(until_closed(sock))
    assert [reply.refusal for reply in replies] == ([(408, "slow_request")] if data else [])


def test_a_second_head_that_does_not_come_ends_the_connection(short_heads: Handle) -> None:
    first, second = sent(short_heads.site, request("GET", "/health", keep=True) + b"GET /h")
    assert (first.status, second.refusal) == (200, (408, "slow_request"))


def test_empty_lines_do_not_keep_a_connection_for_ever(short_heads: Handle) -> None:
    with connected(short_heads.site) as sock:
        sock.sendall(request("GET", "/health", keep=True))
        assert first(sock).status == 200
        sock.sendall(b"\r\n")
        assert until_closed(sock) == b""


def test_a_connection_may_wait_for_its_next_request_longer_than_for_a_head(
    short_heads: Handle, short_bodies: Handle
) -> None:
    with connected(short_heads.site) as waiting:
        waiting.sendall(request("GET", "/health", keep=True))
        assert waiting.recv(1 << 16).endswith(b'{"status":"ok"}')
        # Another server's deadline passes meanwhile, which is as long.
        check_a_slow_body_is_408(short_bodies)
        waiting.sendall(request("GET", "/health"))
        (reply,) = replies_in(until_closed(waiting))
        assert reply.status == 200


def check_a_slow_body_is_408(session: Handle) -> None:
    """Half of a body is all that comes."""
    head = request("POST", f"{session.path}/v1/chat/completions", "content-length: 99")
    assert one(session.site, head + b'{"messages"').refusal == (408, "slow_request")


def test_a_body_that_does_not_come_is_408_and_leaves_nothing(
    short_bodies: Handle, engine: StubEngine
) -> None:
    check_a_slow_body_is_408(short_bodies)
    assert engine.seen == []
    assert short_bodies.num_records() == 0
    engine.will(first_turn())
    assert one(short_bodies.site, chat_request(short_bodies)).status == 200


def test_a_body_in_chunks_that_never_ends_is_408(short_bodies: Handle) -> None:
    head = request("POST", f"{short_bodies.path}/samples", TE)
    assert one(short_bodies.site, head + b"1\r\n{\r\n").refusal == (408, "slow_request")


def test_a_body_that_nobody_waits_for_ends_its_connection_too(short_bodies: Handle) -> None:
    head = request("GET", "/health", "content-length: 99", keep=True)
    (reply,) = sent(short_bodies.site, head)
    assert (reply.status, reply.header("connection")) == (200, None)


def test_an_engine_that_takes_longer_than_a_body_may_is_waited_for(
    short_bodies: Handle, engine: StubEngine
) -> None:
    gate = engine.will_hold(first_turn())
    with connected(short_bodies.site) as sock:
        sock.sendall(chat_request(short_bodies))
        gate.wait_for_request()
        check_a_slow_body_is_408(short_bodies)  # the deadline passes meanwhile
        gate.open()
        (reply,) = replies_in(until_closed(sock))
    assert reply.status == 200


def test_a_client_that_takes_nothing_of_its_answer_is_cut_off(
    start: StartServer, engine: StubEngine, told: Told
) -> None:
    session = start(send_timeout_s=SHORT_S).create()
    user = {"role": "user", "content": " ".join(["7"] * 1_000_000)}
    engine.will(first_turn())
    assert session.chat([user]).status_code == 200
    with connected(session.site) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(request("POST", f"{session.path}/samples", body=b""))
        # What was not taken is more than the system holds; the server has done with it.
        told.wait_for("/sessions/{session_id}/samples")
    assert session.collect().samples[0].response_length == 2


def test_a_client_that_hangs_up_behind_requests_in_a_row_is_no_fault(
    session: Handle, engine: StubEngine, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    gate = engine.will_hold(first_turn())
    with connected(session.site) as sock:
        sock.sendall(chat_request(session, keep=True) + request("GET", session.path, keep=True) * 9)
        gate.wait_for_request()
    gate.open()
    told.wait_for("/sessions/{session_id}/v1/chat/completions")
    for _ in range(9):
        one(session.site, request("GET", "/health"))
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []


@contextlib.contextmanager
def half_requests(session: Handle, num: int) -> Iterator[list[socket.socket]]:
    """Connections that sent part of a request each, and wait."""
    parts = (b"", b"GET /he", request("GET", "/health")[:-2], chat_request(session)[:-5])
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(connected(session.site)) for _ in range(num)]
        for index, sock in enumerate(socks):
            sock.sendall(parts[index % len(parts)])
        yield socks


def test_health_and_chat_are_answered_beside_200_half_requests(
    session: Handle, engine: StubEngine
) -> None:
    with half_requests(session, 200):
        for _ in range(20):
            assert one(session.site, request("GET", "/health")).status == 200
        engine.will(first_turn())
        assert one(session.site, chat_request(session)).status == 200
    assert session.num_records() == 1


def test_half_requests_are_all_closed_in_the_end(start: StartServer) -> None:
    session = start(head_timeout_s=SHORT_S, body_timeout_s=SHORT_S).create()
    with half_requests(session, 40) as socks:
        answers = [replies_in(until_closed(sock)) for sock in socks]
    refusals = [reply.refusal for replies in answers for reply in replies]
    assert refusals == [(408, "slow_request")] * 30  # who sent nothing is told nothing
