"""Paths, queries and targets: nothing but two routes leads to the engine, and to no other host."""

from __future__ import annotations

import json
from typing import Final

import pytest

from ._raw import one, request
from ._serving import Handle
from ._sglang import answer, first_turn
from ._stub import StubEngine

MODELS: Final = answer({"data": []})
TRICKS: Final = (
    "/v1/models/../../generate",
    "/v1/./models",
    "/v1/../v1/models",
    "/../../health",
    "/..",
    "/.",
    "/v1//models",
    "//v1/models",
    "/v1\\models",
    "/v1%5cmodels",
    "/v1%2fmodels",
    "/v1/%6dodels",
    "/v1/models%2e",
    "/v1/models%00",
    "/v1/models%0d%0ax-evil:%201",
    "/v1/models%3fadmin=1",
    "/v1/models%23",
    "/v1/models%252f..",
    "/v1/models%ff",
    "/v1/models;admin=1",
    "/v1/Models",
    "/v1/models/",
    "/%2e%2e/generate",
    "/http://127.0.0.1:1/v1/models",
    "/@127.0.0.1:1/v1/models",
    "/flush_cache",
    "/update_weights_from_disk",
)


@pytest.mark.parametrize("trick", TRICKS)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_path_that_only_resembles_an_allowed_one_reaches_no_engine(
    session: Handle, engine: StubEngine, method: str, trick: str
) -> None:
    reply = one(session.site, request(method, session.path + trick, body=b"{}"))
    assert reply.refusal == (404, "not_found")
    assert engine.seen == []


@pytest.mark.parametrize("bad", [b"\x00", b"\x01", b"\t", b"\x7f", b"\xff", b" "], ids=repr)
def test_a_target_with_a_byte_that_none_may_have_is_no_request(
    session: Handle, engine: StubEngine, bad: bytes
) -> None:
    good = request("GET", f"{session.path}/v1/models?a=MARKb")
    assert one(session.site, good.replace(b"MARK", bad)).refusal == (400, "bad_http")
    assert engine.seen == []


@pytest.mark.parametrize(
    "query",
    [
        "a=1&b=2",
        "a=%0d%0ax-evil:%201",
        "url=http://127.0.0.1:1/",
        "../../generate",
        "?a=/..//b",
        "",
    ],
)
def test_a_query_stays_a_query(session: Handle, engine: StubEngine, query: str) -> None:
    engine.will(MODELS)
    assert one(session.site, request("GET", f"{session.path}/v1/models?{query}")).status == 200
    (seen,) = engine.seen
    assert seen.target == (f"/v1/models?{query}" if query else "/v1/models")
    assert seen.values("x-evil") == []


@pytest.mark.parametrize("path", ["/v1/models#b", "/v1/models?a=1#b", "/v1/models#"])
def test_a_target_with_a_fragment_is_no_request(
    session: Handle, engine: StubEngine, path: str
) -> None:
    reply = one(session.site, request("GET", session.path + path))
    assert reply.refusal == (400, "bad_http")
    assert engine.seen == []


ROUTES: Final = (
    ("GET", "/health"),
    ("GET", "/openapi.json"),
    ("POST", "/sessions"),
    ("POST", "/sessions/"),
    ("GET", "/sessions/{id}"),
    ("DELETE", "/sessions/{id}"),
    ("POST", "/sessions/{id}/samples"),
    ("POST", "/sessions/{id}/v1/chat/completions"),
    ("GET", "/sessions/{id}/v1/models"),
)


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_no_route_is_found_by_a_spelling_that_others_may_not_decode(
    session: Handle, engine: StubEngine, method: str, path: str
) -> None:
    plain = path.replace("{id}", session.id)
    for at in range(1, len(plain)):
        spelled = f"{plain[:at]}%{ord(plain[at]):02x}{plain[at + 1 :]}"
        reply = one(session.site, request(method, spelled, body=b"{}"))
        assert reply.refusal == (404, "not_found"), spelled
    assert engine.seen == []


def test_a_target_that_names_another_host_goes_to_the_engine_of_the_settings(
    session: Handle, engine: StubEngine
) -> None:
    engine.will(MODELS)
    target = f"http://127.0.0.1:1{session.path}/v1/models"
    assert one(session.site, request("GET", target)).status == 200
    assert engine.seen[0].values("host") == [engine.url.removeprefix("http://")]


@pytest.mark.parametrize(
    ("method", "target", "expected"),
    [
        ("GET", "http://127.0.0.1:1/", (404, "not_found")),
        ("GET", "http://127.0.0.1:1", (400, "bad_http")),
        ("CONNECT", "127.0.0.1:1", (400, "bad_http")),
        ("OPTIONS", "*", (404, "not_found")),
    ],
    ids=["another host", "another host alone", "a tunnel", "the server itself"],
)
def test_the_server_is_no_proxy(
    session: Handle, engine: StubEngine, method: str, target: str, expected: tuple[int, str]
) -> None:
    assert one(session.site, request(method, target)).refusal == expected
    assert engine.seen == []


@pytest.mark.parametrize("key", ["base_url", "engine_url", "url", "proxy"])
def test_nothing_in_a_request_moves_the_engine(
    session: Handle, engine: StubEngine, key: str
) -> None:
    engine.will(first_turn())
    body = {"messages": [{"role": "user", "content": "1 2 3"}], key: "http://127.0.0.1:1"}
    path = f"{session.path}/v1/chat/completions?{key}=http://127.0.0.1:1"
    raw = request("POST", path, f"{key}: http://127.0.0.1:1", body=json.dumps(body).encode())
    assert one(session.site, raw).status == 200
    assert len(engine.seen) == 1


def test_a_path_is_told_back_no_further_than_a_little(session: Handle) -> None:
    reply = one(session.site, request("GET", "/" + "a" * 30_000))
    assert reply.refusal == (404, "not_found")
    assert len(reply.text) < 300


def test_an_id_is_told_back_no_further_than_a_little(session: Handle) -> None:
    reply = one(session.site, request("GET", "/sessions/" + "a" * 30_000))
    assert reply.refusal == (404, "unknown_session")
    assert len(reply.text) < 300
