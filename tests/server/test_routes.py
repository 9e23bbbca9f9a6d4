"""Routes: their order, their methods, and what they answer where there is nothing."""

from __future__ import annotations

from typing import Any, Final

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from sample_wire import Sample
from sample_wire.adapters.server import ServerSettings, create_app
from sample_wire.adapters.server.headers import routing_key

from ._errors import error_of, refusal
from ._numbers import NumberTokenizer
from ._serving import Handle, Site, serving
from ._sglang import USER, answer, first_turn
from ._stub import Answer, StubEngine
from .conftest import StartServer

NOBODY: Final = "0123456789abcdef0123456789abcdef"
FINGERPRINT: Final = Sample.__sample_schema__.fingerprint(1)


def test_health_says_ok(site: Site) -> None:
    response = site.http.get("/health")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


def test_health_tells_the_instance_where_it_has_an_id(start: StartServer) -> None:
    response = start(instance_id="i-7").http.get("/health")
    assert response.json() == {"status": "ok", "session_server_instance_id": "i-7"}


def test_a_new_session_is_told_the_instance_where_it_has_an_id(start: StartServer) -> None:
    found = start(instance_id="i-7").http.post("/sessions").json()
    assert list(found) == [
        *("session_id", "field_set", "schema", "trajectory", "session_server_instance_id")
    ]
    assert found["session_server_instance_id"] == "i-7"


def test_a_session_id_is_32_hex_digits_and_never_the_same(site: Site) -> None:
    ids = {site.http.post("/sessions").json()["session_id"] for _ in range(8)}
    assert len(ids) == 8
    assert all(len(one) == 32 and not set(one) - set("0123456789abcdef") for one in ids)


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"null", b"no json", b"[1]", b'{"other": 1}', b"\xff"]
)
def test_a_body_that_states_no_handshake_is_ignored(site: Site, body: bytes) -> None:
    response = site.http.post("/sessions", content=body)
    assert response.status_code == 200
    assert list(response.json()) == ["session_id", "field_set", "schema", "trajectory"]


@pytest.mark.parametrize(
    "stated",
    [
        {"field_set": 1},
        {"schema": FINGERPRINT},
        {"field_set": 1, "schema": FINGERPRINT},
        {"field_set": None, "schema": None},
    ],
    ids=str,
)
def test_a_handshake_that_agrees_is_answered_with_the_servers(
    site: Site, stated: dict[str, Any]
) -> None:
    response = site.http.post("/sessions", json=stated)
    assert response.status_code == 200
    found = response.json()
    assert (found["field_set"], found["schema"]) == (1, FINGERPRINT)


@pytest.mark.parametrize(
    "stated",
    [{"field_set": 2}, {"field_set": True}, {"schema": "0" * 16}, {"field_set": 1, "schema": 5}],
    ids=str,
)
def test_a_handshake_that_does_not_agree_is_refused(site: Site, stated: dict[str, Any]) -> None:
    status, code, text = error_of(site.http.post("/sessions", json=stated))
    assert (status, code) == (409, "schema_mismatch")
    assert "the server's, which is" in text


def test_another_field_set_has_another_handshake(start: StartServer) -> None:
    response = start(field_set=2).http.post("/sessions", json={"field_set": 2})
    assert response.json()["schema"] == Sample.__sample_schema__.fingerprint(2)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("DELETE", ""),
        ("POST", "/v1/chat/completions"),
        ("POST", "/samples"),
        ("GET", "/v1/models"),
        ("POST", "/generate"),
    ],
)
def test_an_unknown_session_is_404_on_every_route(
    site: Site, engine: StubEngine, method: str, path: str
) -> None:
    response = site.http.request(method, f"/sessions/{NOBODY}{path}", content=b"no json")
    text = f"session not found: session_id={NOBODY}"
    assert error_of(response) == (404, "unknown_session", text)
    assert engine.seen == []


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/health", "GET, HEAD"),
        ("GET", "/sessions", "POST"),
        ("HEAD", "/sessions", "POST"),
        ("PUT", "/sessions", "POST"),
        ("GET", "/sessions/", "POST"),
        ("PUT", "/sessions/{id}", "DELETE, GET, HEAD"),
        ("OPTIONS", "/sessions/{id}", "DELETE, GET, HEAD"),
        ("GET", "/sessions/{id}/samples", "POST"),
        ("HEAD", "/sessions/{id}/samples", "POST"),
        ("GET", "/sessions/{id}/v1/chat/completions", "POST"),
        ("OPTIONS", "/sessions/{id}/v1/chat/completions", "POST"),
        ("POST", "/sessions/{id}/v1/models", "GET, HEAD"),
        ("PURGE", "/sessions/{id}/v1/models", "GET, HEAD"),
    ],
)
def test_a_method_that_a_path_does_not_have_is_405_in_our_shape(
    session: Handle, engine: StubEngine, method: str, path: str, allowed: str
) -> None:
    path = path.replace("{id}", session.id)
    response = session.site.http.request(method, path)
    assert response.headers["allow"] == allowed
    if method == "HEAD":
        assert (response.status_code, response.content) == (405, b"")
    else:
        expected = (405, "method_not_allowed", f"method not allowed: {method} {path}")
        assert error_of(response) == expected
    assert engine.seen == []


