"""How many sessions a server holds, how much of its memory they take, and when it is enough.

What there is belongs to the sessions that are there.  New ones are refused while there is still
room for turns; only when that is gone too are turns refused, before the engine is called.  So
a turn that was generated is never thrown away for want of room: the limit may be passed by the
turns that are at the engine when it is reached.  What these send and receive counts meanwhile.
Bodies that are on their way to us have a limit of their own.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from ...errors import SessionError
from ...session import Session
from .settings import ServerSettings

# Of the memory that may be held, this much may be when another session begins.
_FOR_NEW: Final = 0.8
# The rest is for what turns need while they are made, and for large replies on their way.
_HELD_SHARE: Final = 0.5
_CGROUP_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")


class ByteCount:
    """Bytes that come and go.

    Attributes:
        num_bytes: that are there now.
    """

    def __init__(self) -> None:
        self.num_bytes = 0

    @contextlib.contextmanager
    def counted(self) -> Iterator[Callable[[int], None]]:
        """Gives a function that counts some more bytes, all of them until this is left."""
        ours = 0

        def count(num_bytes: int) -> None:
            nonlocal ours
            ours += num_bytes
            self.num_bytes += num_bytes

        try:
            yield count
        finally:
            self.num_bytes -= ours


class Budgets:
    """Counts what the sessions of one server hold, and what its requests do.

    Args:
        settings: max_sessions, max_held_bytes, max_incoming_bytes and workers are used.

    Attributes:
        held_bytes: what the turns of all sessions hold.
        incoming: bodies that are being read, or made a prompt of.
        at_engine: requests that the engine is sent, and what has come of its answers.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._max_sessions = settings.max_sessions
        self._max_bytes = settings.max_held_bytes or default_held_bytes(settings.workers)
        self._held: dict[str, int] = {}
        self.held_bytes = 0
        self._max_incoming = settings.max_incoming_bytes
        self.incoming = ByteCount()
        self.at_engine = ByteCount()

    def count(self, session: Session) -> None:
        """Counts a session as it is now."""
        now = session.trajectory.held_bytes
        self.held_bytes += now - self._held.get(session.id, 0)
        self._held[session.id] = now

    def forget(self, session: Session) -> None:
        """Counts a session no more."""
        self.held_bytes -= self._held.pop(session.id, 0)

    def check_incoming(self) -> None:
        """Passes while there is room for the bodies that are on their way.

        Raises:
            SessionError: 503 "busy".
        """
        if self.incoming.num_bytes > self._max_incoming:
            raise busy(f"more than {self._max_incoming} bytes of bodies are on their way")

    def check_session(self) -> None:
        """Passes while there is room for another session.

        Raises:
            SessionError: 503 "too_many_sessions" or "memory_full".
        """
        if len(self._held) >= self._max_sessions:
            raise SessionError(
                f"the server holds {self._max_sessions} sessions and takes no more",
                code="too_many_sessions",
                http_status=503,
            )
        self._check_bytes(_FOR_NEW * self._max_bytes, "another session")

    def check_turn(self) -> None:
        """Passes while there is room for another turn.

        Raises:
            SessionError: 503 "memory_full".
        """
        self._check_bytes(self._max_bytes, "another turn")

    def _check_bytes(self, limit: float, wanted: str) -> None:
        num_bytes = self.held_bytes + self.at_engine.num_bytes
        if num_bytes >= limit:
            raise SessionError(
                f"the server's sessions hold {num_bytes} bytes of {self._max_bytes}, their calls "
                f"included: there is no room for {wanted}",
                code="memory_full",
                http_status=503,
            )


def busy(why: str) -> SessionError:
    """The refusal of a request for what others are just doing."""
    return SessionError(f"the server is busy: {why}", code="busy", http_status=503)


def default_held_bytes(workers: int) -> int:
    """A worker's share of half of the memory: the machine's, or its container's."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):  # no container, or one whose limit is "max"
        memory = min(memory, int(_CGROUP_LIMIT.read_text()))
    return int(memory * _HELD_SHARE) // workers
