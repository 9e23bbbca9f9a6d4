"""What collect sends, and what it gives back."""

from __future__ import annotations

from typing import Any

import httpx2
import numpy as np
import pytest

from sample_wire import EncodeError, Sample, Status, TemplateError, encode_samples
from sample_wire.errors import ClientError

from ._clients import Connect, Kind
from ._samples import make_payload, make_sample
from ._stub import Stub, answer, chunked, hang_up, head, sends

PAYLOAD = make_payload()
CHUNKED = "Transfer-Encoding: chunked"


def test_the_samples_are_laid_over_the_template(connect: Connect) -> None:
    with Stub(answer(PAYLOAD)) as stub, connect(stub.url) as client:
        (sample,) = client.collect(Sample(label="kept", metadata={"task": 7})).samples
    assert sample.label == "kept"
    assert sample.metadata == {"task": 7, "turns": 1}
    assert sample.status is Status.COMPLETED


def test_every_array_comes_back_exactly(connect: Connect) -> None:
    sent = make_sample()
    with Stub(answer(make_payload(sent))) as stub, connect(stub.url) as client:
        (found,) = client.collect(Sample()).samples
    for name in ("tokens", "loss_mask", "rollout_log_probs", "rollout_routed_experts"):
        np.testing.assert_array_equal(getattr(found, name), getattr(sent, name), strict=True)


def test_the_session_metadata_comes_back(connect: Connect) -> None:
    with Stub(answer(PAYLOAD)) as stub, connect(stub.url) as client:
        assert client.collect(Sample()).session_metadata == {"server": "stub"}


def test_an_empty_reply_is_no_exception(connect: Connect) -> None:
    payload = bytes(encode_samples([], {"turns": 0}, empty_reason="no_records"))
    with Stub(answer(payload)) as stub, connect(stub.url) as client:
        reply = client.collect(Sample())
    assert reply.samples == []
    assert reply.empty_reason == "no_records"
    assert reply.session_metadata == {"turns": 0}


@pytest.mark.parametrize(
    "reply",
    [
        sends(
            head(200, "application/octet-stream", None, CHUNKED),
            chunked([PAYLOAD[:100], PAYLOAD[100:]]),
        ),
        sends(
            head(200, "application/octet-stream", 7, CHUNKED),
            chunked([PAYLOAD]),
        ),
        sends(head(), PAYLOAD, then=hang_up),
        answer(PAYLOAD, media_type=None),
        answer(PAYLOAD, media_type="Application/Octet-Stream; charset=binary"),
        answer(PAYLOAD, "Content-Encoding: identity"),
        sends(b"HTTP/1.1 103 Early Hints\r\n\r\n", head(length=len(PAYLOAD)), PAYLOAD),
        sends(head(length=len(PAYLOAD)), *(PAYLOAD[i : i + 1] for i in range(len(PAYLOAD)))),
    ],
    ids=[
        "chunks",
        "chunks that make a length void",
        "until the end of the connection",
        "without a type",
        "type with a parameter",
        "identity encoding",
        "informational answer first",
        "byte by byte",
    ],
)
def test_every_correct_way_to_send_a_body_is_read(connect: Connect, reply: Any) -> None:
    with Stub(reply) as stub, connect(stub.url) as client:
        (sample,) = client.collect(Sample()).samples
    np.testing.assert_array_equal(sample.tokens, make_sample().tokens)


@pytest.mark.parametrize(
    ("arguments", "body"),
    [
        ({}, b'{"max_seq_len":null}'),
        ({"max_seq_len": 4096}, b'{"max_seq_len":4096}'),
        ({"max_seq_len": 0}, b'{"max_seq_len":0}'),
        ({"max_seq_len": np.int64(9)}, b'{"max_seq_len":9}'),
        ({"metadata": {}}, b'{"max_seq_len":null,"metadata":{}}'),
        (
            {"metadata": {"reward": np.float64(0.5)}},
            b'{"max_seq_len":null,"metadata":{"reward":0.5}}',
        ),
    ],
    ids=["default", "limit", "zero", "numpy limit", "empty metadata", "metadata"],
)
def test_the_body_is_exactly_the_arguments(
    connect: Connect, arguments: dict[str, Any], body: bytes
) -> None:
    with Stub(answer(PAYLOAD)) as stub, connect(stub.url) as client:
        client.collect(Sample(), **arguments)
        assert stub.only("collect").body == body


