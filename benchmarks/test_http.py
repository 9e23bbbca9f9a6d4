"""The session server and its client over HTTP: that the rows are measured, all at M, and that
what is measured is what it should be (report.py takes P)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks import _http_targets
from benchmarks._assembly import has_pybase64
from benchmarks._figures import MEASURED, TARGETS
from benchmarks._health import Health, watched
from benchmarks._http_targets import client_memory, full_prefix_server, incremental_server
from benchmarks._memory import has_resident_peak
from benchmarks._site import Site, serving
from benchmarks._timing import Effort
from sample_wire import Sample

SHORTEST = Effort("test", rounds=1, long_rounds=1, round_s=0.0, gap_rounds=1, session="M")
NUM_TURNS = 8


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A server whose engine sends every row with every reply."""
    with serving("M", incremental=False) as found:
        yield found


def test_a_session_is_collected_whole(site: Site) -> None:
    [sample] = site.collect(site.talk(NUM_TURNS)).samples
    assert np.asarray(sample.tokens).tolist() == site.session.ids(NUM_TURNS).tolist()
    assert np.array_equal(np.asarray(sample.rollout_routed_experts), site.session.rows(NUM_TURNS))


def test_a_last_turn_that_is_had_again_leaves_the_session_as_it_was(site: Site) -> None:
    session_id = site.talk(2)
    site.chat(session_id, 1)
    assert len(site.dump(session_id)["records"]) == 2


def test_a_turn_that_is_refused_is_told(site: Site) -> None:
    with pytest.raises(RuntimeError, match=r"^404: "):
        site.chat("no session", 0)


def test_a_session_that_is_gone_is_told(site: Site) -> None:
    session_id = site.create()
    site.delete(session_id)
    with pytest.raises(RuntimeError, match="404"):
        site.collect(session_id)


def test_each_call_is_told_with_what_the_engine_took(site: Site) -> None:
    session_id = site.create()
    site.calls()
    site.chat(session_id, 0)
    site.collect(session_id)
    chat, collect = site.calls()
    assert 0 < chat.engine_s < chat.ready_s <= chat.whole_s
    assert collect.engine_s == 0
    assert 0 < collect.cpu_s <= collect.whole_s
    assert site.calls() == []


def test_the_ticker_runs_in_the_servers_loop(site: Site) -> None:
    assert site.longest_gap_s(site.talk(1)) >= 0.001


def test_a_server_is_asked_for_its_health_while_it_works(site: Site) -> None:
    with watched(site.port) as health:
        site.talk(1)
    assert health.num_failed == 0
    assert health.answered == 1.0
    assert 0 < health.p99_s <= health.latencies_s[-1]


def test_a_prober_ends_with_what_it_watched(site: Site) -> None:
    with pytest.raises(ZeroDivisionError), watched(site.port):
        raise ZeroDivisionError


def test_p99_is_the_latency_that_99_of_100_keep() -> None:
    health = Health()
    health.latencies_s = [float(number) for number in range(1, 201)]
    health.num_failed = 50
    assert health.p99_s == 198.0
    assert health.answered == 0.8


def test_samples_that_differ_are_noticed() -> None:
    one, other = (Sample(tokens=np.array([token])) for token in (1, 2))
    with pytest.raises(RuntimeError, match="other tokens"):
        _http_targets._check_same(one, other)


def test_a_full_prefix_server_gives_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """With fewer turns than the session has for the records dump, as where memory is short."""
    monkeypatch.setattr(_http_targets, "affordable_turns", lambda _session: 3)
    found = full_prefix_server(SHORTEST)
    assert set(found) <= {*TARGETS, *MEASURED}
    assert {"collect", "collect ratio", "server gap", "health full answered"} <= set(found)
    assert ("chat full" in found) == has_pybase64()
    assert ("server memory" in found) == has_resident_peak()
    assert found.pop("collect ratio").measured_at == "3 turns of shape M"
    assert {result.measured_at for result in found.values()} == {"shape M"}


def test_an_incremental_server_gives_its_rows() -> None:
    found = incremental_server(SHORTEST)
    assert set(found) <= {*TARGETS, *MEASURED}
    assert {"chat incremental", "health", "health answered"} <= set(found)
    assert {result.measured_at for result in found.values()} == {"shape M"}


@pytest.mark.skipif(not has_resident_peak(), reason="only Linux can reset the peak resident set")
def test_clients_give_their_rows() -> None:
    found = client_memory(SHORTEST)
    assert set(found) <= {*TARGETS, *MEASURED}
    assert all(0.9 < result.value < 3 for result in found.values())
