"""Headers both ways, and bodies in the encodings that HTTP knows.  Section 4; case C27."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Final

import pytest

from sample_wire.adapters.server.headers import routing_key

from ._errors import refusal
from ._serving import Handle, Site
from ._sglang import FIRST_OUTPUT, USER, completion
from ._stub import JSON_TYPE, Answer, StubEngine

BODY: Final = json.dumps({"messages": [USER]}).encode()
REPLY: Final = json.dumps(completion(3, *FIRST_OUTPUT)).encode()


def raw_chat(session: Handle, *headers: str, body: bytes = BODY) -> tuple[list[str], bytes]:
    """Head lines, in lower case, and body of a chat over a raw socket."""
    lines = [
        f"POST {session.path}/v1/chat/completions HTTP/1.1",
        "host: h",
        "connection: close",
        f"content-length: {len(body)}",
        *headers,
        "",
        "",
    ]
    reply = session.site.raw("\r\n".join(lines).encode() + body)
    head, _, rest = reply.partition(b"\r\n\r\n")
    return head.decode().lower().split("\r\n"), rest


def test_a_clients_headers_reach_the_engine(session: Handle, engine: StubEngine) -> None:
    engine.will(Answer(body=REPLY))
    raw_chat(session, "Authorization: Bearer x", "X-Two: a", "x-two: b", "content-type: a/json")
    (seen,) = engine.seen
    assert seen.values("authorization") == ["Bearer x"]
    assert seen.values("x-two") == ["a", "b"]
    assert seen.values("content-type") == ["a/json"]


def test_headers_of_one_connection_do_not_reach_the_engine(
    session: Handle, engine: StubEngine
) -> None:
    engine.will(Answer(body=REPLY))
    raw_chat(session, "te: trailers", "keep-alive: timeout=5", "Proxy-Connection: keep-alive")
    (seen,) = engine.seen
    assert seen.values("host") == [engine.url.removeprefix("http://")]
    assert seen.values("content-length") == [str(len(seen.body))]
    for name in ("transfer-encoding", "te", "keep-alive", "proxy-connection"):
        assert seen.values(name) == []
    assert seen.values("connection") == ["close"]


@pytest.mark.parametrize("name", ["X-SMG-Routing-Key", "x-smg-routing-key"])
def test_a_clients_own_routing_key_is_replaced(
    session: Handle, engine: StubEngine, name: str
) -> None:
    engine.will(Answer(body=REPLY))
    raw_chat(session, f"{name}: mine")
    assert engine.seen[0].values("x-smg-routing-key") == [routing_key(session.id).decode()]


def test_headers_that_a_connection_names_end_with_it(session: Handle, engine: StubEngine) -> None:
    named = ("connection", "X-Hop, close")
    engine.will(Answer(200, REPLY, [JSON_TYPE, named, ("X-Hop", "a"), ("X-On", "b")]))
    head, _ = raw_chat(session, "connection: x-own", "X-Own: 1", "X-Other: 2")
    (seen,) = engine.seen
    assert (seen.values("x-own"), seen.values("x-other")) == ([], ["2"])
    assert [line.partition(":")[0] for line in head if line.startswith("x-")] == [
        "x-on",
        "x-request-id",
    ]


def test_a_body_without_a_type_is_sent_as_json(session: Handle, engine: StubEngine) -> None:
    engine.will(Answer(body=REPLY))
    raw_chat(session)
    assert engine.seen[0].values("content-type") == ["application/json"]


def test_the_engine_is_asked_not_to_compress(session: Handle, engine: StubEngine) -> None:
    engine.will(Answer(body=REPLY))
    raw_chat(session, "accept-encoding: br, zstd, gzip")
    assert engine.seen[0].values("accept-encoding") == ["identity"]


def test_the_query_string_is_passed_on_as_it_is(session: Handle, engine: StubEngine) -> None:
    engine.will(Answer(body=REPLY))
    session.chat_bytes(BODY, query="?a=%2F&b=c+d&&e")
    assert engine.seen[0].target == "/v1/chat/completions?a=%2F&b=c+d&&e"


def test_a_request_in_http_chunks_is_taken(session: Handle, engine: StubEngine) -> None:
    engine.will(Answer(body=REPLY))
    head = f"POST {session.path}/v1/chat/completions HTTP/1.1\r\nhost: h\r\nconnection: close\r\n"
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (BODY[:7], BODY[7:]))
    request = head.encode() + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    assert session.site.raw(request).startswith(b"HTTP/1.1 200 ")
    assert engine.seen[0].json["messages"] == [USER]


def test_c27_server_and_date_come_once_and_the_length_is_that_of_the_body(
    session: Handle, engine: StubEngine
) -> None:
    packed = gzip.compress(REPLY)
    headers = [
        JSON_TYPE,
        ("Server", "engine"),
        ("Date", "Thu, 01 Jan 1970 00:00:00 GMT"),
        ("Content-Encoding", "gzip"),
        ("Content-Length", str(len(packed))),
    ]
    engine.will(Answer(200, packed, headers))
    head, body = raw_chat(session)
    names = [line.partition(":")[0] for line in head[1:]]
    assert names.count("server") == names.count("date") == names.count("content-length") == 1
    assert "content-encoding" not in names
    assert "server: engine" not in head
    assert f"content-length: {len(body)}" in head
    assert json.loads(body)["choices"][0]["message"]["content"] == "10 11"


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress], ids=["gzip", "deflate"])
def test_a_reply_that_the_engine_compressed_all_the_same_is_read(
    session: Handle, engine: StubEngine, pack: object
) -> None:
    name = "gzip" if pack is gzip.compress else "deflate"
    packed = gzip.compress(REPLY) if name == "gzip" else zlib.compress(REPLY)
    engine.will(Answer(200, packed, [JSON_TYPE, ("content-encoding", name)]))
    assert session.chat([USER]).status_code == 200
    assert session.dump()["metadata"]["accumulated_token_ids"] == [1, 2, 3, 10, 11]


def test_a_compression_that_cannot_be_read_is_502(session: Handle, engine: StubEngine) -> None:
    engine.will(Answer(200, REPLY, [JSON_TYPE, ("content-encoding", "br")]))
    assert refusal(session.chat([USER])) == (502, "engine_unreachable")
    assert session.num_records() == 0


def test_a_reply_in_http_chunks_is_read(session: Handle, engine: StubEngine) -> None:
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (REPLY[:9], REPLY[9:]))
    headers = [JSON_TYPE, ("Transfer-Encoding", "chunked")]
    engine.will(Answer(200, chunks + b"0\r\n\r\n", headers))
    head, body = raw_chat(session)
    assert not any(line.startswith("transfer-encoding") for line in head)
    assert f"content-length: {len(body)}" in head


def test_other_headers_of_the_engine_come_back(session: Handle, engine: StubEngine) -> None:
    headers = [JSON_TYPE, ("X-Trace", "7"), ("set-cookie", "a=1"), ("set-cookie", "b=2")]
    engine.will(Answer(200, REPLY, [*headers, ("Keep-Alive", "timeout=5")]))
    head, _ = raw_chat(session)
    assert [line for line in head if line.startswith(("x-trace", "set-cookie"))] == [
        "x-trace: 7",
        "set-cookie: a=1",
        "set-cookie: b=2",
    ]
    assert not any(line.startswith("keep-alive") for line in head)


def test_a_reply_without_a_type_comes_back_as_json(session: Handle, engine: StubEngine) -> None:
    engine.will(Answer(200, REPLY, []))
    head, _ = raw_chat(session)
    assert "content-type: application/json" in head


def test_json_comes_back_compact_and_in_utf_8(session: Handle, engine: StubEngine) -> None:
    said = {"role": "assistant", "content": "\u00e9\u4e16"}
    reply = completion(3, *FIRST_OUTPUT, message=said)
    engine.will(Answer(body=json.dumps(reply, indent=2).encode()))
    _, body = raw_chat(session)
    assert body == json.dumps(reply, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def test_the_engines_cookies_go_to_its_client_and_to_no_other_session(
    site: Site, engine: StubEngine
) -> None:
    headers = [JSON_TYPE, ("set-cookie", "affinity=backend-7; Path=/")]
    engine.will(Answer(200, REPLY, headers), Answer(200, REPLY), Answer(200, REPLY))
    head, _ = raw_chat(site.create())
    assert "set-cookie: affinity=backend-7; path=/" in head
    raw_chat(site.create())
    raw_chat(site.create(), "cookie: own=1")
    assert [seen.values("cookie") for seen in engine.seen] == [[], [], ["own=1"]]
