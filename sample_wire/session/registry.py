"""The registry: sessions by id, and whether one is being closed.

Sessions live in memory until they are removed.  The clock is the caller's: moments are passed
in, so that a server can find sessions whose client has gone.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ..errors import SessionError
from .trajectory import Trajectory

_ID_BYTES = 16


@dataclass(slots=True, eq=False, weakref_slot=True)
class Session:
    """One conversation of one agent.

    Attributes:
        id: 32 lower-case hex digits, not to be guessed.
        trajectory: its state.
        created_at, last_used: moments of the caller's clock, in seconds.
        closing: whether its removal has begun.
    """

    id: str
    trajectory: Trajectory
    created_at: float
    last_used: float
    closing: bool = field(default=False)

    def check_open(self) -> None:
        """Passes while the session is not being closed.

        Raises:
            SessionError: 404 "unknown_session".
        """
        if self.closing:
            raise _unknown(self.id)


class SessionRegistry:
    """All sessions of one process.

    Args:
        make_trajectory: makes the state of a new session.
    """

    __slots__ = ("_make_trajectory", "_sessions")

    def __init__(self, make_trajectory: Callable[[], Trajectory]) -> None:
        self._make_trajectory = make_trajectory
        self._sessions: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        """The sessions that are there now, oldest first."""
        return iter(list(self._sessions.values()))

    def create(self, now: float = 0.0) -> Session:
        """A new session, empty."""
        session = Session(secrets.token_hex(_ID_BYTES), self._make_trajectory(), now, now)
        self._sessions[session.id] = session
        return session

    def get(self, session_id: str, now: float | None = None) -> Session:
        """The session of an id, also while it is closing; `now` marks it as used.

        Raises:
            SessionError: 404 "unknown_session".
        """
        session = self._sessions.get(session_id)
        if session is None:
            raise _unknown(session_id)
        if now is not None:
            session.last_used = now
        return session

    def start_closing(self, session_id: str) -> Session:
        """Marks a session as closing: from now on it takes no new turn.

        Raises:
            SessionError: 404 "unknown_session", also where it is closing already.
        """
        session = self.get(session_id)
        session.check_open()
        session.closing = True
        return session

    def remove(self, session_id: str) -> None:
        """Drops a session and frees what it held.

        Raises:
            SessionError: 404 "unknown_session".
        """
        del self._sessions[self.get(session_id).id]

    def idle(self, before: float) -> list[Session]:
        """Sessions not used since a moment, and not closing: those whose client may be gone."""
        return [s for s in self._sessions.values() if s.last_used < before and not s.closing]


def _unknown(session_id: str) -> SessionError:
    return SessionError(
        f"session not found: session_id={session_id:.64}", code="unknown_session", http_status=404
    )
