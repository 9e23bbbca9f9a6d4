"""Which layout a client asks for, and how it goes on where a server has the exact one only."""

from __future__ import annotations

import json
import logging
from typing import Final, Literal

import numpy as np
import pytest

from sample_wire import Sample, VersionError, encode_samples, read_container, write_container
from sample_wire.errors import ClientError, ServerError

from ._clients import Connect
from ._failures import BROKEN_OFF, NO_PAYLOAD, REFUSALS, Failure
from ._samples import make_payload, make_sample
from ._stub import Reply, Stub, answer, in_turn

OCTETS: Final = "application/octet-stream"
COMPACT: Final = f"{OCTETS}; format=2"
ASKS_FOR_COMPACT: Final = f"{COMPACT}, {OCTETS}; q=0.5"
PAYLOAD: Final = make_payload()
QUICK_FAILURES: Final = REFUSALS | BROKEN_OFF | {"HTML": NO_PAYLOAD["HTML with status 200"]}


def not_acceptable() -> Reply:
    """A server that knows of no parameter, and says so."""
    body = json.dumps({"error": "unknown parameter", "code": "odd"}).encode()
    return answer(body, status=406, media_type="application/json")


def accepts(stub: Stub) -> list[str]:
    """The Accept headers of all attempts to collect."""
    return [item.headers["accept"] for item in stub.received if item.path.endswith("/samples")]


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The client's warnings."""
    records = [record for record in caplog.records if record.name == "sample_wire.client"]
    assert all(record.levelno == logging.WARNING for record in records)
    return [record.getMessage() for record in records]


def of_format(number: int) -> bytes:
    """A payload whose JSON says that it is of this format."""
    tensors = dict(read_container(PAYLOAD))
    text = b'{"format":%d,' % number + bytes(tensors["_samples_meta"])[1:]
    return bytes(write_container(tensors | {"_samples_meta": np.frombuffer(text, np.uint8)}))


