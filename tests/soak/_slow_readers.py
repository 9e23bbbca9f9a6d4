"""Trainers that read their samples slowly, beside a session that goes on."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final

from benchmarks._health import watched
from benchmarks._memory import status_bytes
from benchmarks._site import Site
from sample_wire import Sample, decode_samples

from ._client_killed import is_right
from ._processes import PATIENCE_S
from ._rows import Row, at_most, fact, told

_MIB: Final = 2**20
_PIECE_BYTES: Final = 1 << 16
# A piece in this time is 1.3 MB/s: P would take more than a minute.
_PAUSE_S: Final = 0.05
_MAX_SLOWER: Final = 1.5
_MAX_HEALTH_MS: Final = 250.0
_MAX_READER_MIB: Final = 8.0
_END_OF_HEAD: Final = b"\r\n\r\n"
_RESET_PEAK: Final = "5"


def slow_readers(site: Site, num_readers: int, num_chats: int) -> list[Row]:
    """Collects so many sessions slowly while one more has its last turn again and again.

    Once those chats are done, the readers read on as fast as they can.
    """
    sessions = [site.talk(site.session.num_turns) for _ in range(num_readers)]
    chatting = site.talk(site.session.num_turns)
    alone = _chats(site, chatting, num_chats)
    before = site.resident_bytes()
    Path(f"/proc/{site.pid}/clear_refs").write_text(_RESET_PEAK)
    with _reading(site, sessions) as bodies, watched(site.port) as health:
        beside = _chats(site, chatting, num_chats)
    grown = status_bytes("VmHWM", site.pid) - before
    whole = sum(is_right(site, decode_samples(body, Sample())) for body in bodies)
    num_asked = len(health.latencies_s) + health.num_failed
    return [
        fact("payloads that are whole and right", count=whole, of=num_readers),
        fact("/health answered meanwhile", count=len(health.latencies_s), of=num_asked),
        at_most("/health, the slowest", health.latencies_s[-1] * 1e3, _MAX_HEALTH_MS, "ms"),
        told("a payload", len(bodies[0]) / _MIB, "MiB"),
        at_most("peak memory for a reader", grown / num_readers / _MIB, _MAX_READER_MIB, "MiB"),
        told("a chat, median, alone", median(alone) * 1e3, "ms"),
        at_most("a chat, median, beside them", median(beside) / median(alone), _MAX_SLOWER, "x"),
    ]


@contextmanager
def _reading(site: Site, sessions: list[str]) -> Iterator[list[bytes]]:
    """Has each session collected slowly while the block runs; then the bodies are there."""
    has_begun, may_hurry = threading.Barrier(len(sessions) + 1), threading.Event()
    bodies: list[bytes] = []
    with ThreadPoolExecutor(len(sessions)) as pool:
        reading = [pool.submit(_read, site.port, one, has_begun, may_hurry) for one in sessions]
        try:
            has_begun.wait(PATIENCE_S)
            yield bodies
        finally:
            may_hurry.set()
        bodies += [one.result() for one in reading]


def _read(
    port: int, session_id: str, has_begun: threading.Barrier, may_hurry: threading.Event
) -> bytes:
    """The body of a session's samples, piece by piece with a pause after each."""
    request = (
        f"POST /sessions/{session_id}/samples HTTP/1.1\r\nHost: s\r\nConnection: close\r\n\r\n"
    )
    pieces: list[bytes] = []
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _PIECE_BYTES)
        sock.settimeout(PATIENCE_S)
        sock.connect(("127.0.0.1", port))
        sock.sendall(request.encode())
        while piece := sock.recv(_PIECE_BYTES):
            if not pieces:
                has_begun.wait(PATIENCE_S)
            pieces.append(piece)
            may_hurry.wait(_PAUSE_S)
    return b"".join(pieces).partition(_END_OF_HEAD)[2]


def _chats(site: Site, session_id: str, count: int) -> list[float]:
    """What those chats took, in seconds."""
    times_s = []
    for _ in range(count):
        started = perf_counter()
        site.chat(session_id, site.session.num_turns - 1)
        times_s.append(perf_counter() - started)
    return times_s
