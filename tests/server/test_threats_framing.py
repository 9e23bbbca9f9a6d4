"""Where a request ends: what two servers may read in two ways is refused, and ends a connection.

After each of them the server answers others, and nothing reached the engine or the session.
"""

from __future__ import annotations

import contextlib
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from ._raw import chat as chat_request
from ._raw import connected, one, replies_in, request, sent, until_closed
from ._serving import Handle
from ._sglang import first_turn
from ._stub import StubEngine

BODY: Final = b'{"messages":[{"role":"user","content":"1 2 3"}]}'
LENGTH: Final = f"content-length: {len(BODY)}"
CHUNKED: Final = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
HIDDEN: Final = request("GET", "/health")
HEALTH: Final = request("GET", "/health", keep=True)
# More than systems buffer of a connection.
MOST_BYTES: Final = 1 << 26
TE: Final = "transfer-encoding: chunked"

AMBIGUOUS: Final = {
    "a length and chunks": (["content-length: 4", TE], CHUNKED),
    "chunks and a length": ([TE, "content-length: 4"], CHUNKED),
    "two lengths": (["content-length: 4", LENGTH], BODY),
    "a length twice": ([LENGTH, LENGTH], BODY),
    "a list of lengths": ([f"{LENGTH}, {len(BODY)}"], BODY),
    "a length with a sign": ([f"content-length: +{len(BODY)}"], BODY),
    "a negative length": (["content-length: -1"], BODY),
    "a length in hex": (["content-length: 0x10"], BODY),
    "a length with a part": (["content-length: 10.0"], BODY),
    "a length too large for a number": (["content-length: 99999999999999999999"], BODY),
    "a length with a blank before its colon": ([f"content-length : {len(BODY)}"], BODY),
    "chunks with a blank before their colon": (["transfer-encoding : chunked"], CHUNKED),
    "a coding like chunked": (["transfer-encoding: xchunked"], CHUNKED),
    "a coding behind chunked": (["transfer-encoding: chunked, identity"], CHUNKED),
    "a coding before chunked": (["transfer-encoding: gzip, chunked"], CHUNKED),
    "chunked twice": ([TE, TE], CHUNKED),
    "chunked and identity": ([TE, "transfer-encoding: identity"], CHUNKED),
    "chunked behind a vertical tab": (["transfer-encoding:\x0bchunked"], CHUNKED),
    "a folded line": (["x: a\r\n b", LENGTH], BODY),
    "a line without a colon": (["x", LENGTH], BODY),
    "a blank in a name": (["x y: a", LENGTH], BODY),
    "a control character in a value": (["x: a\x01b", LENGTH], BODY),
    "a null in a value": (["x: a\x00b", LENGTH], BODY),
    "a bare carriage return": (["x: a\rb: c", LENGTH], BODY),
    "two hosts": (["host: other", LENGTH], BODY),
    "another protocol asked for": (["connection: upgrade", "upgrade: h2c", LENGTH], BODY),
    "a size that is no number": ([TE], b"zz\r\n" + BODY),
    "a size below 0": ([TE], b"-5\r\n" + BODY),
    "a size too large for a number": ([TE], b"fffffffffffffffff\r\n" + BODY),
    "a chunk longer than its size": ([TE], b"5\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "chunks with bare line feeds": ([TE], CHUNKED.replace(b"\r\n", b"\n")),
    "a size behind a blank": ([TE], b" " + CHUNKED),
}


@pytest.mark.parametrize(("headers", "body"), AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_a_request_that_can_be_read_in_two_ways_is_refused_with_all_that_follows(
    session: Handle, engine: StubEngine, headers: list[str], body: bytes
) -> None:
    head = request("POST", f"{session.path}/v1/chat/completions", *headers, keep=True)
    assert one(session.site, head + body + HIDDEN).refusal == (400, "bad_http")
    assert engine.seen == []
    assert session.num_records() == 0


@pytest.mark.parametrize(
    "data",
    [
        b"GET /health\r\n\r\n",
        b"GET /health HTTP/2.0\r\nhost: h\r\n\r\n",
        b"GET /health HTTP/1.2\r\nhost: h\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.1\nhost: h\n\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"hello\r\n\r\n",
        b"POST /sessions HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
    ids=[
        *("no version", "version 2.0", "version 1.2", "no host", "bare line feeds"),
        *("the preface of HTTP/2", "TLS", "a word", "chunks of HTTP/1.0"),
    ],
)
def test_what_is_no_request_of_http_1_is_refused(session: Handle, data: bytes) -> None:
    assert one(session.site, data).refusal == (400, "bad_http")


def test_http_1_0_is_served_and_ends_its_connection(session: Handle) -> None:
    assert one(session.site, b"GET /health HTTP/1.0\r\n\r\n").status == 200


def test_fields_behind_a_body_are_no_headers(session: Handle, engine: StubEngine) -> None:
    engine.will(first_turn())
    head = request("POST", f"{session.path}/v1/chat/completions", TE)
    trailers = b"authorization: Bearer x\r\nx-late: 1\r\n\r\n"
    assert one(session.site, head + CHUNKED[:-2] + trailers).status == 200
    assert engine.seen[0].values("authorization") == engine.seen[0].values("x-late") == []


def test_extensions_of_chunks_are_passed_over(session: Handle, engine: StubEngine) -> None:
    engine.will(first_turn())
    head = request("POST", f"{session.path}/v1/chat/completions", TE)
    assert one(session.site, head + CHUNKED.replace(b"\r\n", b";a=b\r\n", 1)).status == 200
    assert engine.seen[0].json["messages"][0]["content"] == "1 2 3"


def test_what_follows_the_last_request_of_a_connection_is_not_read(
    session: Handle, engine: StubEngine
) -> None:
    engine.will(first_turn())
    assert one(session.site, chat_request(session) + HIDDEN).status == 200


def test_requests_in_a_row_are_answered_in_a_row(session: Handle, engine: StubEngine) -> None:
    engine.will(first_turn())
    first, second = sent(session.site, chat_request(session, keep=True) + HIDDEN)
    assert (first.status, second.body) == (200, b'{"status":"ok"}')


def broken(session: Handle) -> bytes:
    """A chat request whose chunks are none."""
    return request("POST", f"{session.path}/v1/chat/completions", TE, keep=True) + b"zz\r\n"


@pytest.mark.parametrize("behind", ["a word", "a broken body"])
def test_an_answer_that_is_due_comes_before_the_refusal_of_what_follows(
    session: Handle, engine: StubEngine, behind: str
) -> None:
    gate = engine.will_hold(first_turn())
    with connected(session.site) as sock:
        sock.sendall(chat_request(session, keep=True))
        gate.wait_for_request()
        sock.sendall(b"garbage\r\n\r\n" if behind == "a word" else broken(session))
        gate.open()
        chatted, refused = replies_in(until_closed(sock))
    assert (chatted.status, refused.refusal) == (200, (400, "bad_http"))
    assert session.num_records() == len(engine.seen) == 1


@pytest.mark.parametrize("behind", ["a word", "a broken body"])
def test_what_came_whole_with_a_broken_request_is_answered(session: Handle, behind: str) -> None:
    create = request("POST", "/sessions", body=b"", keep=True)
    data = create + HEALTH + (b"garbage\r\n\r\n" if behind == "a word" else broken(session))
    created, healthy, refused = sent(session.site, data)
    assert (healthy.status, refused.refusal) == (200, (400, "bad_http"))
    path = f"/sessions/{json.loads(created.body)['session_id']}"
    assert one(session.site, request("DELETE", path)).status == 204


def test_any_number_of_requests_in_a_row_is_answered(session: Handle) -> None:
    replies = sent(session.site, HEALTH * 3000 + HIDDEN)
    assert [reply.status for reply in replies] == [200] * 3001


def test_what_is_not_answered_yet_is_not_read_without_end(
    session: Handle, engine: StubEngine, threads: ThreadPoolExecutor
) -> None:
    gates = [engine.will_hold(first_turn()) for _ in range(2)]
    held = chat_request(session, keep=True)
    num_sent = 0

    def send() -> None:
        nonlocal num_sent
        with contextlib.suppress(OSError):
            for piece in [held + HEALTH * 1000 + held, *[HEALTH * 2000] * 2000]:
                sock.sendall(piece)
                num_sent += len(piece)

    with connected(session.site) as sock:
        sending, taking = threads.submit(send), threads.submit(until_closed, sock)
        for gate in gates:  # of a thousand answers between them, each might let more in
            gate.wait_for_request()
            assert num_sent < MOST_BYTES
            gate.open()
        sock.shutdown(socket.SHUT_RDWR)
        sending.result()
        taking.result()


@pytest.mark.parametrize(
    "data",
    [
        b"GET /health HTTP/1.1\r\nhost: h\r\nx: " + b"a" * (1 << 20) + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\nhost: h\r\n" + b"x: a\r\n" * 40_000 + b"\r\n",
        b"GET /health HTTP/1.1\r\nhost: h\r\nx: " + b"a" * (1 << 17),
    ],
    ids=["a long line", "many lines", "a line without an end"],
)
def test_a_head_has_a_limit(session: Handle, data: bytes) -> None:
    assert one(session.site, data).refusal == (431, "head_too_large")
