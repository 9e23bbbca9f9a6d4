"""Deadline: a blocking exchange ends when its time is over, and only then."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

import httpx2
import pytest

from sample_wire.adapters._client_deadline import Deadline

SHORT_S = 0.02


class Pair(NamedTuple):
    """A connection, and httpx2's view of its near end."""

    near: socket.socket
    far: socket.socket

    def get_extra_info(self, info: str) -> object:
        return {"socket": self.near}[info]


@pytest.fixture
def pair() -> Iterator[Pair]:
    near, far = socket.socketpair()
    with near, far:
        yield Pair(near, far)


def within(timeout_s: float | None, exchange: Callable[[Deadline], object]) -> None:
    with Deadline(timeout_s) as deadline:
        exchange(deadline)


def test_a_read_ends_when_the_time_is_over(pair: Pair) -> None:
    def exchange(deadline: Deadline) -> None:
        deadline.watch(pair)
        pair.near.recv(1)

    with pytest.raises(TimeoutError):
        within(SHORT_S, exchange)


@pytest.mark.parametrize("event", ["connect_tcp", "connect_unix_socket", "start_tls"])
def test_a_connection_is_known_as_soon_as_it_is_made(pair: Pair, event: str) -> None:
    def exchange(deadline: Deadline) -> None:
        deadline.trace(f"connection.{event}.complete", {"return_value": pair})
        pair.near.recv(1)

    with pytest.raises(TimeoutError):
        within(SHORT_S, exchange)


def test_other_events_are_no_connections(pair: Pair) -> None:
    with Deadline(60.0) as deadline:
        deadline.trace("http11.receive_response_headers.complete", {"return_value": (200,)})
        deadline.watch(pair)


def test_the_time_may_be_over_before_there_is_a_connection() -> None:
    def exchange(_: Deadline) -> None:
        for thread in threading.enumerate():
            if isinstance(thread, threading.Timer):
                thread.join()
        raise httpx2.ConnectTimeout("no route")

    with pytest.raises(TimeoutError):
        within(0.0, exchange)


def test_a_connection_that_is_made_too_late_is_shut_at_once(pair: Pair) -> None:
    read = []

    def exchange(deadline: Deadline) -> None:
        first, other = socket.socketpair()
        with first, other:
            deadline.watch(Pair(first, other))
            first.recv(1)
        deadline.watch(pair)
        read.append(pair.near.recv(1))

    with pytest.raises(TimeoutError):
        within(SHORT_S, exchange)
    assert read == [b""]


def test_a_connection_that_is_closed_already_is_left_alone(pair: Pair) -> None:
    def exchange(deadline: Deadline) -> None:
        deadline.watch(pair)
        pair.near.recv(1)
        pair.near.close()
        deadline.watch(pair)

    with pytest.raises(TimeoutError):
        within(SHORT_S, exchange)


@pytest.mark.parametrize("timeout_s", [None, 60.0])
def test_within_the_time_nothing_happens(pair: Pair, timeout_s: float | None) -> None:
    with Deadline(timeout_s) as deadline:
        deadline.watch(pair)
        pair.far.sendall(b"x")
        assert pair.near.recv(1) == b"x"
    pair.far.sendall(b"y")
    assert pair.near.recv(1) == b"y"


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (httpx2.ReadError("cut"), TimeoutError),
        (httpx2.RemoteProtocolError("cut"), TimeoutError),
        (ValueError("of another kind"), ValueError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
    ids=lambda item: getattr(item, "__name__", type(item).__name__),
)
def test_an_error_of_the_transport_after_the_time_is_a_timeout(
    pair: Pair, error: BaseException, seen: type[BaseException]
) -> None:
    def exchange(deadline: Deadline) -> None:
        deadline.watch(pair)
        pair.near.recv(1)
        raise error

    with pytest.raises(seen):
        within(SHORT_S, exchange)


def test_an_error_within_the_time_stays_what_it_is() -> None:
    with pytest.raises(httpx2.ReadError), Deadline(60.0):
        raise httpx2.ReadError("cut")


def test_an_answer_without_a_network_is_not_watched() -> None:
    with Deadline(60.0) as deadline:
        deadline.watch(None)
