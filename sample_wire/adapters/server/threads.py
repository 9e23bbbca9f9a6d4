"""Threads for code of an operator's own, which may never return.

A process that ends waits for the threads of an executor, and not for these.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


class DaemonThreads:
    """Runs functions beside the loop, so many at a time; the others wait.

    Args:
        num_threads: at most so many at a time.
    """

    def __init__(self, num_threads: int) -> None:
        self._free = asyncio.Semaphore(num_threads)

    async def run(self, function: Callable[..., ResultT], *arguments: Any) -> ResultT:
        """What the function gives, or whatever it raises.

        Its thread counts until it returns, also where nobody waits for it any more.
        """
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ResultT] = loop.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            self._free.release()
            if future.cancelled():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def work() -> None:
            result, error = None, None
            try:
                result = function(*arguments)
            except BaseException as found:  # noqa: BLE001  # whoever waits gets it
                error = found
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(settle, result, error)

        threading.Thread(target=work, daemon=True).start()
        return await future
