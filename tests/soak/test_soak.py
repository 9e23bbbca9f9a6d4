"""Every soak and fault for a moment: what has to hold on any machine holds.

Figures of this machine are judged by the command (benchmarks/README.md, Soak and faults).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from benchmarks import _site
from benchmarks._memory import has_resident_peak

from ._agent import Agent
from ._client_killed import client_killed
from ._engine_killed import engine_killed
from ._half_open import half_open
from ._processes import Site, running
from ._rows import Row, at_most, fact, table, told
from ._server_restarted import server_restarted
from ._short_sessions import short_sessions
from ._slow_readers import slow_readers

on_linux = pytest.mark.skipif(not has_resident_peak(), reason="memory is told by Linux alone")


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running("--head-timeout", "2", "--body-timeout", "2") as found:
        yield found


@pytest.fixture(scope="module")
def large_site() -> Iterator[_site.Site]:
    """Its payloads are larger than what sockets hold."""
    with _site.serving("M", incremental=True) as found:
        yield found


def missed(rows: list[Row]) -> list[Row]:
    """The facts that do not hold; there must be some that could."""
    facts = [row for row in rows if row.is_fact]
    assert facts
    return [row for row in facts if not row.is_met]


def test_an_agent_knows_its_own_samples_from_those_of_another(site: Site) -> None:
    with closing(Agent(site.server.url, 0)) as one, closing(Agent(site.server.url, 1)) as other:
        one.talk(1)
        other.talk(1)
        assert [one.is_told_by(agent.sample()) for agent in (one, other)] == [True, False]


@on_linux
def test_short_sessions_give_the_samples_of_what_their_agents_were_answered(site: Site) -> None:
    assert missed(short_sessions(site, num_sessions=4, num_first=1)) == []


def test_an_engine_that_is_killed_costs_no_turn_that_was_answered(site: Site) -> None:
    assert missed(engine_killed(site, num_rounds=1)) == []


def test_clients_of_a_server_that_is_killed_are_told(site: Site) -> None:
    assert missed(server_restarted(site, num_rounds=1)) == []


def test_half_open_sockets_are_in_nobodys_way(site: Site) -> None:
    assert missed(half_open(site, num_sockets=200, num_turns=3)) == []


@on_linux
def test_a_client_that_is_killed_takes_nothing_with_it(large_site: _site.Site) -> None:
    assert missed(client_killed(large_site, num_rounds=1)) == []


@on_linux
def test_slow_readers_get_their_payloads_beside_live_chat(large_site: _site.Site) -> None:
    assert missed(slow_readers(large_site, num_readers=3, num_chats=3)) == []


def test_a_table_tells_bounds_and_verdicts() -> None:
    rows = [fact("a", count=1, of=2), at_most("b", 3.0, 4.0, "ms"), told("c", 1234.4, "MiB")]
    assert table({"run": rows}).splitlines()[2:] == [
        "| run | a | 1 of 2 | all | **missed** |",
        "| run | b | 3 ms | <= 4 ms | met |",
        "| run | c | 1,234 MiB |  |  |",
    ]
