"""Connections whose request never ends: everybody else is served as if they were not there."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from statistics import median
from time import perf_counter
from typing import Final

from benchmarks._health import watched

from ._agent import OK, Agent
from ._processes import PATIENCE_S, Site
from ._rows import Row, at_most, fact, told

_MAX_HEALTH_MS: Final = 250.0
# Half a head, and a head without its body.
_HALVES: Final = (
    b"POST /sessions HTTP/1.1\r\nHost: server\r\nX-Half: ",
    b"POST /sessions HTTP/1.1\r\nHost: server\r\nContent-Length: 100\r\n\r\n{",
)


def half_open(site: Site, num_sockets: int, num_turns: int) -> list[Row]:
    """Chats and /health beside so many connections that have sent half a request.

    Then it waits until the server has closed them.
    """
    with closing(Agent(site.server.url, 0)) as one, closing(Agent(site.server.url, 1)) as other:
        with watched(site.server.port):
            alone = _turns(one, num_turns)
        with _halves(site.server.port, num_sockets) as sockets:
            with watched(site.server.port) as health:
                beside = _turns(other, num_turns)
            num_closed = sum(map(_is_refused, sockets))
        right = [agent.has_its_samples() for agent in (one, other)]
    num_asked = len(health.latencies_s) + health.num_failed
    return [
        fact("/health answered meanwhile", count=len(health.latencies_s), of=num_asked),
        at_most("/health, the slowest", health.latencies_s[-1] * 1e3, _MAX_HEALTH_MS, "ms"),
        fact("chats answered meanwhile", count=len(beside), of=num_turns),
        fact("of them answered 408, and closed", count=num_closed, of=num_sockets),
        told("a chat, median, alone", median(alone) * 1e3, "ms"),
        told("a chat, median, beside them", median(beside) * 1e3, "ms"),
        fact("samples that are what the agent was answered", count=sum(right), of=2),
    ]


@contextmanager
def _halves(port: int, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        sockets = []
        for number in range(count):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S))
            sock.sendall(_HALVES[number % len(_HALVES)])
            sockets.append(sock)
        yield sockets


def _is_refused(sock: socket.socket) -> bool:
    """Whether the server has told the client that it was too slow, and hung up."""
    with sock.makefile("rb") as reader:
        return reader.read().startswith(b"HTTP/1.1 408 ")


def _turns(agent: Agent, count: int) -> list[float]:
    """The times of those turns that were answered, in seconds."""
    times_s = []
    for _ in range(count):
        started = perf_counter()
        if agent.ask().status_code == OK:
            times_s.append(perf_counter() - started)
    return times_s
