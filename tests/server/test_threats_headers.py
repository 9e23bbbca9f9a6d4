"""Headers on their way to the engine: none of one connection, none that says more than it may."""

from __future__ import annotations

import re

import pytest

from sample_wire.adapters.server.headers import routing_key

from ._raw import chat, one
from ._serving import Handle, Site
from ._sglang import first_turn
from ._stub import Seen, StubEngine


def seen_of(session: Handle, engine: StubEngine, *headers: str) -> Seen:
    """What the engine sees of a chat with these headers."""
    engine.will(first_turn())
    assert one(session.site, chat(session, *headers)).status == 200
    (seen,) = engine.seen
    return seen


@pytest.mark.parametrize(
    "header",
    [
        *("keep-alive: timeout=9", "te: trailers", "trailer: x", "upgrade: h2c"),
        *("proxy-connection: close", "proxy-authorization: Basic x", "expect: 100-continue"),
        *("content-encoding: gzip", "accept-encoding: gzip, br", "connection: x-a, te"),
    ],
)
def test_a_header_of_one_connection_ends_here(
    session: Handle, engine: StubEngine, header: str
) -> None:
    name, _, value = header.partition(": ")
    assert value not in seen_of(session, engine, header).values(name)


@pytest.mark.parametrize("name", ["x_smg_routing_key", "X_Request_Id", "a_b", "_"])
def test_a_name_that_gateways_read_as_another_ends_here(
    session: Handle, engine: StubEngine, name: str
) -> None:
    assert seen_of(session, engine, f"{name}: mine").values(name) == []


@pytest.mark.parametrize(
    "named", ["x-own", "X-OWN", "close, x-own", "x-own,,keep-alive", "\tx-own "]
)
def test_a_header_that_the_connection_names_ends_here(
    session: Handle, engine: StubEngine, named: str
) -> None:
    seen = seen_of(session, engine, f"connection: {named}", "x-own: 1", "x-other: 2")
    assert (seen.values("x-own"), seen.values("x-other")) == ([], ["2"])


@pytest.mark.parametrize(
    "name", ["x-smg-routing-key", "x-request-id", "content-length", "content-type", "host"]
)
def test_what_we_set_stays_set_though_the_connection_names_it(
    session: Handle, engine: StubEngine, name: str
) -> None:
    seen = seen_of(session, engine, f"connection: {name}")
    assert len(seen.values(name)) == 1
    assert seen.json["input_ids"] == [1, 2, 3]


def test_the_routing_key_is_ours_and_the_last_header_of_its_kind(
    session: Handle, engine: StubEngine
) -> None:
    seen = seen_of(session, engine, "x-smg-routing-key: a", "X-Smg-Routing-Key: b")
    assert seen.values("x-smg-routing-key") == [routing_key(session.id).decode()]


def test_nothing_that_the_engine_sees_has_the_sessions_id(
    session: Handle, engine: StubEngine
) -> None:
    seen = seen_of(session, engine, f"referer: http://h{session.path}/v1")
    assert session.id not in repr(seen)


def test_turns_of_a_session_have_one_routing_key_and_other_sessions_others(
    site: Site, engine: StubEngine
) -> None:
    sessions = [site.create(), site.create()]
    for session in [*sessions, *sessions]:
        engine.will(first_turn())
        assert one(site, chat(session)).status == 200
    keys = [seen.values("x-smg-routing-key") for seen in engine.seen]
    assert keys[:2] == keys[2:]
    assert keys[0] != keys[1]
    assert all(re.fullmatch("[0-9a-f]{32}", key) for (key,) in keys)


def test_the_engine_is_asked_for_plain_bytes(session: Handle, engine: StubEngine) -> None:
    seen = seen_of(session, engine, "accept-encoding: br", "Accept-Encoding: zstd")
    assert seen.values("accept-encoding") == ["identity"]


@pytest.mark.parametrize("given", ["abc-1._Z", "a" * 64])
def test_a_clients_request_id_is_answered_and_goes_to_the_engine(
    session: Handle, engine: StubEngine, given: str
) -> None:
    engine.will(first_turn())
    reply = one(session.site, chat(session, f"X-Request-Id: {given}"))
    assert reply.header("x-request-id") == given
    assert engine.seen[0].values("x-request-id") == [given]


@pytest.mark.parametrize("given", ["", "a b", "a" * 65, '{"a":1}', "\xe9", "a;b"], ids=repr)
def test_a_request_id_that_may_not_stand_in_a_log_is_replaced(
    session: Handle, engine: StubEngine, given: str
) -> None:
    engine.will(first_turn())
    reply = one(session.site, chat(session, f"x-request-id: {given}"))
    made = reply.header("x-request-id")
    assert made is not None
    assert re.fullmatch("[0-9a-f]{32}", made)
    assert engine.seen[0].values("x-request-id") == [made]


def test_an_error_has_a_request_id_too(session: Handle) -> None:
    reply = one(session.site, chat(session, "x-request-id: r-1", body=b"no json"))
    assert reply.refusal == (400, "invalid_json")
    assert reply.header("x-request-id") == "r-1"


def test_the_engines_own_request_id_does_not_come_back(session: Handle, engine: StubEngine) -> None:
    made = first_turn()

    def answer(seen: Seen) -> object:
        reply = made(seen)
        return reply._replace(headers=[*reply.headers, ("x-request-id", "engine-1")])

    engine.will(answer)  # type: ignore[arg-type]
    reply = one(session.site, chat(session))
    assert [name for name, _ in reply.headers].count("x-request-id") == 1
    assert reply.header("x-request-id") != "engine-1"
