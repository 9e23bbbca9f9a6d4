"""HealthWatch: whether a server answers /health while it is busy, and how fast."""

from __future__ import annotations

import threading
import time
from typing import Final, Self

import httpx2

_PAUSE_S: Final = 0.025
_PATIENCE_S: Final = 30.0


class HealthWatch:
    """Asks for a server's health again and again, from a thread, while its block runs.

    Args:
        url: the server's.

    Attributes:
        num_asked: requests so far.
        num_failed: those among them that got no answer, or one other than 200.
        slowest_s: the longest that an answer took, in seconds.
    """

    def __init__(self, url: str) -> None:
        self.num_asked = 0
        self.num_failed = 0
        self.slowest_s = 0.0
        self._url = f"{url}/health"
        self._ended = threading.Event()
        # A daemon: an interrupt while the block is entered would leave it running.
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        with httpx2.Client(timeout=_PATIENCE_S, trust_env=False) as http:
            self._ask(http)
            while not self._ended.wait(_PAUSE_S):
                self._ask(http)

    def _ask(self, http: httpx2.Client) -> None:
        started = time.perf_counter()
        try:
            good = http.get(self._url).status_code == httpx2.codes.OK
        except httpx2.RequestError:
            good = False
        self.slowest_s = max(self.slowest_s, time.perf_counter() - started)
        self.num_asked += 1
        self.num_failed += not good