def test_the_exact_layout_is_asked_for_unless_told_otherwise(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    with Stub(answer(PAYLOAD)) as stub, connect(stub.url) as client:
        client.collect(Sample())
        assert accepts(stub) == [OCTETS]
    assert warnings_in(caplog) == []


def test_the_compact_layout_is_asked_for_with_the_exact_one_beside_it(connect: Connect) -> None:
    with Stub(answer(PAYLOAD)) as stub, connect(stub.url, layout="compact") as client:
        client.collect(Sample())
        assert accepts(stub) == [ASKS_FOR_COMPACT]


@pytest.mark.parametrize("layout", ["", "Compact", "format=2", None])
def test_another_layout_is_refused_when_the_client_is_made(
    connect: Connect, layout: object
) -> None:
    with pytest.raises(ValueError, match="layout is one of"):
        connect("http://server", layout=layout)


@pytest.mark.parametrize("media_type", [OCTETS, f"{OCTETS}; format=1", None])
def test_a_server_that_looks_at_no_accept_is_read_with_one_warning(
    connect: Connect, caplog: pytest.LogCaptureFixture, media_type: str | None
) -> None:
    with (
        Stub(answer(PAYLOAD, media_type=media_type)) as stub,
        connect(stub.url, layout="compact") as client,
    ):
        (sample,) = client.collect(Sample()).samples
        assert stub.requests == ["POST /sessions", "POST /ID/samples", "DELETE /ID"]
        told = f"{stub.url} has no compact layout, the exact one is used: asked for {COMPACT}"
    np.testing.assert_array_equal(sample.tokens, make_sample().tokens)
    assert warnings_in(caplog) == [f"{told}, the server answered {OCTETS}"]


def test_a_server_that_refuses_the_parameter_is_asked_for_the_exact_layout(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    replies = in_turn(not_acceptable(), answer(PAYLOAD))
    with Stub(replies) as stub, connect(stub.url, layout="compact") as client:
        (sample,) = client.collect(Sample(), max_seq_len=9).samples
        assert accepts(stub) == [ASKS_FOR_COMPACT, OCTETS]
        assert [item.body for item in stub.received[1:3]] == [b'{"max_seq_len":9}'] * 2
        assert stub.requests == ["POST /sessions", *["POST /ID/samples"] * 2, "DELETE /ID"]
    np.testing.assert_array_equal(sample.tokens, make_sample().tokens)
    (warning,) = warnings_in(caplog)
    assert warning.endswith("the server answered 406 odd: unknown parameter")


@pytest.mark.parametrize("refuses", [False, True], ids=["looks at no accept", "refuses"])
def test_the_next_session_asks_for_the_exact_layout_and_warns_no_more(
    connect: Connect, caplog: pytest.LogCaptureFixture, refuses: bool
) -> None:
    first = [not_acceptable()] if refuses else []
    with (
        Stub(in_turn(*first, answer(PAYLOAD))) as stub,
        connect(stub.url, layout="compact") as client,
    ):
        client.collect(Sample())
        client.create()
        client.collect(Sample())
        assert accepts(stub)[-1] == OCTETS
        assert stub.count("collect") == (3 if refuses else 2)
    assert len(warnings_in(caplog)) == 1


def test_a_client_for_each_session_does_not_mean_a_warning_for_each(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    with Stub(answer(PAYLOAD)) as stub:
        for _ in range(3):
            with connect(stub.url, layout="compact") as client:
                client.collect(Sample())
    assert len(warnings_in(caplog)) == 1


def test_a_server_that_refuses_the_exact_layout_too_is_told_as_it_is(connect: Connect) -> None:
    with Stub(not_acceptable()) as stub, connect(stub.url, layout="compact") as client:
        with pytest.raises(ServerError) as caught:
            client.collect(Sample())
        assert (caught.value.status, caught.value.code) == (406, "odd")
        assert (stub.count("collect"), stub.count("delete")) == (2, 1)


def test_a_406_to_who_asked_for_the_exact_layout_is_not_asked_again(connect: Connect) -> None:
    with Stub(in_turn(not_acceptable(), answer(PAYLOAD))) as stub, connect(stub.url) as client:
        with pytest.raises(ServerError):
            client.collect(Sample())
        assert (stub.count("collect"), stub.count("delete")) == (1, 1)


@pytest.mark.parametrize("failure", QUICK_FAILURES.values(), ids=QUICK_FAILURES)
def test_no_other_failure_is_asked_again(connect: Connect, failure: Failure) -> None:
    with Stub(failure.reply) as stub, connect(stub.url, layout="compact") as client:
        with pytest.raises(failure.error):
            client.collect(Sample())
        assert (stub.count("collect"), stub.count("delete")) == (1, 1)


@pytest.mark.parametrize("failure", BROKEN_OFF.values(), ids=BROKEN_OFF)
def test_what_breaks_off_after_a_406_is_not_asked_a_third_time(
    connect: Connect, failure: Failure
) -> None:
    replies = in_turn(not_acceptable(), failure.reply)
    with Stub(replies) as stub, connect(stub.url, layout="compact") as client:
        with pytest.raises(failure.error):
            client.collect(Sample())
        assert (stub.count("collect"), stub.count("delete")) == (2, 1)


@pytest.mark.parametrize(
    ("layout", "media_type", "named"),
    [
        ("exact", COMPACT, "format=2"),
        ("exact", f'{OCTETS}; Format="7"', "format=7"),
        ("compact", f"{OCTETS}; format=3", "format=3"),
        ("compact", f"{OCTETS}; format=exact", "format=exact"),
    ],
)
def test_a_format_that_was_not_asked_for_is_refused_by_its_name(
    connect: Connect, layout: str, media_type: str, named: str
) -> None:
    with (
        Stub(answer(PAYLOAD, media_type=media_type)) as stub,
        connect(stub.url, layout=layout) as client,
    ):
        with pytest.raises(ClientError, match=f"the body is {OCTETS}; {named}, not") as caught:
            client.collect(Sample())
        assert stub.count("delete") == 1
    assert caught.value.got == f"{OCTETS}; {named}"
    assert OCTETS in (caught.value.expected or "")


def test_a_compact_payload_is_read_into_the_same_arrays(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    sent = make_sample()
    payload = bytes(encode_samples([sent], layout="compact"))
    with (
        Stub(answer(payload, media_type=COMPACT)) as stub,
        connect(stub.url, layout="compact") as client,
    ):
        (found,) = client.collect(Sample()).samples
    for name in ("tokens", "loss_mask", "rollout_log_probs", "rollout_routed_experts"):
        np.testing.assert_array_equal(getattr(found, name), getattr(sent, name), strict=True)
    assert warnings_in(caplog) == []


def test_narrow_arrays_are_handed_out_as_they_were_sent(connect: Connect) -> None:
    payload = bytes(encode_samples([make_sample()], layout="compact"))
    with (
        Stub(answer(payload, media_type=COMPACT)) as stub,
        connect(stub.url, layout="compact", widen=False) as client,
    ):
        (found,) = client.collect(Sample()).samples
    assert np.asarray(found.rollout_routed_experts).dtype == np.uint8


@pytest.mark.parametrize(
    ("layout", "media_type"), [("compact", OCTETS), ("exact", COMPACT)], ids=["as 1", "as 2"]
)
def test_a_payload_is_read_by_the_format_that_it_says_itself(
    connect: Connect, layout: Literal["exact", "compact"], media_type: str
) -> None:
    payload = bytes(encode_samples([make_sample()], layout=layout))
    with (
        Stub(answer(payload, media_type=media_type)) as stub,
        connect(stub.url, layout="compact") as client,
    ):
        (found,) = client.collect(Sample()).samples
    np.testing.assert_array_equal(
        np.asarray(found.rollout_routed_experts), make_sample().rollout_routed_experts, strict=True
    )


@pytest.mark.parametrize("media_type", [OCTETS, COMPACT])
def test_a_body_of_an_unknown_format_is_refused_beside_what_it_was_sent_as(
    connect: Connect, media_type: str
) -> None:
    with (
        Stub(answer(of_format(3), media_type=media_type)) as stub,
        connect(stub.url, layout="compact") as client,
        pytest.raises(VersionError) as caught,
    ):
        client.collect(Sample())
    assert caught.value.__notes__ == [f"the server sent it as {media_type}"]
