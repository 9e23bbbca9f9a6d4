"""Ticker: how long an event loop stands still."""

from __future__ import annotations

import asyncio
from time import perf_counter_ns
from typing import Final

TICK_S: Final = 0.001
_NS: Final = 1e-9


class Ticker:
    """Ticks in the loop while the block runs: a gap is what all others would have waited.

    Attributes:
        longest_s: the longest gap so far, the sleep of TICK_S included.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._last_ns = 0

    async def __aenter__(self) -> Ticker:
        self._last_ns = perf_counter_ns()
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._tick()
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._tick()

    def _tick(self) -> None:
        now_ns = perf_counter_ns()
        self.longest_s = max(self.longest_s, (now_ns - self._last_ns) * _NS)
        self._last_ns = now_ns
