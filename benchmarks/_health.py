"""A server's health, asked for again and again by a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks._client import LOOPBACK
from sample_wire.bench_server.figures import percentile
from sample_wire.bench_server.prober import is_healthy, watch
from sample_wire.bench_server.workers import Told, working


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
        return percentile(self.latencies_s, 0.99)

    @property
    def answered(self) -> float:
        """The share of the requests that was answered."""
        return len(self.latencies_s) / (len(self.latencies_s) + self.num_failed)


@contextmanager
def watched(port: int) -> Iterator[Health]:
    """Has a process ask while the block runs."""
    url = f"http://{LOOPBACK}:{port}"
    health = Health()
    with working("prober") as worker:
        worker.start(_asked_once, url).result()
        probing = worker.start(watch, url)
        yield health
        probing.end()
        probes = probing.result()
    health.latencies_s = sorted(probe.span.length_s for probe in probes if probe.is_good)
    health.num_failed = sum(not probe.is_good for probe in probes)


def _asked_once(_told: Told, url: str) -> bool:
    return is_healthy(url)
