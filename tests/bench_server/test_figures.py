"""Figures made of what was seen: percentiles, failures, and what counts as meanwhile."""

from __future__ import annotations

import pytest

from sample_wire.bench_server.exchanges import Span, Windows
from sample_wire.bench_server.figures import Health, Latencies, percentile
from sample_wire.bench_server.prober import Probe


@pytest.mark.parametrize(
    ("share", "value"), [(0.5, 100), (0.95, 190), (0.99, 198), (1.0, 200), (0.001, 1)]
)
def test_a_percentile_is_the_value_that_this_share_does_not_exceed(
    share: float, value: float
) -> None:
    assert percentile([float(number) for number in range(1, 201)], share) == value


def test_latencies_are_of_all_requests_in_any_order() -> None:
    found = Latencies.of([Span(0.0, 3.0), Span(5.0, 6.0), Span(1.0, 3.0)])
    assert found == Latencies(3, 2.0, 3.0, 3.0, 3.0)


def test_there_may_be_no_request() -> None:
    assert Latencies.of([]) == Latencies(0, 0.0, 0.0, 0.0, 0.0)


def test_a_probe_that_failed_is_counted_and_its_time_too() -> None:
    probes = [Probe(Span(0.0, 1.0), True), Probe(Span(0.0, 5.0), False)]
    health = Health.of(probes)
    assert (health.num_failed, health.latencies.count, health.latencies.max_s) == (1, 2, 5.0)


@pytest.mark.parametrize(
    ("span", "meets"),
    [
        (Span(0.0, 0.9), False),
        (Span(0.0, 1.0), True),
        (Span(1.4, 1.6), True),
        (Span(2.0, 2.5), True),
        (Span(2.1, 2.9), False),
        (Span(0.0, 9.0), True),
        (Span(4.1, 5.0), False),
    ],
    ids=["before", "to its begin", "inside", "at its end", "between", "around all", "after"],
)
def test_a_span_meets_a_window_that_it_has_a_moment_in_common_with(span: Span, meets: bool) -> None:
    assert Windows([Span(1.0, 2.0), Span(3.0, 4.0)]).meet(span) is meets


def test_no_window_is_met_where_there_is_none() -> None:
    assert not Windows([]).meet(Span(0.0, 1.0))
