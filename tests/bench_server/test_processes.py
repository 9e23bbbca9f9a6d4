"""Workers and the prober, as processes and against sockets that do not answer well."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sample_wire.bench_server.errors import BenchError
from sample_wire.bench_server.exchanges import connected
from sample_wire.bench_server.memory import (
    available_bytes,
    forget_peak,
    peak_bytes,
    resident_bytes,
)
from sample_wire.bench_server.prober import is_healthy, watch
from sample_wire.bench_server.workers import Told, Worker, working

PATIENCE_S = 60.0


def doubled(_told: Told, number: int) -> int:
    """What a worker can do."""
    return 2 * number


def refused(_told: Told) -> None:
    """What it cannot."""
    raise ValueError("not today")


def ended(_told: Told) -> None:
    """What ends it."""
    os._exit(3)


def until_told(told: Told) -> str:
    """What takes until it is told to end."""
    return "told" if told(PATIENCE_S) else "not told"


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """A worker for all tests that leave it alive."""
    with working("worker") as found:
        yield found


def test_a_worker_does_one_thing_after_another(worker: Worker) -> None:
    assert [worker.start(doubled, number).result() for number in (1, 2)] == [2, 4]


def test_a_failure_is_told_and_the_worker_goes_on(worker: Worker) -> None:
    with pytest.raises(BenchError, match="the worker failed: ValueError: not today"):
        worker.start(refused).result()
    assert worker.start(doubled, 4).result() == 8


def test_work_ends_when_it_is_told(worker: Worker) -> None:
    work = worker.start(until_told)
    work.end()
    assert work.result() == "told"


def test_work_that_ended_before_it_was_told_does_not_end_the_next(worker: Worker) -> None:
    work = worker.start(doubled, 1)
    assert work.result() == 2
    work.end()
    assert worker.start(doubled, 5).result() == 10


def test_a_worker_that_is_gone_is_told() -> None:
    with working("trainer") as found:
        work = found.start(ended)
        with pytest.raises(BenchError, match="the trainer has ended without a word"):
            work.result()


@pytest.fixture
def answering() -> Iterator[socket.socket]:
    """A socket that somebody has to answer at."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock


def url_of(sock: socket.socket) -> str:
    return f"http://127.0.0.1:{sock.getsockname()[1]}"


def answer_once(sock: socket.socket, text: bytes) -> threading.Thread:
    def answer() -> None:
        connection, _ = sock.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(text)

    thread = threading.Thread(target=answer)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("text", "healthy"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", True),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", False),
        (b"", False),
    ],
    ids=["200", "503", "nothing"],
)
def test_only_a_200_is_health(answering: socket.socket, text: bytes, healthy: bool) -> None:
    thread = answer_once(answering, text)
    assert is_healthy(url_of(answering)) is healthy
    thread.join()


def test_a_port_that_nobody_listens_on_is_not_healthy() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        assert not is_healthy(url_of(sock))


def test_a_server_is_asked_once_at_least(answering: socket.socket) -> None:
    thread = answer_once(answering, b"HTTP/1.1 200 OK\r\n\r\n")
    [probe] = watch(lambda _seconds: True, url_of(answering))
    thread.join()
    assert probe.is_good
    assert probe.span.length_s > 0


@pytest.mark.parametrize(
    ("head", "body", "received"),
    [
        (b"content-length: 5", b"hello", b"hello"),
        (b"transfer-encoding: chunked", b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", b"hello"),
        (b"content-length: 0", b"", b""),
    ],
    ids=["length", "chunks", "empty"],
)
def test_a_body_is_received_whole(
    answering: socket.socket, head: bytes, body: bytes, received: bytes
) -> None:
    thread = answer_once(answering, b"HTTP/1.1 200 OK\r\n%b\r\n\r\n%b" % (head, body))
    with connected(url_of(answering)) as server:
        assert server.ask("GET", "/") == received
    thread.join()


def test_a_body_that_breaks_off_is_told(answering: socket.socket) -> None:
    thread = answer_once(answering, b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello")
    with connected(url_of(answering)) as server, pytest.raises(BenchError, match="early"):
        server.ask("GET", "/")
    thread.join()


def test_a_refusal_is_told_with_its_words(answering: socket.socket) -> None:
    thread = answer_once(answering, b"HTTP/1.1 404 No\r\ncontent-length: 4\r\n\r\ngone")
    with (
        connected(url_of(answering)) as server,
        pytest.raises(BenchError, match=r"^GET /sessions/1: 404 gone$"),
    ):
        server.ask("GET", "/sessions/1")
    thread.join()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells them")
def test_sizes_of_processes_are_told() -> None:
    pid = os.getpid()
    forget_peak(pid)
    resident, peak, available = resident_bytes(pid), peak_bytes(pid), available_bytes()
    assert resident is not None
    assert peak is not None
    assert available is not None
    assert 0 < resident <= 1.5 * peak
    assert available > 0


def test_a_process_that_is_gone_has_no_sizes() -> None:
    assert resident_bytes(2**31 - 1) is None
