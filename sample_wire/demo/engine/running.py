"""The requests that an engine works on, by name, so that they can be ended."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class Running:
    """What an engine works on; safe for threads."""

    def __init__(self) -> None:
        self._running: list[tuple[str, threading.Event]] = []
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def running(self, rid: str) -> Iterator[threading.Event]:
        """While this is entered, `abort` knows a request by that name; gives what abort sets."""
        aborted = threading.Event()
        with self._lock:
            self._running.append((rid, aborted))
        try:
            yield aborted
        finally:
            with self._lock:
                self._running.remove((rid, aborted))

    def abort(self, rid: str) -> None:
        """Ends the requests of that name; what they have generated so far is answered."""
        with self._lock:
            for name, aborted in self._running:
                if name == rid:
                    aborted.set()

    def abort_all(self) -> None:
        """Ends all requests that run or wait."""
        with self._lock:
            for _, aborted in self._running:
                aborted.set()
