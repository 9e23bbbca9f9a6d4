"""Work on a large array in spans, one a thread: numpy lets go of the interpreter lock.

One core does not use up the bandwidth of memory; from a few on nothing is gained.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final, TypeVar

_MAX_THREADS: Final = 4
# Below this, starting a thread costs more than it saves.
_MIN_BYTES: Final = 1 << 23
ResultT = TypeVar("ResultT")


def over_spans(num_items: int, nbytes: int, work: Callable[[int, int], ResultT]) -> list[ResultT]:
    """The results of work(start, stop) over spans that cover [0, num_items), in order.

    Args:
        nbytes: what all of it reads and writes; little is done in one span.
        work: safe to be called from several threads at once.

    Raises:
        Whatever work raises.
    """
    num_spans = min(_MAX_THREADS, nbytes // _MIN_BYTES)
    num_spans = min(num_spans, os.cpu_count() or 1) if num_spans > 1 else 1
    bounds = [num_items * span // num_spans for span in range(num_spans + 1)]
    results: list[list[ResultT]] = [[] for _ in range(num_spans)]
    errors: list[BaseException] = []

    def run(span: int) -> None:
        try:
            results[span].append(work(bounds[span], bounds[span + 1]))
        except BaseException as error:  # noqa: BLE001  # raised again by the caller's thread
            errors.append(error)

    threads = []
    for span in range(1, num_spans):
        thread = threading.Thread(target=run, args=(span,))
        try:
            thread.start()
        except RuntimeError:  # the system gives no more of them
            run(span)
        else:
            threads.append(thread)
    run(0)
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [result for found in results for result in found]
