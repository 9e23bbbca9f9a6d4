"""What all requests of one server share."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import time
import weakref
from collections.abc import Iterator
from typing import Final

from starlette.requests import Request

from ...errors import SessionError
from ...sample import Sample
from ...session import SampleOptions, Session, SessionRegistry, TokenizerAdapter
from .budgets import Budgets
from .engine_kinds import engine_kind
from .reports import MismatchReports
from .settings import ServerSettings
from .threads import DaemonThreads
from .trajectories import field_set_of, hooks_of, trajectory_maker
from .upstream import Engine

# Sessions of a batch are collected at about the same time, and a hook may ask a reward model.
_MAX_HOOK_THREADS: Final = 64
# Tokenizers work beside each other; each may take a gigabyte meanwhile.
_MAX_PLANNING: Final = 2


class ServerState:
    """Settings, sessions, their locks and reports, and the engine.

    Attributes:
        settings, tokenizer: as given.
        registry: the sessions.
        engine: where turns are sent to.
        engine_kind: how they are put to it.
        reports: mismatch reports.
        schema: what the samples' class declares.
        field_set: of the payloads.
        sample_options: how samples are made.
        hooks: what becomes of a tree's samples; None where sessions are lines.
        assembling: held while a worker thread makes or encodes samples.
        planning: taken while a worker thread plans a large request or reads a large reply; a few
            do so at a time.
        body_bytes: how long each session's last chat request was.
        hook_threads: where hooks run, which may wait for others.
        budgets: what the sessions may hold.
        is_draining: whether new sessions are refused; those that are there go on.
        is_stopping: whether what runs still is being given up.

    Raises:
        ValueError: a matcher, hook or kind that is none, or settings that exclude each other.
    """

    def __init__(self, settings: ServerSettings, tokenizer: TokenizerAdapter) -> None:
        self.settings = settings
        self.tokenizer = tokenizer
        self.schema = Sample.__sample_schema__
        self.field_set = field_set_of(settings)
        self.sample_options = SampleOptions(
            routing=settings.routing,
            speculative=settings.speculative,
            keep_messages=settings.keep_messages,
            schema=self.schema,
        )
        self.budgets = Budgets(settings)
        self.engine = Engine(settings, self.budgets.at_engine)
        self.engine_kind = engine_kind(settings)
        self.reports = MismatchReports(tokenizer)
        self.registry = SessionRegistry(
            trajectory_maker(settings, tokenizer, self.engine_kind, self.schema)
        )
        self.body_bytes: weakref.WeakKeyDictionary[Session, int] = weakref.WeakKeyDictionary()
        self._locks: weakref.WeakKeyDictionary[Session, asyncio.Lock] = weakref.WeakKeyDictionary()
        self.hooks = hooks_of(settings)
        self.assembling = asyncio.Lock()
        self.planning = asyncio.Semaphore(_MAX_PLANNING)
        self.hook_threads = DaemonThreads(_MAX_HOOK_THREADS)
        self.is_draining = False
        self.is_stopping = False
        self._num_chats: collections.Counter[str] = collections.Counter()

    def session_of(self, request: Request) -> Session:
        """The session that a request's path names; it counts as used now.

        Raises:
            SessionError: 404 "unknown_session".
        """
        return self.registry.get(request.path_params["session_id"], time.monotonic())

    def new_session(self) -> Session:
        """A new session.

        Raises:
            SessionError: 503, there is no room, also without those that nobody uses.
        """
        self.drop_idle()
        self.budgets.check_session()
        session = self.registry.create(time.monotonic())
        self.budgets.count(session)
        return session

    def remove(self, session: Session) -> None:
        """Drops a session, and frees what it held."""
        self.registry.remove(session.id)
        self.budgets.forget(session)

    def check_room(self) -> None:
        """Passes while there is room for another turn, also by dropping what nobody uses.

        Raises:
            SessionError: 503 "memory_full".
        """
        try:
            self.budgets.check_turn()
        except SessionError:
            self.drop_idle()
            self.budgets.check_turn()

    def lock(self, session: Session) -> asyncio.Lock:
        """The session's lock: held while a turn is planned, committed, or the session removed.

        It goes with its session.
        """
        return self._locks.setdefault(session, asyncio.Lock())

    @contextlib.contextmanager
    def chatting(self, session: Session) -> Iterator[None]:
        """While this is entered the session is in use, however long the engine takes."""
        self._num_chats[session.id] += 1
        try:
            yield
        finally:
            self._num_chats[session.id] -= 1
            if not self._num_chats[session.id]:
                del self._num_chats[session.id]
            session.last_used = time.monotonic()

    def drop_idle(self) -> None:
        """Removes the sessions whose clients have been gone for idle_timeout_s."""
        if self.settings.idle_timeout_s is None:
            return
        for session in self.registry.idle(time.monotonic() - self.settings.idle_timeout_s):
            if not self._num_chats[session.id]:
                self.registry.start_closing(session.id)
                self.remove(session)
