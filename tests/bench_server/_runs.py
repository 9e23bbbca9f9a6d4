"""A run with figures that are easy to find again."""

from __future__ import annotations

from typing import Final

from sample_wire.bench_server.figures import Collecting, Health, Latencies, Leg, Load, Point, Run
from sample_wire.bench_server.scale import Scale
from sample_wire.bench_server.trainer import LIBRARY, RECORDS, SAMPLES, STRAIGHTFORWARD

MIB: Final = 2**20
FULL: Final = Scale()


def load(milliseconds: float, *, failed: int = 0) -> Load:
    """Chat takes so long, /health a tenth of it."""
    health = Health(failed, latencies(milliseconds / 10))
    return Load(latencies(milliseconds), health, milliseconds / 1e3, 300 * MIB)


def latencies(milliseconds: float) -> Latencies:
    """So long at the median, and two and three times that at the percentiles above."""
    p50_s = milliseconds / 1e3
    return Latencies(1000, p50_s, 2 * p50_s, 3 * p50_s, 4 * p50_s)


def leg(*, incremental: bool = False, failed: int = 0, resident: float | None = 30 * MIB) -> Leg:
    """Records take 50 s and 20 s, samples 0.2 s; 3,300 MiB and 100 MiB."""
    samples = Collecting(
        40, 100 * MIB, 0.19, {SAMPLES: 0.2}, load(100, failed=failed), Health(1, latencies(1))
    )
    records = Collecting(
        2,
        3300 * MIB,
        10.0,
        {STRAIGHTFORWARD: 50.0, LIBRARY: 20.0},
        load(300),
        Health(2, latencies(2)),
    )
    curve = [
        Point(
            turns,
            {SAMPLES: 10.0 * turns * MIB, RECORDS: 100.0 * turns * MIB},
            {SAMPLES: 0.01 * turns, LIBRARY: 0.1 * turns, STRAIGHTFORWARD: 1.0 * turns},
        )
        for turns in (1, 10)
    ]
    return Leg(incremental, load(50), 25.0, resident, samples, records, curve)


def run(*legs: Leg, scale: Scale = FULL) -> Run:
    """A run of these legs."""
    return Run(scale, [*legs], 300.0)
