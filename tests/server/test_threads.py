"""Threads beside the loop, for functions that may never return."""

from __future__ import annotations

import asyncio
import threading

import pytest

from sample_wire.adapters.server.threads import DaemonThreads

from ._stub import PATIENCE_S


def test_a_function_gives_what_it_returns_and_raises() -> None:
    async def main() -> int:
        threads = DaemonThreads(2)
        with pytest.raises(ZeroDivisionError):
            await threads.run(divmod, 1, 0)
        return await threads.run(max, 3, 5)

    assert asyncio.run(main()) == 5


def test_a_thread_counts_until_it_returns_also_where_nobody_waits() -> None:
    goes_on, started = threading.Event(), threading.Event()

    def waits() -> None:
        started.set()
        goes_on.wait(PATIENCE_S)

    async def main() -> bool:
        pool = DaemonThreads(1)
        first = asyncio.ensure_future(pool.run(waits))
        await asyncio.to_thread(started.wait, PATIENCE_S)
        first.cancel()
        second = asyncio.ensure_future(pool.run(goes_on.is_set))
        await asyncio.gather(first, return_exceptions=True)
        assert not second.done()
        goes_on.set()
        return await second

    assert asyncio.run(main())


def test_a_thread_that_ends_after_its_loop_says_nothing() -> None:
    """An error of a thread would be a warning, and a warning is an error here."""
    goes_on, before = threading.Event(), {*threading.enumerate()}

    async def main() -> None:
        left = asyncio.ensure_future(DaemonThreads(1).run(goes_on.wait, PATIENCE_S))
        await asyncio.sleep(0)
        left.cancel()

    asyncio.run(main())
    (thread,) = {*threading.enumerate()} - before
    goes_on.set()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