def test_the_body_is_asked_for_as_it_is(connect: Connect) -> None:
    with Stub(answer(PAYLOAD)) as stub, connect(stub.url) as client:
        client.collect(Sample())
        headers = stub.only("collect").headers
    assert headers["accept-encoding"] == "identity"
    assert headers["accept"] == "application/octet-stream"
    assert headers["content-type"] == "application/json"


def test_success_ends_the_session_with_one_delete(connect: Connect) -> None:
    with Stub(answer(PAYLOAD)) as stub, connect(stub.url) as client:
        client.collect(Sample())
        client.close()
        assert stub.requests == ["POST /sessions", "POST /ID/samples", "DELETE /ID"]


@pytest.mark.parametrize(
    ("template", "arguments", "error"),
    [
        (Sample(), {"max_seq_len": True}, TypeError),
        (Sample(), {"max_seq_len": 1.5}, TypeError),
        (Sample(), {"metadata": {"reward": float("nan")}}, EncodeError),
        (Sample(), {"metadata": {1: "number"}}, EncodeError),
        (object(), {}, TypeError),
        (Sample(weight_versions=["3"]), {}, TemplateError),
        (Sample, {}, TypeError),
        (Sample(), {"timeout_s": 0.0}, ValueError),
        (Sample(), {"timeout_s": -1.0}, ValueError),
        (Sample(), {"timeout_s": float("nan")}, ValueError),
        (Sample(), {"timeout_s": float("inf")}, ValueError),
        (Sample(), {"timeout_s": 1e12}, ValueError),
    ],
    ids=[
        *("bool", "float", "NaN", "number key", "no sample", "used template", "class"),
        *("no time", "time before", "time NaN", "time infinite", "time beyond timers"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_is_sent_and_loses_nothing(
    connect: Connect, template: Any, arguments: dict[str, Any], error: type[Exception]
) -> None:
    with Stub(answer(PAYLOAD)) as stub:
        client = connect(stub.url)
        client.create()
        with pytest.raises(error):
            client.collect(template, **arguments)
        assert stub.requests == ["POST /sessions"]
        assert len(client.collect(Sample()).samples) == 1


def test_a_refused_metadata_names_the_place(connect: Connect) -> None:
    with (
        Stub() as stub,
        connect(stub.url) as client,
        pytest.raises(EncodeError, match=r"metadata\.scores\[1\] is inf"),
    ):
        client.collect(Sample(), metadata={"scores": [1.0, float("inf")]})


def test_collect_needs_a_session(connect: Connect) -> None:
    with Stub() as stub:
        with pytest.raises(ClientError, match="there is no session"):
            connect(stub.url).collect(Sample())
        assert stub.requests == []


def test_a_second_collect_is_refused_and_sends_nothing(connect: Connect) -> None:
    with Stub(answer(PAYLOAD)) as stub, connect(stub.url) as client:
        client.collect(Sample())
        with pytest.raises(ClientError, match="once a session"):
            client.collect(Sample())
        assert stub.count("collect") == 1


def given_http(kind: Kind) -> httpx2.Client | httpx2.AsyncClient:
    return httpx2.Client() if kind == "sync" else httpx2.AsyncClient()


@pytest.mark.parametrize("is_given", [False, True], ids=["own http", "given http"])
def test_each_request_has_a_connection_of_its_own(
    connect: Connect, kind: Kind, is_given: bool
) -> None:
    http = given_http(kind) if is_given else None
    with Stub(answer(PAYLOAD)) as stub:
        with connect(stub.url, http=http) as client:
            client.collect(Sample())
        assert {item.headers["connection"] for item in stub.received} == {"close"}
    assert (stub.num_connections, stub.late_bytes) == (3, b"")


def test_a_given_http_client_stays_open(connect: Connect, kind: Kind) -> None:
    http = given_http(kind)
    with Stub() as stub, connect(stub.url, http=http):
        pass
    assert not http.is_closed
