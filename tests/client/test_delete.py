"""Ending a session: once, without waiting, and without hiding any other error."""

from __future__ import annotations

import logging

import pytest

from sample_wire import Sample
from sample_wire.adapters.client import ClientLimits
from sample_wire.errors import ServerError

from ._clients import Connect
from ._failures import SHORT_TIMEOUT_S
from ._samples import make_payload
from ._stub import Reply, Stub, answer, drip, hang_up, in_turn, reset, sends, silence

PAYLOAD = make_payload()
SHORT = ClientLimits(delete_timeout_s=SHORT_TIMEOUT_S)
GONE = answer(
    b'{"error":"session not found","code":"unknown_session"}',
    status=404,
    media_type="application/json",
)
BROKEN: dict[str, Reply] = {
    "500": answer(b"no", status=500),
    "409": answer(b"no", status=409),
    "redirect": answer(b"", "Location: /elsewhere", status=307),
    "reset": reset,
    "closed": hang_up,
    "silent": silence,
    "dripping head": sends(b"HTTP/1.1 204 No Content\r\nX: ", then=drip),
    "no HTTP": sends(b"SSH-2.0-OpenSSH_9.6\r\n", then=hang_up),
}
each_broken = pytest.mark.parametrize("delete", BROKEN.values(), ids=BROKEN)


def test_a_204_confirms_the_end(connect: Connect) -> None:
    with Stub() as stub, connect(stub.url) as client:
        assert client.delete()


def test_a_404_ends_it_at_once(connect: Connect) -> None:
    with Stub(delete=GONE) as stub, connect(stub.url) as client:
        assert client.delete()
        assert client.delete()
        assert stub.count("delete") == 1


def test_a_404_is_no_warning(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    with Stub(answer(PAYLOAD), delete=GONE) as stub, connect(stub.url) as client:
        client.collect(Sample())
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("status", [200, 202, 204])
def test_any_success_confirms_the_end_whatever_its_body(connect: Connect, status: int) -> None:
    with (
        Stub(delete=answer(b"OK", status=status, media_type="text/plain")) as stub,
        connect(stub.url) as client,
    ):
        assert client.delete()


def test_leaving_the_block_ends_an_open_session(connect: Connect) -> None:
    with Stub() as stub:
        with connect(stub.url):
            pass
        assert stub.requests == ["POST /sessions", "DELETE /ID"]


def test_leaving_the_block_by_an_error_ends_the_session(connect: Connect) -> None:
    with Stub() as stub:
        with pytest.raises(RuntimeError, match="the agent"), connect(stub.url):
            raise RuntimeError("the agent broke")
        assert stub.count("delete") == 1


@each_broken
def test_a_delete_that_fails_is_logged_and_not_raised(
    connect: Connect, delete: Reply, caplog: pytest.LogCaptureFixture
) -> None:
    with Stub(delete=delete) as stub:
        client = connect(stub.url, limits=SHORT)
        client.create()
        assert not client.delete()
    (record,) = (item for item in caplog.records if item.name == "sample_wire.client")
    assert "could not be deleted" in record.getMessage()
    assert record.exc_info is not None


@each_broken
def test_a_delete_that_fails_is_tried_once(connect: Connect, delete: Reply) -> None:
    with Stub(answer(PAYLOAD), delete=delete) as stub:
        with connect(stub.url, limits=SHORT) as client:
            client.collect(Sample())
        assert stub.count("delete") == 1


@each_broken
def test_a_delete_that_fails_does_not_cost_the_samples(connect: Connect, delete: Reply) -> None:
    with (
        Stub(answer(PAYLOAD), delete=delete) as stub,
        connect(stub.url, limits=SHORT) as client,
    ):
        assert len(client.collect(Sample()).samples) == 1


@each_broken
def test_a_delete_that_fails_does_not_hide_the_first_error(connect: Connect, delete: Reply) -> None:
    with (
        Stub(answer(b"the words", status=422), delete=delete) as stub,
        connect(stub.url, limits=SHORT) as client,
        pytest.raises(ServerError) as caught,
    ):
        client.collect(Sample())
    assert caught.value.text == "the words"


def test_a_delete_that_failed_can_be_asked_for_again(connect: Connect) -> None:
    delete = in_turn(reset, answer(status=204))
    with Stub(delete=delete) as stub, connect(stub.url) as client:
        assert [client.delete(), client.delete(), client.delete()] == [False, True, True]
        assert stub.count("delete") == 2


def test_without_a_session_there_is_nothing_to_delete(connect: Connect) -> None:
    with Stub() as stub:
        client = connect(stub.url)
        assert client.delete()
        client.close()
        assert stub.requests == []
