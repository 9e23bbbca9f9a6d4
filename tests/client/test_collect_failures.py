"""Every failure of collect: it is raised, nothing is sent twice, and the session is deleted."""

from __future__ import annotations

import httpx2
import pytest

from sample_wire import Sample
from sample_wire.adapters.client import ClientLimits

from ._clients import Connect
from ._failures import BROKEN_OFF, FAILURES, LIMIT_BYTES, Failure
from ._stub import Stub

LIMITS = ClientLimits(max_reply_bytes=LIMIT_BYTES)
each_failure = pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)


def collect_fails(connect: Connect, stub: Stub, failure: Failure) -> Exception:
    client = connect(stub.url, limits=LIMITS)
    client.create()
    with pytest.raises(failure.error) as caught:
        client.collect(Sample(), timeout_s=failure.timeout_s)
    return caught.value


@each_failure
def test_a_failure_is_raised_as_its_own_error(connect: Connect, failure: Failure) -> None:
    with Stub(failure.reply) as stub:
        assert type(collect_fails(connect, stub, failure)) is failure.error


@each_failure
def test_collect_is_sent_once_and_the_session_deleted_once(
    connect: Connect, failure: Failure
) -> None:
    with Stub(failure.reply) as stub:
        collect_fails(connect, stub, failure)
        assert stub.requests == ["POST /sessions", "POST /ID/samples", "DELETE /ID"]


def test_a_timeout_is_a_timeout_error_and_names_its_limit(connect: Connect) -> None:
    failure = FAILURES["silent"]
    with Stub(failure.reply) as stub:
        error = collect_fails(connect, stub, failure)
    assert isinstance(error, TimeoutError)
    assert f"{failure.timeout_s} s" in str(error)


@pytest.mark.parametrize("failure", BROKEN_OFF.values(), ids=BROKEN_OFF)
def test_an_error_of_the_transport_is_chained(connect: Connect, failure: Failure) -> None:
    with Stub(failure.reply) as stub:
        assert isinstance(collect_fails(connect, stub, failure).__cause__, httpx2.TransportError)
