"""Servers on free loopback ports, each in a process of its own, so that none slows another.

No process is left behind: each ends with the block that started it, and by itself when the
process that started it is gone, however that ended.  A terminal's Ctrl-C reaches every process
of its group; these do not take it, so that who started them can still talk to them.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import multiprocessing.process
import multiprocessing.resource_tracker
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

from ..adapters.server.processes import end_with_the_parent

# Running requests are given up by then; a process that still runs is killed.
_GRACE_S: Final = 5.0
_BLAS_THREADS: Final = "OPENBLAS_NUM_THREADS"

HandedOver = socket.socket | multiprocessing.connection.Connection
Serve = Callable[[Any, Any], None]


@contextlib.contextmanager
def serving(
    name: str, end: HandedOver, serve: Serve, settings: object
) -> Iterator[multiprocessing.process.BaseProcess]:
    """Serves on a socket or a pipe from a process of its own while the block runs.

    Args:
        name: of the process.
        end: a socket that listens, or an end of a pipe; handed over to the process.
        serve: called there with the end and the settings; serves until SIGTERM.  Both are
            pickled, so it is a function of a module.
        settings: for it.
    """
    process = multiprocessing.get_context("spawn").Process(
        target=_serve, name=name, args=(end, serve, settings), daemon=True
    )
    try:
        with end, _interrupts_held_back(), _one_blas_thread():
            process.start()
        yield process
    finally:
        if process.pid is not None:
            process.terminate()
            process.join(_GRACE_S)
            process.kill()
            process.join()


@contextlib.contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """A process started here never takes SIGINT; one that comes meanwhile is taken afterwards."""
    # The first start of a process also starts this one, which lets interrupts through again.
    multiprocessing.resource_tracker.ensure_running()
    came = []
    # The mask is for the new process, which inherits it; here other threads still take a signal,
    # and one that broke off the start would leave the new process waiting for its half.
    handler = signal.signal(signal.SIGINT, lambda *_: came.append(True))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def _one_blas_thread() -> Iterator[None]:
    """A process started here multiplies matrices in one thread; more are in its own way.

    They cost a fifth of the demo's CPU time on two cores.  What the user has set holds.
    """
    if _BLAS_THREADS in os.environ:
        yield
        return
    os.environ[_BLAS_THREADS] = "1"
    try:
        yield
    finally:
        del os.environ[_BLAS_THREADS]


def _serve(end: HandedOver, serve: Serve, settings: object) -> None:
    threading.Thread(target=end_with_the_parent, daemon=True).start()
    serve(end, settings)
