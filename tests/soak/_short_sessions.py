"""Short sessions one after another: the server's memory goes back to what it was."""

from __future__ import annotations

from benchmarks._memory import status_bytes

from ._agent import Agent
from ._processes import Site
from ._rows import Row, at_most, fact, told

_MIB = 2**20
_MAX_GROWTH_MIB = 4.0
_NUM_TURNS = 2


def short_sessions(site: Site, num_sessions: int, num_first: int) -> list[Row]:
    """Sessions of two turns, each collected and deleted before the next one.

    Args:
        site: that nothing else has been done with.
        num_sessions: that are counted.
        num_first: before them; the memory that the server has after these is the base.
    """
    half = num_sessions // 2
    _sessions(site, 0, num_first)
    base = _resident(site)
    num_right = _sessions(site, num_first, half)
    middle = _resident(site)
    num_right += _sessions(site, num_first + half, num_sessions - half)
    last = _resident(site)
    return [
        fact("samples that are what the agent was answered", count=num_right, of=num_sessions),
        told(f"resident set after {num_first} sessions, the base", base / _MIB, "MiB"),
        told("grown by the first half of the sessions", (middle - base) / _MIB, "MiB"),
        at_most("grown by the second half", (last - middle) / _MIB, _MAX_GROWTH_MIB, "MiB"),
    ]


def _sessions(site: Site, first: int, count: int) -> int:
    """How many of these sessions gave the sample that they should."""
    num_right = 0
    for seed in range(first, first + count):
        agent = Agent(site.server.url, seed)
        agent.talk(_NUM_TURNS)
        num_right += agent.has_its_samples()
        agent.delete()
        agent.close()
    return num_right


def _resident(site: Site) -> int:
    return status_bytes("VmRSS", site.server.pid)
