"""POST /sessions/{id}/samples: the layout that the Accept header asks for, over raw sockets."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final, NamedTuple

import httpx2
import numpy as np
import pytest
from starlette.requests import Request

from sample_wire import Sample, SamplesReply, decode_samples, encode_samples, read_container
from sample_wire.adapters.server import ServerSettings
from sample_wire.adapters.server.samples import samples
from sample_wire.adapters.server.state import ServerState
from sample_wire.assembly import RoutingSpec
from sample_wire.demo.equality import differences

from ._errors import refusal
from ._numbers import NumberTokenizer
from ._serving import Handle
from ._sglang import NUM_LAYERS, TOOL, TOP_K, USER, first_turn, raw_base64, second_turn
from ._stub import StubEngine
from ._trees import grow
from .conftest import INCREMENTAL, SPEC, StartServer
from .test_concurrency import request_of
from .test_samples import play

OCTETS: Final = "application/octet-stream"
COMPACT: Final = f"{OCTETS}; format=2"
# Clients of format 1, of which none names a format.
OF_TODAY: Final = {
    "no accept": [],
    "any type": ["*/*"],
    "any application": ["application/*"],
    "the type": [OCTETS],
    "upper case": ["Application/OCTET-stream"],
    "a browser's list": ["text/html,application/xhtml+xml,*/*;q=0.8"],
    "two lines": ["application/json", f"{OCTETS};q=0.1"],
    "another parameter": [f"{OCTETS};charset=binary"],
    "an empty line": [""],
    "what is malformed": [f"{OCTETS}; format"],
}
ASKS_FOR_COMPACT: Final = {
    "the type": [COMPACT],
    "no spaces": [f"{OCTETS};format=2"],
    "upper case": ["APPLICATION/OCTET-STREAM; FORMAT=2; Q=1.0"],
    "quoted": [f'{OCTETS}; format="2"'],
    "this library's client": [f"{COMPACT}, {OCTETS}; q=0.5"],
    "preferred to any": [f"*/*; q=0.1, {COMPACT}; q=0.2"],
    "two lines": [f"{OCTETS}; q=0.5", COMPACT],
    "exact excluded": [f"{OCTETS}; q=0", f"{COMPACT}; q=0.001"],
}
REFUSED: Final = {
    "another type": ["application/json"],
    "an unknown format": [f"{OCTETS}; format=3"],
    "nothing": ["*/*; q=0"],
    "all but the type": [f"*/*, {OCTETS}; q=0"],
}


_OF_ITS_TIME: Final = ("date: ", "x-request-id: ")


class RawReply(NamedTuple):
    """An HTTP answer; header lines in lower case."""

    status: int
    headers: list[str]
    body: bytes

    def values(self, name: str) -> list[str]:
        """The values of every header of that name."""
        return [line.split(": ", 1)[1] for line in self.headers if line.startswith(f"{name}:")]


def request(session: Handle, accepts: list[str], *more: str) -> bytes:
    """The POST with these Accept lines."""
    lines = [f"POST {session.path}/samples HTTP/1.1", "host: h", "content-length: 2", *more]
    return "\r\n".join([*lines, *(f"Accept: {item}" for item in accepts), "", "{}"]).encode()


def replies(received: bytes) -> list[RawReply]:
    """The answers that were received one behind the other."""
    found = []
    while received:
        head, _, rest = received.partition(b"\r\n\r\n")
        status, *headers = head.decode().lower().split("\r\n")
        reply = RawReply(int(status.split()[1]), headers, b"")
        length = int(reply.values("content-length")[0])
        found.append(reply._replace(body=rest[:length]))
        received = rest[length:]
    return found


def ask(session: Handle, *accepts: str) -> RawReply:
    """The answer to the POST with these Accept lines."""
    received = session.site.raw(request(session, list(accepts), "connection: close"))
    (reply,) = replies(received)
    return reply


def equal(one: SamplesReply[Sample], other: SamplesReply[Sample], field_set: int = 1) -> bool:
    """Whether two replies are the same, bit for bit."""
    pairs = zip(one.samples, other.samples, strict=True)
    told = [differences(*pair, Sample(), field_set=field_set) for pair in pairs]
    return not any(told) and one.session_metadata == other.session_metadata


@pytest.fixture
def played(start: StartServer, engine: StubEngine) -> Handle:
    """A session of two turns with routing."""
    session = start(routing=SPEC).create()
    play(session, engine, first_turn(), second_turn())
    return session


@pytest.mark.parametrize("accepts", OF_TODAY.values(), ids=OF_TODAY)
def test_a_client_of_today_is_answered_as_it_is_today(played: Handle, accepts: list[str]) -> None:
    reply = ask(played, *accepts)
    decoded = decode_samples(reply.body, Sample())
    assert reply.status == 200
    assert sorted(line for line in reply.headers if not line.startswith(_OF_ITS_TIME)) == [
        "connection: close",
        f"content-length: {len(reply.body)}",
        "content-type: application/octet-stream",
        "server: uvicorn",
    ]
    assert reply.body == bytes(encode_samples(decoded.samples, decoded.session_metadata))


@pytest.mark.parametrize("accepts", ASKS_FOR_COMPACT.values(), ids=ASKS_FOR_COMPACT)
def test_who_names_format_2_is_sent_the_same_samples_in_it(
    played: Handle, accepts: list[str]
) -> None:
    reply, exact = ask(played, *accepts), ask(played)
    assert reply.values("content-type") == [COMPACT]
    assert reply.values("content-length") == [str(len(reply.body))]
    assert equal(decode_samples(exact.body, Sample()), decode_samples(reply.body, Sample()))
    assert read_container(reply.body)["rollout_routed_experts.0"].dtype == np.uint16
    assert read_container(exact.body)["rollout_routed_experts.0"].dtype == np.int32


@pytest.mark.parametrize("accepts", REFUSED.values(), ids=REFUSED)
def test_who_takes_neither_is_told_what_there_is(played: Handle, accepts: list[str]) -> None:
    before = played.dump()
    reply = ask(played, *accepts)
    assert (reply.status, reply.values("content-type")) == (406, ["application/json"])
    told = json.loads(reply.body)
    assert list(told) == ["error", "code", "supported"]
    assert (told["code"], told["supported"]) == ("not_acceptable", [OCTETS, COMPACT])
    assert "application/octet-stream; format=2" in told["error"]
    assert played.dump() == before


def test_after_a_406_the_same_request_may_be_sent_on_the_same_connection(played: Handle) -> None:
    refused = request(played, ["text/html"])
    asked = request(played, [COMPACT], "connection: close")
    first, second = replies(played.site.raw(refused + asked))
    assert (first.status, second.status) == (406, 200)
    assert equal(played.collect(), decode_samples(second.body, Sample()))


def test_a_session_that_is_not_there_is_404_whatever_is_accepted(played: Handle) -> None:
    played.delete()
    response = played.site.http.post(f"{played.path}/samples", headers={"accept": "text/html"})
    assert refusal(response) == (404, "unknown_session")


def test_layouts_may_be_asked_for_in_any_order(played: Handle) -> None:
    bodies = [ask(played, accept).body for accept in (COMPACT, OCTETS, COMPACT, OCTETS)]
    assert bodies[:2] == bodies[2:]
    assert bodies[0] != bodies[1]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "", 200), ("HEAD", "", 200), ("PUT", "/samples", 405), ("DELETE", "", 204)],
)
def test_other_methods_and_routes_look_at_no_accept(
    played: Handle, method: str, path: str, status: int
) -> None:
    url, headers = f"{played.path}{path}", {"accept": "text/html"}
    assert played.site.http.request(method, url, headers=headers).status_code == status


@pytest.mark.parametrize(
    ("num_experts", "dtype"), [(None, "uint8"), (256, "uint8"), (257, "uint16"), (70_000, "int32")]
)
def test_rows_are_as_narrow_as_the_number_of_experts_that_the_server_was_told(
    start: StartServer, engine: StubEngine, num_experts: int | None, dtype: str
) -> None:
    spec = RoutingSpec(num_layers=NUM_LAYERS, top_k=TOP_K, num_experts=num_experts)
    session = start(routing=spec).create()
    rows = np.arange(4 * NUM_LAYERS * TOP_K, dtype=np.int32).reshape(4, NUM_LAYERS, TOP_K)
    play(session, engine, first_turn(routed_experts=raw_base64(rows)))
    body = ask(session, COMPACT).body
    assert read_container(body)["rollout_routed_experts.0"].dtype == dtype
    (sample,) = decode_samples(body, Sample()).samples
    assert np.array_equal(sample.rollout_routed_experts, rows)  # type: ignore[arg-type]  # not None


def test_a_session_without_turns_or_routing_has_a_compact_payload_too(session: Handle) -> None:
    reply = decode_samples(ask(session, COMPACT).body, Sample())
    assert (reply.samples, reply.empty_reason) == ([], "no_records")


@pytest.mark.parametrize("spec", [None, SPEC, INCREMENTAL], ids=["none", "full", "incremental"])
def test_the_leaves_of_a_tree_are_the_same_in_both_layouts(
    start: StartServer, engine: StubEngine, spec: RoutingSpec | None
) -> None:
    session = start(trajectory="tree", routing=spec).create()
    grow(session, engine)
    exact, compact = ask(session), ask(session, COMPACT)
    assert compact.values("content-type") == [COMPACT]
    one, other = (decode_samples(item.body, Sample(), field_set=2) for item in (exact, compact))
    assert len(one.samples) == 2
    assert equal(one, other, field_set=2)


def test_narrowing_waits_for_its_thread_and_holds_up_nobody() -> None:
    """What the compact layout costs is done where trees are assembled, one at a time."""

    async def scenario() -> None:
        settings = ServerSettings(engine_url="http://127.0.0.1:1", tokenizer="of the test")
        state = ServerState(settings, NumberTokenizer())
        session_id = state.registry.create().id

        def asking(accept: str) -> Request:
            request = request_of("POST", session_id, b"{}")
            request.scope["headers"] = [(b"accept", accept.encode())]
            return request

        async with state.assembling:
            compact = asyncio.ensure_future(samples(state, asking(COMPACT)))
            for _ in range(3):  # each takes as many steps as the other would take on the loop
                exact = await samples(state, asking(OCTETS))
                assert exact.media_type == OCTETS
            assert not compact.done()
        assert (await compact).media_type == COMPACT
        await state.engine.aclose()

    asyncio.run(scenario())


def test_what_cannot_be_encoded_is_422_in_both_layouts(
    start: StartServer, engine: StubEngine
) -> None:
    session = start(keep_messages=True).create()
    deep: Any = []
    for _ in range(123):
        deep = [deep]
    engine.will(first_turn())
    assert session.chat([{**USER, "deep": deep}, TOOL]).status_code == 200
    told = {ask(session, accept).body for accept in (OCTETS, COMPACT)}
    assert [json.loads(body)["code"] for body in told] == ["encode_failed"]


def test_an_agents_chat_takes_what_it_is_sent(played: Handle, engine: StubEngine) -> None:
    """Accept is looked at where payloads are made; chat has one form."""
    engine.will(first_turn())
    url = f"{played.site.create().path}/v1/chat/completions"
    response: httpx2.Response = played.site.http.post(
        url, json={"messages": [USER]}, headers={"accept": COMPACT}
    )
    assert response.headers["content-type"] == "application/json"
