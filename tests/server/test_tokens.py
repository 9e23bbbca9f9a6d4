"""A server with a token: who has it may do everything, who has not may ask for its health."""

from __future__ import annotations

import logging
from typing import Final

import openai
import pytest

from sample_wire import Sample
from sample_wire.adapters.client import SyncSessionClient
from sample_wire.adapters.server import ServerSettings
from sample_wire.errors import ServerError

from ._errors import refusal
from ._raw import chat, one, request
from ._serving import Handle, Site
from ._sglang import answer, first_turn
from ._stub import PATIENCE_S, StubEngine
from .conftest import StartServer

TOKEN: Final = "s3cr3t-Token~"
BEARER: Final = f"authorization: Bearer {TOKEN}"
REFUSED: Final = (401, "unauthorized")
ROUTES: Final = (
    ("POST", "/sessions"),
    ("GET", "/sessions/{id}"),
    ("DELETE", "/sessions/{id}"),
    ("POST", "/sessions/{id}/v1/chat/completions"),
    ("POST", "/sessions/{id}/samples"),
    ("GET", "/sessions/{id}/v1/models"),
    ("GET", "/sessions/{id}/health"),
    ("GET", "/nowhere"),
)


@pytest.fixture
def site(start: StartServer) -> Site:
    """A server with a token, which its `http` does not carry."""
    return start(token=TOKEN)


@pytest.fixture
def session(site: Site) -> Handle:
    """A new session of that server."""
    site.http.headers["authorization"] = f"Bearer {TOKEN}"
    made = site.create()
    del site.http.headers["authorization"]
    return made


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_without_the_token_every_route_is_401(
    session: Handle, engine: StubEngine, method: str, path: str
) -> None:
    reply = one(session.site, request(method, path.replace("{id}", session.id), body=b"{}"))
    assert reply.refusal == REFUSED
    assert reply.header("www-authenticate") == "Bearer"
    assert engine.seen == []


@pytest.mark.parametrize(
    "headers",
    [
        ["authorization: Bearer wrong"],
        ["authorization: Bearer"],
        [f"authorization: Bearer {TOKEN}x"],
        [f"authorization: Bearer {TOKEN[:-1]}"],
        [f"authorization: Bearer {TOKEN.lower()}"],
        [f"authorization: {TOKEN}"],
        [f"authorization: Basic {TOKEN}"],
        [f"authorization: Bearer {TOKEN} {TOKEN}"],
        ["authorization: Bearer \xe9\xff"],
        [BEARER, BEARER],
        [BEARER, "authorization: Bearer wrong"],
        [f"x-authorization: Bearer {TOKEN}"],
        [f"cookie: token={TOKEN}"],
    ],
    ids=str,
)
def test_what_only_resembles_the_token_is_401(site: Site, headers: list[str]) -> None:
    assert one(site, request("POST", "/sessions", *headers)).refusal == REFUSED


def test_a_token_in_the_query_is_401(site: Site) -> None:
    reply = one(site, request("POST", f"/sessions?token={TOKEN}&authorization=Bearer%20{TOKEN}"))
    assert reply.refusal == REFUSED


def test_a_known_session_and_an_unknown_one_look_alike_without_the_token(session: Handle) -> None:
    known = one(session.site, request("GET", session.path))
    unknown = one(session.site, request("GET", f"/sessions/{'0' * 32}"))
    assert known.body == unknown.body


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_with_the_token_a_session_is_created(site: Site, scheme: str) -> None:
    raw = request("POST", "/sessions", f"Authorization: {scheme} {TOKEN}")
    assert one(site, raw).status == 200


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_health_needs_no_token(site: Site, method: str) -> None:
    assert site.http.request(method, "/health").status_code == 200


def test_the_token_does_not_go_to_the_engine(session: Handle, engine: StubEngine) -> None:
    engine.will(first_turn(), answer({"data": []}))
    assert one(session.site, chat(session, BEARER)).status == 200
    models = request("GET", f"{session.path}/v1/models", BEARER)
    assert one(session.site, models).status == 200
    assert len(engine.seen) == 2
    assert TOKEN not in repr(engine.seen)


def test_without_a_token_a_clients_authorization_goes_to_the_engine(
    start: StartServer, engine: StubEngine
) -> None:
    session = start().create()
    engine.will(first_turn())
    assert one(session.site, chat(session, BEARER)).status == 200
    assert engine.seen[0].values("authorization") == [f"Bearer {TOKEN}"]


def test_the_token_is_not_in_the_log(
    session: Handle, engine: StubEngine, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        engine.will(first_turn())
        one(session.site, chat(session, BEARER))
        one(session.site, chat(session, f"{BEARER}x"))
        one(session.site, chat(session, BEARER, body=b"no json"))
        one(session.site, request("GET", "/health"))  # what is told of the others is told now
    told = [repr(vars(record)) for record in caplog.records]
    assert any("unauthorized" in line for line in told)
    assert not any(TOKEN in line for line in told)


def test_an_openai_client_takes_the_token_as_its_api_key(
    session: Handle, engine: StubEngine
) -> None:
    engine.will(first_turn())
    with openai.OpenAI(
        base_url=session.chat_url, api_key=TOKEN, timeout=PATIENCE_S, max_retries=0
    ) as agent:
        said = agent.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "1 2 3"}]
        )
    assert said.choices[0].message.content == "10 11"
    assert TOKEN not in repr(engine.seen)


def test_an_openai_client_with_another_key_is_told_so(session: Handle) -> None:
    with (
        openai.OpenAI(base_url=session.chat_url, api_key="none", timeout=PATIENCE_S) as agent,
        pytest.raises(openai.AuthenticationError) as refused,
    ):
        agent.chat.completions.create(model="m", messages=[{"role": "user", "content": "1"}])
    assert refusal(refused.value.response) == REFUSED


def test_a_session_client_has_the_token_for_all_that_it_asks(
    site: Site, engine: StubEngine
) -> None:
    with SyncSessionClient(site.url, token=TOKEN) as client:
        session = Handle(site, client.session_id)
        engine.will(first_turn())
        assert one(site, chat(session, BEARER)).status == 200
        (sample,) = client.collect(Sample()).samples
        assert sample.tokens.tolist() == [1, 2, 3, 10, 11]
        assert client.delete()
    gone = one(site, request("GET", session.path, BEARER))
    assert gone.refusal == (404, "unknown_session")


def test_a_session_client_without_the_token_is_told_so(site: Site) -> None:
    client = SyncSessionClient(site.url)
    with pytest.raises(ServerError) as refused:
        client.create()
    client.close()
    assert (refused.value.status, refused.value.code) == REFUSED


@pytest.mark.parametrize("token", ["", " ", "a b", "a\n", "\xe9", "a\x00"], ids=repr)
def test_a_token_that_no_header_carries_is_refused(token: str) -> None:
    with pytest.raises(ValueError, match="a token is one or more visible ASCII characters"):
        ServerSettings(engine_url="http://h", tokenizer="chatml", token=token)
    with pytest.raises(ValueError, match="a token is one or more visible ASCII characters"):
        SyncSessionClient("http://h", token=token)
