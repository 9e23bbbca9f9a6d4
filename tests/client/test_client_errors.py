"""The client's errors: their place in the tree, their facts, and how they travel."""

from __future__ import annotations

import copy
import pickle

import pytest

from sample_wire import SampleWireError
from sample_wire.errors import ClientError, CollectTimeout, ServerError

ERRORS = [
    ClientError("reset", expected="a", got="b"),
    CollectTimeout("too slow"),
    ServerError(422, "assembly_failed", "turn 2: no row"),
    ServerError(502, None, "<html>"),
]
each_error = pytest.mark.parametrize("error", ERRORS, ids=lambda error: str(error)[:40])


@each_error
def test_every_error_is_a_client_error(error: SampleWireError) -> None:
    assert isinstance(error, ClientError)


def test_a_timeout_is_a_timeout_error_too() -> None:
    assert issubclass(CollectTimeout, TimeoutError)


def test_no_other_client_error_is_a_timeout() -> None:
    assert not issubclass(ClientError, TimeoutError)
    assert not issubclass(ServerError, TimeoutError)


@each_error
def test_an_error_survives_pickle_and_copy(error: SampleWireError) -> None:
    for back in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(back) is type(error)
        assert str(back) == str(error)
        assert vars(back) == vars(error)


def test_a_server_error_keeps_a_text_that_its_message_cuts() -> None:
    text = "x" * 5000
    assert ServerError(422, "c", text).text == text
    assert len(str(ServerError(422, "c", text))) == 2000


@pytest.mark.parametrize(
    ("error", "status"), list(zip(ERRORS, [502, 504, 502, 502], strict=True)), ids=str
)
def test_a_server_in_between_is_told_what_to_answer(error: SampleWireError, status: int) -> None:
    assert error.http_status_hint == status
