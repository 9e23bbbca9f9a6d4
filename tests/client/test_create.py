"""Opening a session: where, how often, with which handshake, and what is taken for an answer."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pytest

from sample_wire import Computed, Json, Sample, Schema
from sample_wire.adapters.client import ClientLimits
from sample_wire.errors import ClientError, ServerError

from ._clients import Connect
from ._failures import SHORT_TIMEOUT_S
from ._samples import make_payload
from ._stub import SESSION_ID, Reply, Stub, answer, created, hang_up, in_turn, reset, silence


class Scored(Sample):
    """A sample with one more computed field."""

    score: Annotated[float, Computed(codec=Json(), merge="last")] = 0.0


FINGERPRINT = Schema.of(Sample).fingerprint(1)
AT_ONCE = ClientLimits(create_tries=3, create_pause_s=0.0)
FOUND: dict[str, object] = {"session_id": SESSION_ID}


def as_json(document: object) -> Reply:
    return created(json.dumps(document).encode())


def refuses(status: int, code: str) -> Reply:
    body = json.dumps({"error": "the words", "code": code}).encode()
    return answer(body, status=status, media_type="application/json")


def test_create_gives_the_id_and_keeps_it(connect: Connect) -> None:
    with Stub() as stub:
        client = connect(stub.url)
        assert client.create() == SESSION_ID
        assert client.session_id == SESSION_ID


def test_entering_the_block_creates_the_session(connect: Connect) -> None:
    with Stub() as stub, connect(stub.url) as client:
        assert client.session_id == SESSION_ID


def test_entering_the_block_keeps_a_session_that_was_created(connect: Connect) -> None:
    with Stub() as stub:
        client = connect(stub.url)
        client.create()
        with client:
            assert stub.count("create") == 1


@pytest.mark.parametrize("path", ["", "/", "/rollout", "/rollout/"])
def test_the_chat_url_is_that_of_the_session(connect: Connect, path: str) -> None:
    with Stub() as stub, connect(stub.url + path) as client:
        expected = f"{stub.url}{path.rstrip('/')}/sessions/{SESSION_ID}/v1"
        assert client.chat_base_url == expected


def test_a_session_stays_on_the_server_it_was_opened_on(connect: Connect) -> None:
    payload = make_payload()
    with Stub(answer(payload)) as first, Stub(answer(payload)) as second:
        for _ in range(8):
            with connect([first.url, second.url]) as client:
                assert client.server_url in {first.url, second.url}
                client.collect(Sample())
        for stub in (first, second):
            opened = stub.count("create")
            assert (stub.count("collect"), stub.count("delete")) == (opened, opened)
        assert first.count("create") + second.count("create") == 8


def test_the_handshake_names_field_set_and_schema(connect: Connect) -> None:
    with Stub() as stub, connect(stub.url):
        body = stub.only("create").body
    assert json.loads(body) == {"field_set": 1, "schema": FINGERPRINT}


def test_the_handshake_is_that_of_the_field_set_and_schema_asked_for(connect: Connect) -> None:
    schema = Schema.of(Scored)
    with Stub() as stub, connect(stub.url, field_set=2, schema=schema):
        body = stub.only("create").body
    assert json.loads(body) == {"field_set": 2, "schema": schema.fingerprint(2)}
    assert schema.fingerprint(2) != Schema.of(Sample).fingerprint(2)


def test_the_handshake_can_be_left_out(connect: Connect) -> None:
    theirs = as_json(FOUND | {"field_set": 9, "schema": "of another server"})
    with Stub(create=theirs) as stub, connect(stub.url, handshake=False) as client:
        assert client.session_id == SESSION_ID
        assert stub.only("create").body == b""


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"field_set": 1},
        {"schema": FINGERPRINT},
        {"field_set": 1, "schema": FINGERPRINT},
        {"field_set": None, "schema": None},
        {"instance_id": "a server's own key"},
    ],
    ids=["neither", "field set", "schema", "both", "null", "unknown key"],
)
def test_a_server_that_agrees_or_says_nothing_is_taken(
    connect: Connect, facts: dict[str, object]
) -> None:
    with Stub(create=as_json(FOUND | facts)) as stub, connect(stub.url) as client:
        assert client.session_id == SESSION_ID


@pytest.mark.parametrize(
    ("facts", "instance_id"),
    [({}, None), ({"session_server_instance_id": "i-7"}, "i-7")],
    ids=["not told", "told"],
)
def test_a_client_knows_the_instance_of_its_server(
    connect: Connect, facts: dict[str, object], instance_id: str | None
) -> None:
    with Stub(create=as_json(FOUND | facts)) as stub:
        client = connect(stub.url)
        with pytest.raises(ClientError, match="no session"):
            _ = client.instance_id
        with client:
            assert client.instance_id == instance_id


@pytest.mark.parametrize(
    ("facts", "trajectory"),
    [({}, None), ({"trajectory": "tree"}, "tree")],
    ids=["not told", "told"],
)
def test_a_client_knows_the_kind_of_its_session(
    connect: Connect, facts: dict[str, object], trajectory: str | None
) -> None:
    with Stub(create=as_json(FOUND | facts)) as stub:
        client = connect(stub.url)
        with pytest.raises(ClientError, match="no session"):
            _ = client.trajectory
        with client:
            assert client.trajectory == trajectory


def test_a_409_of_the_handshake_is_raised_at_once(connect: Connect) -> None:
    with Stub(create=refuses(409, "schema_mismatch")) as stub:
        with pytest.raises(ServerError) as caught:
            connect(stub.url, limits=AT_ONCE).create()
        assert (caught.value.status, caught.value.code) == (409, "schema_mismatch")
        assert stub.requests == ["POST /sessions"]


@pytest.mark.parametrize(
    ("facts", "expected", "got"),
    [
        ({"field_set": 2}, "1", "2"),
        ({"schema": "0123456789abcdef"}, FINGERPRINT, "0123456789abcdef"),
        ({"field_set": 1, "schema": ""}, FINGERPRINT, ""),
    ],
    ids=["field set", "schema", "empty schema"],
)
def test_a_server_that_names_another_schema_is_refused_and_its_session_deleted(
    connect: Connect, facts: dict[str, object], expected: str, got: str
) -> None:
    with Stub(create=as_json(FOUND | facts)) as stub:
        with pytest.raises(ClientError) as caught:
            connect(stub.url).create()
        assert (caught.value.expected, caught.value.got) == (expected, got)
        assert stub.requests == ["POST /sessions", "DELETE /ID"]


@pytest.mark.parametrize(
    "reply",
    [
        created(b"not JSON"),
        created(b"\xff"),
        as_json([]),
        as_json({}),
        as_json({"session_id": None}),
        as_json({"session_id": ""}),
        as_json({"session_id": "../other"}),
        as_json({"session_id": "a?b"}),
        as_json({"session_id": "a" * 129}),
        as_json(FOUND | {"schema": 5}),
        answer(b"<html></html>", media_type="text/html"),
        answer(b"", status=204),
    ],
    ids=[
        "no JSON",
        "no UTF-8",
        "list",
        "no id",
        "null id",
        "empty id",
        "path as id",
        "query as id",
        "long id",
        "schema of wrong type",
        "HTML",
        "nothing",
    ],
)
def test_an_answer_that_is_no_session_is_a_client_error(connect: Connect, reply: Reply) -> None:
    with Stub(create=reply) as stub:
        with pytest.raises(ClientError) as caught:
            connect(stub.url, limits=AT_ONCE).create()
        assert type(caught.value) is ClientError
        assert stub.count("create") == 1


@pytest.mark.parametrize(
    "fault",
    [refuses(500, "x"), refuses(503, "x"), reset, hang_up],
    ids=["500", "503", "reset", "closed"],
)
def test_create_is_tried_again_after_a_fault_of_the_server(connect: Connect, fault: Reply) -> None:
    with Stub(create=in_turn(fault, fault, created())) as stub:
        assert connect(stub.url, limits=AT_ONCE).create() == SESSION_ID
        assert stub.count("create") == 3


def test_create_waits_between_its_tries(connect: Connect) -> None:
    limits = ClientLimits(create_tries=2, create_pause_s=0.001)
    with Stub(create=in_turn(reset, created())) as stub:
        assert connect(stub.url, limits=limits).create() == SESSION_ID


def test_create_gives_up_after_its_tries(connect: Connect) -> None:
    with Stub(create=refuses(503, "busy")) as stub:
        with pytest.raises(ServerError, match="busy"):
            connect(stub.url, limits=AT_ONCE).create()
        assert stub.count("create") == 3


@pytest.mark.parametrize("status", [400, 404, 409, 422, 307])
def test_create_is_not_tried_again_after_a_refusal(connect: Connect, status: int) -> None:
    with Stub(create=refuses(status, "x")) as stub:
        with pytest.raises(ServerError):
            connect(stub.url, limits=AT_ONCE).create()
        assert stub.count("create") == 1


def test_create_is_limited_in_time(connect: Connect) -> None:
    limits = ClientLimits(create_tries=2, create_pause_s=0.0, create_timeout_s=SHORT_TIMEOUT_S)
    with Stub(create=silence) as stub:
        with pytest.raises(ClientError, match="create took longer than its limit"):
            connect(stub.url, limits=limits).create()
        assert stub.count("create") == 2


def test_a_server_that_is_not_there_is_a_client_error_with_its_cause(connect: Connect) -> None:
    with Stub() as stub:
        url = stub.url
    with pytest.raises(ClientError, match="ConnectError") as caught:
        connect(url, limits=AT_ONCE).create()
    assert caught.value.__cause__ is not None


def test_a_create_that_fails_in_the_block_leaves_nothing_open(connect: Connect) -> None:
    with Stub(create=refuses(409, "schema_mismatch")) as stub:
        with pytest.raises(ServerError), connect(stub.url):
            pass
        assert stub.requests == ["POST /sessions"]


def test_a_second_session_needs_the_end_of_the_first(connect: Connect) -> None:
    with Stub() as stub, connect(stub.url) as client:
        with pytest.raises(ClientError, match="delete it before"):
            client.create()
        client.delete()
        assert client.create() == SESSION_ID


def test_a_create_that_fails_leaves_the_client_without_a_session(connect: Connect) -> None:
    with Stub(create=in_turn(created(), refuses(409, "x"))) as stub, connect(stub.url) as client:
        client.delete()
        with pytest.raises(ServerError):
            client.create()
        with pytest.raises(ClientError, match="there is no session"):
            assert client.session_id
        assert client.delete()
        assert stub.count("delete") == 1


@pytest.mark.parametrize("name", ["session_id", "server_url", "chat_base_url"])
def test_a_client_without_a_session_has_no_address(connect: Connect, name: str) -> None:
    with pytest.raises(ClientError, match="there is no session"):
        getattr(connect("http://127.0.0.1:1"), name)


@pytest.mark.parametrize(
    "servers",
    [
        *([], "", "127.0.0.1:30000", "ftp://127.0.0.1", "http://", "http://h/?q=1", "http://h /"),
        *("http://h:99999", "http://h:abc", "http://[::1", f"http://{'a' * 300}"),
    ],
)
def test_servers_that_are_no_urls_are_refused(connect: Connect, servers: str | list[str]) -> None:
    with pytest.raises(ValueError, match="URL"):
        connect(servers)


@pytest.mark.parametrize("url", ["http://h:1", "http://[::1]:1", "HTTPS://h.example/base"])
def test_urls_of_servers_are_taken(connect: Connect, url: str) -> None:
    connect(url)


@pytest.mark.parametrize("name", ["create_pause_s", "create_timeout_s", "delete_timeout_s"])
@pytest.mark.parametrize("time_s", [-1.0, float("nan"), float("inf"), 1e12])
def test_a_time_that_no_timer_keeps_is_refused(name: str, time_s: float) -> None:
    with pytest.raises(ValueError, match=name):
        ClientLimits(**{name: time_s})  # type: ignore[arg-type]


@pytest.mark.parametrize("field_set", [0, 3, "1"])
def test_a_field_set_that_there_is_not_is_refused(connect: Connect, field_set: Any) -> None:
    with pytest.raises(ValueError, match="field_set must be one of"):
        connect("http://127.0.0.1:1", field_set=field_set)


def test_a_closed_client_says_so(connect: Connect) -> None:
    with Stub() as stub:
        with connect(stub.url) as client:
            pass
        with pytest.raises(ClientError, match="the client is closed"):
            client.create()
        assert stub.requests == ["POST /sessions", "DELETE /ID"]


def test_a_client_that_may_not_try_is_refused() -> None:
    with pytest.raises(ValueError, match="create_tries"):
        ClientLimits(create_tries=0)


@pytest.mark.parametrize("reply", [refuses(503, "draining"), hang_up], ids=["drains", "hangs up"])
def test_a_try_that_fails_goes_on_at_another_server(connect: Connect, reply: Reply) -> None:
    with Stub(create=reply) as failing, Stub() as good:
        while not failing.received:  # which server is asked first is taken at random
            client = connect([failing.url, good.url], limits=AT_ONCE)
            assert client.create() == SESSION_ID
            assert client.server_url == good.url
        assert failing.count("create") == 1