@pytest.mark.parametrize("path", ["/", "/session", "/metrics", "/health/"])
def test_a_path_that_is_no_route_is_404_in_our_shape(site: Site, path: str) -> None:
    assert error_of(site.http.get(path)) == (404, "not_found", f"Not Found: GET {path}")


@pytest.mark.parametrize(
    "path",
    [
        "generate",
        "v1/completions",
        "v1/models/",
        "flush_cache",
        "update_weights_from_disk",
        "samples/",
        "v1/chat/completions/",
        "v1/models/../../generate",
        "v1%2F..%2Fgenerate",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_no_other_route_of_the_engine_can_be_reached(
    session: Handle, engine: StubEngine, method: str, path: str
) -> None:
    request = f"{method} {session.path}/{path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n"
    reply = session.site.raw(request.encode())
    assert reply.startswith(b"HTTP/1.1 404 ")
    assert b'"code":"not_found"' in reply
    assert engine.seen == []


def test_samples_are_never_asked_of_the_engine(session: Handle, engine: StubEngine) -> None:
    assert session.samples().headers["content-type"] == "application/octet-stream"
    assert engine.seen == []


def test_the_models_of_the_engine_are_passed_through(session: Handle, engine: StubEngine) -> None:
    engine.will(answer({"data": [{"id": "stub"}]}, ("x-engine", "yes")))
    response = session.site.http.get(f"{session.path}/v1/models?a=1&b=%20", headers={"x-mine": "1"})
    assert response.json() == {"data": [{"id": "stub"}]}
    assert response.headers["x-engine"] == "yes"
    (seen,) = engine.seen
    assert (seen.method, seen.target) == ("GET", "/v1/models?a=1&b=%20")
    assert seen.values("x-mine") == ["1"]
    assert seen.values("x-smg-routing-key") == [routing_key(session.id).decode()]


def test_a_head_of_the_models_is_a_get_without_its_body(
    session: Handle, engine: StubEngine
) -> None:
    engine.will(answer({"data": []}))
    response = session.site.http.head(f"{session.path}/v1/models")
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["content-length"] == str(len(b'{"data":[]}'))
    assert engine.seen[0].method == "GET"


def test_an_error_of_the_engine_is_passed_through(session: Handle, engine: StubEngine) -> None:
    engine.will(Answer(503, b"warming up", [("content-type", "text/plain")]))
    response = session.site.http.get(f"{session.path}/v1/models")
    assert (response.status_code, response.text) == (503, "warming up")


def test_an_engine_that_cannot_be_reached_for_models_is_502(
    session: Handle, engine: StubEngine
) -> None:
    engine.will(Answer(hang_up=True))
    status, code, text = error_of(session.site.http.get(f"{session.path}/v1/models"))
    assert (status, code) == (502, "engine_unreachable")
    assert text.startswith("backend transport error: RemoteProtocolError: ")


@pytest.mark.parametrize("path", ["/health", "/sessions/{id}"])
def test_a_head_is_a_get_without_its_body(session: Handle, path: str) -> None:
    response = session.site.http.head(path.replace("{id}", session.id))
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["content-type"] == "application/json"


def test_deleting_gives_204_and_an_empty_body(session: Handle) -> None:
    response = session.delete()
    assert (response.status_code, response.content) == (204, b"")


def test_a_session_is_gone_after_its_deletion(session: Handle) -> None:
    session.delete()
    for response in (session.delete(), session.samples(), session.chat([USER])):
        assert refusal(response) == (404, "unknown_session")


def test_a_path_with_a_slash_at_its_end_creates_a_session_too(site: Site) -> None:
    assert site.http.post("/sessions/").status_code == 200


def test_the_server_can_be_mounted_in_another_application(engine: StubEngine) -> None:
    settings = ServerSettings(engine_url=engine.url, tokenizer="of the test")
    inner = create_app(settings, tokenizer=NumberTokenizer())
    outer = Starlette(routes=[Mount("/rollout", inner)], lifespan=inner.router.lifespan_context)
    with serving(outer) as port:
        engine.will(first_turn())
        url = f"http://127.0.0.1:{port}/rollout/sessions"
        with httpx2.Client(trust_env=False) as http:
            session_id = http.post(url).json()["session_id"]
            chat_url = f"{url}/{session_id}/v1/chat/completions"
            assert http.post(chat_url, json={"messages": [USER]}).status_code == 200
            assert refusal(http.put(url)) == (405, "method_not_allowed")
    assert engine.seen[0].target == "/v1/chat/completions"
