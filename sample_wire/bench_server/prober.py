"""The prober: asks a server for its health again and again, each time on a new connection."""

from __future__ import annotations

import socket
import time
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from .exchanges import Span, timed
from .workers import Told

_PAUSE_S: Final = 0.005
# Orchestrators wait no longer: a probe that is not answered by then has failed.
PATIENCE_S: Final = 5.0
_REQUEST: Final = b"GET /health HTTP/1.1\r\nHost: server\r\nConnection: close\r\n\r\n"


class Probe(NamedTuple):
    """One request for /health: when it was asked and answered, and whether by 200 in time."""

    span: Span
    is_good: bool


def watch(told: Told, url: str) -> list[Probe]:
    """Asks until it is told to end, once at least.

    Args:
        url: of the server.
    """
    probes = []
    while True:
        began = time.monotonic()
        is_good = is_healthy(url)
        span = timed(began)
        probes.append(Probe(span, is_good and span.length_s <= PATIENCE_S))
        if told(_PAUSE_S):
            return probes


def is_healthy(url: str) -> bool:
    """Whether the server answers 200 in time."""
    host = urlsplit(url)
    try:
        with socket.create_connection((host.hostname, host.port), PATIENCE_S) as sock:
            sock.sendall(_REQUEST)
            with sock.makefile("rb") as reader:
                return reader.read().startswith(b"HTTP/1.1 200 ")
    except OSError:
        return False
