"""The client's core without any network: what it asks for, and how it judges answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sample_wire import LimitError, Sample
from sample_wire.adapters._client_answer import Answer
from sample_wire.adapters._client_core import ClientLimits, Fetched, SessionSteps
from sample_wire.adapters._client_requests import Request, Steps
from sample_wire.errors import ClientError, CollectTimeout

from ._samples import make_payload
from ._stub import SESSION_ID

PAYLOAD = make_payload()


def make_steps(**arguments: Any) -> SessionSteps:
    settings: dict[str, Any] = {
        "field_set": 1,
        "schema": None,
        "handshake": True,
        "layout": "exact",
        "widen": True,
        "limits": ClientLimits(),
    }
    return SessionSteps("http://server:1", **(settings | arguments))


def answered(
    request: Request, body: bytes = b"", length: str | None = None, status: int = 200
) -> Answer:
    answer = request.answered(status, {} if length is None else {"content-length": length})
    answer.add(body)
    answer.finish()
    return answer


def opened(**arguments: Any) -> SessionSteps:
    steps = make_steps(**arguments)
    creating = steps.create()
    request = next(creating)
    with pytest.raises(StopIteration):
        creating.send(answered(request, json.dumps({"session_id": SESSION_ID}).encode()))
    return steps


def collecting(steps: SessionSteps, timeout_s: float | None = 9.0) -> Steps[Fetched[Sample]]:
    return steps.collect(Sample(), max_seq_len=None, metadata=None, timeout_s=timeout_s)


def test_a_refused_create_is_asked_again_after_the_pause() -> None:
    creating = make_steps(limits=ClientLimits(create_pause_s=2.5)).create()
    first = next(creating)
    second = creating.send(answered(first, b"busy", status=503))
    assert (first.pause_s, second.pause_s) == (0.0, 2.5)
    assert (first.method, first.url) == (second.method, second.url)


def test_each_request_carries_its_own_limits() -> None:
    limits = ClientLimits(create_timeout_s=1.0, delete_timeout_s=2.0, max_reply_bytes=3)
    assert next(make_steps(limits=limits).create()).timeout_s == 1.0
    steps = collecting(opened(limits=limits), timeout_s=9.0)
    collect = next(steps)
    delete = steps.throw(ClientError("reset"))
    assert (collect.timeout_s, collect.max_bytes, delete.timeout_s) == (9.0, 3, 2.0)


def test_the_first_error_comes_out_after_the_delete() -> None:
    error = ClientError("reset")
    steps = collecting(opened())
    next(steps)
    delete = steps.throw(error)
    assert delete.method == "DELETE"
    with pytest.raises(ClientError) as caught:
        steps.throw(RuntimeError("of the delete"))
    assert caught.value is error


def test_an_operation_that_is_thrown_away_asks_for_nothing_more() -> None:
    steps = collecting(opened())
    next(steps)
    steps.close()
    with pytest.raises(StopIteration):
        next(steps)


def test_only_the_delete_goes_out_after_a_cancellation() -> None:
    steps = collecting(opened())
    collect = next(steps)
    assert (collect.is_shielded, steps.throw(ClientError("x")).is_shielded) == (False, True)


def test_what_a_406_took_is_taken_off_the_limit() -> None:
    steps = collecting(opened(layout="compact"), timeout_s=9.0)
    first = next(steps)
    second = steps.send(answered(first, b"{}", status=406))
    assert (first.timeout_s, second.method, second.url) == (9.0, first.method, first.url)
    assert second.timeout_s is not None
    assert 0 < second.timeout_s < 9.0
    assert "its limit of 9.0 s" in str(second.timed_out())


def test_a_406_without_a_limit_leaves_none() -> None:
    steps = collecting(opened(layout="compact"), timeout_s=None)
    assert steps.send(answered(next(steps), b"{}", status=406)).timeout_s is None


def test_a_406_that_came_at_the_limit_is_a_timeout_and_the_session_is_deleted() -> None:
    steps = collecting(opened(layout="compact"), timeout_s=1e-9)
    assert steps.send(answered(next(steps), b"{}", status=406)).method == "DELETE"
    with pytest.raises(CollectTimeout, match=r"its limit of 1e-09 s"):
        steps.throw(ClientError("of the delete"))


@pytest.mark.parametrize("length", ["0", "5", "7"])
def test_a_body_that_is_not_as_long_as_told_is_refused(length: str) -> None:
    request = next(collecting(opened()))
    with pytest.raises(ClientError, match="the body"):
        answered(request, b"123456", length)


@pytest.mark.parametrize("length", ["", "-1", "1e3", "5, 5", "\u0665", "9" * 20, "9" * 5000])
def test_a_length_that_is_no_number_of_bytes_is_not_used(length: str) -> None:
    request = next(collecting(opened()))
    assert bytes(answered(request, b"123456", length).body) == b"123456"


@pytest.mark.parametrize("length", [2**62, 10**19 - 1])
def test_a_length_beyond_all_memory_is_refused(length: int) -> None:
    request = next(collecting(opened(limits=ClientLimits(max_reply_bytes=None))))
    with pytest.raises(LimitError, match=f"no memory for a reply of {length} bytes"):
        request.answered(200, {"content-length": str(length)})


def test_a_body_of_exactly_the_limit_passes() -> None:
    request = next(collecting(opened(limits=ClientLimits(max_reply_bytes=6))))
    for length in (None, "6"):
        assert len(answered(request, b"123456", length).body) == 6


@pytest.mark.parametrize("length", [None, "7"], ids=["grown", "known"])
def test_a_body_of_one_byte_more_is_refused(length: str | None) -> None:
    request = next(collecting(opened(limits=ClientLimits(max_reply_bytes=6))))
    with pytest.raises(LimitError, match=r"7 bytes, the limit is 6"):
        answered(request, b"1234567", length)


def test_no_limit_lets_any_body_pass() -> None:
    request = next(collecting(opened(limits=ClientLimits(max_reply_bytes=None))))
    for length in (None, "6"):
        assert len(answered(request, b"123456", length).body) == 6
