"""Asks a server for its health again and again, in a process of its own.

Run as `python -m benchmarks._health PORT` it asks until its standard input ends, each time on a
new connection, and prints what it found as JSON.  Imports nothing of the library.
"""

from __future__ import annotations

import json
import math
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Final

from benchmarks._client import LOOPBACK

ROOT: Final = Path(__file__).resolve().parents[1]
_PAUSE_S: Final = 0.002
# What orchestrators wait for a probe at least.
_TIMEOUT_S: Final = 10.0
_REQUEST: Final = b"GET /health HTTP/1.1\r\nHost: server\r\nConnection: close\r\n\r\n"


class Health:
    """What was found; filled when the block of `watched` ends.

    Attributes:
        latencies_s: of the requests that were answered, in increasing order.
        num_failed: requests that were not answered by 200.
    """

    def __init__(self) -> None:
        self.latencies_s: list[float] = []
        self.num_failed = 0

    @property
    def p99_s(self) -> float:
        """The latency that 99 % of the answers kept."""
        return self.latencies_s[math.ceil(0.99 * len(self.latencies_s)) - 1]

    @property
    def answered(self) -> float:
        """The share of the requests that was answered."""
        return len(self.latencies_s) / (len(self.latencies_s) + self.num_failed)


@contextmanager
def watched(port: int) -> Iterator[Health]:
    """Has a process ask while the block runs."""
    command = [sys.executable, "-m", "benchmarks._health", str(port)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe) as prober:
        assert prober.stdout is not None
        prober.stdout.readline()  # it has asked once
        health = Health()
        try:
            yield health
        except BaseException:
            prober.kill()
            raise
        output, _ = prober.communicate()
    found = json.loads(output)
    health.latencies_s, health.num_failed = sorted(found["latencies_s"]), found["num_failed"]


def is_healthy(port: int) -> bool:
    """Whether the server answers 200 in time."""
    try:
        with socket.create_connection((LOOPBACK, port), _TIMEOUT_S) as sock:
            sock.sendall(_REQUEST)
            with sock.makefile("rb") as reader:
                return reader.read().startswith(b"HTTP/1.1 200 ")
    except OSError:
        return False


def main(port: int) -> None:
    """The process that asks."""
    latencies_s, num_failed = [], 0
    is_healthy(port)
    print("ready", flush=True)
    while True:
        started = perf_counter()
        if is_healthy(port):
            latencies_s.append(perf_counter() - started)
        else:
            num_failed += 1
        if select.select([sys.stdin], [], [], _PAUSE_S)[0]:
            break
    print(json.dumps({"latencies_s": latencies_s, "num_failed": num_failed}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
