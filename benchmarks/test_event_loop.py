"""The event loop's longest gap: that the exchange is whole, and that the ticker sees a gap."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

import pytest

from benchmarks._data import sample_of
from benchmarks._event_loop import Job, idle_gap_s, longest_gaps_s, send_sliced, send_whole
from sample_wire import Payload, encode_samples
from sample_wire.bench_server.ticker import TICK_S

BUSY_S = 0.02


def test_ticker_sees_at_least_its_own_tick() -> None:
    assert idle_gap_s(10 * TICK_S) >= TICK_S


def test_ticker_sees_a_loop_that_stands_still() -> None:
    def make() -> Payload:
        stop = perf_counter() + BUSY_S
        while perf_counter() < stop:
            pass
        return encode_samples([sample_of("S", "arrays")])

    [gap_s] = longest_gaps_s({"busy": Job(make, send_sliced)}, 1)["busy"]
    assert gap_s >= BUSY_S


def test_body_that_changes_on_the_way_is_noticed() -> None:
    made: Iterator[bytes] = iter([b"expected", b"sent"])
    job = Job(lambda: [memoryview(next(made))], send_whole)
    with pytest.raises(RuntimeError, match="other bytes"):
        longest_gaps_s({"changed": job}, 1)


@pytest.mark.heavy
def test_client_in_another_process_reads_a_production_payload() -> None:
    sample = sample_of("P", "arrays")
    job = Job(lambda: encode_samples([sample]), send_sliced)
    [gap_s] = longest_gaps_s({"P": job}, 1)["P"]
    assert gap_s > 0
