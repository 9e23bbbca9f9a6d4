"""The engine is killed while it answers, and started again: nothing of a session is lost."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

import httpx2

from ._agent import Agent
from ._engine import HOLD
from ._processes import Site
from ._rows import Row, fact

_HELD: Final = {HOLD: "yes"}
_BROKEN: Final = (502, "engine_unreachable")
_NUM_AGENTS: Final = 3


def engine_killed(site: Site, num_rounds: int) -> list[Row]:
    """Kills the engine under a chat in each round, asks while it is away, and goes on after."""
    told = kept = refused = healthy = 0
    with _agents(site) as agents, ThreadPoolExecutor(1) as pool:
        for number in range(num_rounds):
            waiting = pool.submit(agents[number % _NUM_AGENTS].ask, _HELD)
            site.engine.line()  # the request has come
            site.engine.kill()
            told += _refusal(waiting.result()) == _BROKEN
            kept += sum(agent.has_its_samples() for agent in agents)
            refused += sum(_refusal(agent.ask()) == _BROKEN for agent in agents)
            healthy += agents[0].http.get("/health").is_success
            site.engine.start_again()
            for agent in agents:
                agent.talk(1)
        right = sum(agent.has_its_samples() for agent in agents)
        turns = sum(agent.num_turns for agent in agents)
    asked = num_rounds * _NUM_AGENTS
    return [
        fact("chats under way that were answered 502", count=told, of=num_rounds),
        fact("sessions that were as before after it", count=kept, of=asked),
        fact("chats without an engine that were answered 502", count=refused, of=asked),
        fact("/health answered meanwhile", count=healthy, of=num_rounds),
        fact("turns that were had after a new start", count=turns - _NUM_AGENTS, of=asked),
        fact("sessions whose samples are right in the end", count=right, of=_NUM_AGENTS),
    ]


@contextmanager
def _agents(site: Site) -> Iterator[list[Agent]]:
    """Agents that have had one turn each."""
    agents = [Agent(site.server.url, seed) for seed in range(_NUM_AGENTS)]
    for agent in agents:
        agent.talk(1)
    yield agents
    for agent in agents:
        agent.close()


def _refusal(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json().get("code", "")
