"""Engines that lie, break off, redirect or send bombs: 502, the session as it was, the next chat
works.  Replies that are JSON but no turn are in test_chat_replies.py."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any, Final

import pytest

from sample_wire.adapters.server import ServerSettings
from sample_wire.adapters.server.budgets import ByteCount
from sample_wire.adapters.server.upstream import Engine
from sample_wire.assembly import RoutingSpec
from sample_wire.errors import SessionError

from ._raw import chat, one, request
from ._serving import Handle, Site
from ._sglang import (
    FIRST_OUTPUT,
    NUM_LAYERS,
    TOP_K,
    completion,
    first_turn,
    raw_base64,
    routed,
    speaks,
)
from ._stub import JSON_TYPE, NEVER, Answer, StubEngine
from .conftest import StartServer

GOOD: Final = json.dumps(completion(3, *FIRST_OUTPUT)).encode()
LIMIT: Final = 1 << 20
BAD: Final = (502, "bad_engine_reply")
GONE: Final = (502, "engine_unreachable")
CHUNKED: Final = [JSON_TYPE, ("transfer-encoding", "chunked")]
GZIP: Final = [JSON_TYPE, ("content-encoding", "gzip")]


def with_entry(log_prob: Any, token: Any) -> Answer:
    """A reply whose first token is this."""
    reply = completion(3, *FIRST_OUTPUT)
    reply["choices"][0]["meta_info"]["output_token_logprobs"][0][:2] = [log_prob, token]
    return Answer(200, json.dumps(reply).encode())


def with_meta(**changes: Any) -> Answer:
    """A reply whose meta_info is changed."""
    return Answer(200, json.dumps(completion(3, *FIRST_OUTPUT, **changes)).encode())


LIES: Final[dict[str, tuple[Answer, tuple[int, str]]]] = {
    "nothing at all": (Answer(hang_up=True), GONE),
    "half of what it tells": (Answer(200, GOOD[:9], [("content-length", "99")], True), GONE),
    "more than it tells": (Answer(200, GOOD, [JSON_TYPE, ("content-length", "20")]), BAD),
    "two lengths": (Answer(200, GOOD, [("content-length", "5"), ("content-length", "6")]), GONE),
    "a length that is none": (Answer(200, GOOD, [("content-length", "x")]), GONE),
    "chunks that are none": (Answer(200, b"zz\r\n", CHUNKED, True), GONE),
    "chunks that break off": (Answer(200, b"5\r\nab", CHUNKED, True), GONE),
    "a page": (Answer(200, b"<html>busy</html>", [("content-type", "text/html")]), BAD),
    "deep lists": (Answer(200, b"[" * 200_000), BAD),
    "values without end": (Answer(200, GOOD[:-1] + b',"a":[' + b"0," * (1 << 22) + b"0]}"), BAD),
    "values without end, and NaN": (
        Answer(200, GOOD[:-1] + b',"a":[' + b"{}," * (1 << 21) + b"NaN]}"),
        BAD,
    ),
    "text without end": (Answer(200, GOOD[:-1] + b',"a":"' + b"a" * (1 << 25) + b'"}'), BAD),
    "deep objects in a choice": (
        Answer(200, GOOD[:-1] + b',"a":' + b'{"b":' * 100_000 + b"1" + b"}" * 100_001),
        BAD,
    ),
    "gzip that is none": (Answer(200, GOOD, GZIP), GONE),
    "gzip that breaks off": (Answer(200, gzip.compress(GOOD)[:-20], GZIP), GONE),
    "two codings": (Answer(200, GOOD, [("content-encoding", "gzip, gzip")]), GONE),
    "a coding that nobody knows": (Answer(200, GOOD, [("content-encoding", "zstd")]), GONE),
    "an endless head": (Answer(200, GOOD, [("x", "a" * 300_000)]), GONE),
    "a status above all": (Answer(999, GOOD), BAD),
    "a status that changes protocols": (Answer(101, b"", [("upgrade", "x")], True), GONE),
    "a token below 0": (with_entry(-0.5, -1), BAD),
    "a token that is a part": (with_entry(-0.5, 1.5), BAD),
    "a token that is true": (with_entry(-0.5, True), BAD),
    "a token of 70 bits": (with_entry(-0.5, 2**70), BAD),
    "a log-prob that is a text": (with_entry("-0.5", 10), BAD),
    "a log-prob that is a list": (with_entry([], 10), BAD),
    "tokens that are an object": (with_meta(output_token_logprobs={}), BAD),
    "a token too many": (with_meta(completion_tokens=1), BAD),
    "a count below 0": (with_meta(completion_tokens=-2), BAD),
    "a count that is a part": (with_meta(completion_tokens=2.5), BAD),
}


@pytest.mark.parametrize(("lie", "expected"), LIES.values(), ids=LIES)
def test_a_lie_is_502_and_the_session_goes_on_as_before(
    session: Handle, engine: StubEngine, lie: Answer, expected: tuple[int, str]
) -> None:
    before = session.dump()
    engine.will(lie, first_turn())
    reply = one(session.site, chat(session))
    assert reply.refusal == expected
    assert len(reply.text) < 300
    assert session.dump() == before
    assert one(session.site, chat(session)).status == 200
    assert session.num_records() == 1


BEHIND: Final = {
    "another reply": b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(GOOD), GOOD),
    "words": b"of another session\r\n\r\n",
}


@pytest.mark.parametrize("behind", BEHIND.values(), ids=BEHIND)
def test_what_an_engine_sends_behind_a_reply_does_not_answer_another_session(
    site: Site, engine: StubEngine, behind: bytes
) -> None:
    told = [JSON_TYPE, ("content-length", str(len(GOOD)))]
    engine.will(Answer(200, GOOD + behind, told), speaks([77]))
    assert one(site, chat(site.create())).status == 200
    reply = one(site, chat(site.create()))
    assert json.loads(reply.body)["choices"][0]["message"]["content"] == "77"


QUOTABLE: Final = {
    "a status line": Answer(100, b"xyzzy-plugh\r\n\r\n", [], True),
    "a header line": Answer(200, GOOD, [("a", "b\r\nxyzzy-plugh")]),
    "a header's name": Answer(200, GOOD, [("xyzzy-plugh", "\x01")]),
    "a length": Answer(200, GOOD, [("content-length", "xyzzy-plugh")]),
    "a chunk": Answer(200, b"xyzzy-plugh\r\n", CHUNKED, True),
    "a coding": Answer(200, GOOD, [("content-encoding", "xyzzy-plugh")]),
    "a packed body": Answer(200, b"xyzzy-plugh", GZIP),
    "no JSON": Answer(200, b"xyzzy-plugh"),
    "a key": Answer(200, GOOD[:-1] + b',"xyzzy-plugh":\xff}'),
    "a number": with_entry("xyzzy-plugh", 10),
}


@pytest.mark.parametrize("quotable", QUOTABLE.values(), ids=QUOTABLE)
def test_no_error_and_no_log_quotes_what_an_engine_sent(
    session: Handle, engine: StubEngine, caplog: pytest.LogCaptureFixture, quotable: Answer
) -> None:
    engine.will(quotable)
    with caplog.at_level(logging.DEBUG, "sample_wire"):
        reply = one(session.site, chat(session))
    assert reply.status == 502
    told = [repr(vars(record)) for record in caplog.records if record.name.startswith("sample")]
    assert told
    assert "xyzzy" not in f"{reply.text} {told}"


SPEC_OF_EXPERTS: Final = RoutingSpec(num_layers=NUM_LAYERS, top_k=TOP_K, num_experts=1000)
ROUTING: Final[dict[str, Any]] = {
    "a row too few": raw_base64(routed(3)),
    "a row too many": raw_base64(routed(5)),
    "an expert below 0": raw_base64(routed(4) - 1),
    "an expert that there is not": raw_base64(routed(4) + 100_000),
    "no base64": "@@@@",
    "a number": 7,
    "nothing": "",
}


@pytest.mark.parametrize("value", ROUTING.values(), ids=ROUTING)
@pytest.mark.parametrize("trajectory", ["linear", "tree"])
def test_routing_that_lies_is_502_and_leaves_nothing(
    start: StartServer, engine: StubEngine, trajectory: str, value: Any
) -> None:
    session = start(routing=SPEC_OF_EXPERTS, trajectory=trajectory).create()
    engine.will(first_turn(routed_experts=value), first_turn())
    assert one(session.site, chat(session)).refusal == BAD
    assert session.num_records() == 0
    assert one(session.site, chat(session)).status == 200


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 305, 307, 308, 399])
@pytest.mark.parametrize("route", ["chat", "models"])
def test_a_redirect_is_neither_followed_nor_passed_on(
    session: Handle, engine: StubEngine, route: str, status: int
) -> None:
    engine.will(Answer(status, b"", [("location", f"{engine.url}/flush_cache")]))
    raw = chat(session) if route == "chat" else request("GET", f"{session.path}/v1/models")
    reply = one(session.site, raw)
    assert reply.refusal == BAD
    assert reply.header("location") is None
    assert len(engine.seen) == 1
    assert session.num_records() == 0


def in_chunks(body: bytes) -> bytes:
    """A body in HTTP chunks."""
    pieces = [body[start : start + 65536] for start in range(0, len(body), 65536)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


LARGE: Final = b'{"choices":[' + b" " * LIMIT + b"]}"
TOO_LARGE: Final[dict[str, Answer]] = {
    "as it tells": Answer(200, LARGE),
    "as it tells and does not send": Answer(200, b"{", [("content-length", str(1 << 40))], True),
    "in chunks": Answer(200, in_chunks(LARGE), CHUNKED),
    "unpacked from gzip": Answer(200, gzip.compress(LARGE), GZIP),
    "unpacked from deflate": Answer(200, zlib.compress(LARGE), [("content-encoding", "deflate")]),
    "and no turn": Answer(500, LARGE),
}


@pytest.mark.parametrize("large", TOO_LARGE.values(), ids=TOO_LARGE)
def test_a_reply_that_is_too_large_is_502(
    start: StartServer, engine: StubEngine, large: Answer
) -> None:
    session = start(max_reply_bytes=LIMIT).create()
    engine.will(large, first_turn())
    reply = one(session.site, chat(session))
    assert reply.refusal == BAD
    assert reply.text == f"bad engine reply: it has more than {LIMIT} bytes (max_reply_bytes)"
    assert session.num_records() == 0
    assert one(session.site, chat(session)).status == 200


@pytest.mark.parametrize("pad", [-1, 0])
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_reply_as_large_as_it_may_be_is_taken(
    start: StartServer, engine: StubEngine, pack: Callable[[bytes], bytes], pad: int
) -> None:
    session = start(max_reply_bytes=LIMIT).create()
    body = GOOD + b" " * (LIMIT - len(GOOD) + pad)
    engine.will(Answer(200, pack(body), [JSON_TYPE] if pack is bytes else GZIP))
    assert one(session.site, chat(session)).status == 200


def test_a_call_that_finds_no_connection_free_does_not_blame_the_engine(engine: StubEngine) -> None:
    engine.will(NEVER)

    async def told() -> list[str]:
        settings = ServerSettings(
            engine_url=engine.url, tokenizer="-", max_connections=1, timeout_s=0.1
        )
        client = Engine(settings, ByteCount())
        calls = [client.send("POST", "/v1/chat/completions", b"", [], b"{}") for _ in range(2)]
        errors = await asyncio.gather(*calls, return_exceptions=True)
        await client.aclose()
        return [str(error) for error in errors]

    silent, crowded = asyncio.run(told())
    assert silent.endswith("ReadTimeout: the engine was silent for 0.1 s (timeout_s)")
    assert "all max_connections to the engine were in use for 0.1 s" in crowded


@pytest.mark.heavy
def test_a_bomb_is_never_held_larger_than_a_reply_may_be(engine: StubEngine) -> None:
    packing = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    zeros = bytes(1 << 20)
    bomb = b"".join(packing.compress(zeros) for _ in range(64)) + packing.flush()
    assert len(bomb) < 1 << 20
    engine.will(Answer(200, bomb, GZIP))

    async def defused() -> int:
        settings = ServerSettings(engine_url=engine.url, tokenizer="-", max_reply_bytes=LIMIT)
        client = Engine(settings, ByteCount())
        tracemalloc.start()
        with pytest.raises(SessionError, match="max_reply_bytes"):
            await client.send("POST", "/v1/chat/completions", b"", [], b"{}")
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        await client.aclose()
        return peak

    assert asyncio.run(defused()) < 8 * LIMIT
