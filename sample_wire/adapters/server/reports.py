"""Mismatch reports: how the ids of a session differ from its messages rendered afresh.

Rendering and tokenising a long conversation takes a third of a second.  So it is done in a
worker thread, from a snapshot, and once for each version of a session.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from typing import Any, Final, NamedTuple

from ...session import Session, Snapshot, TokenizerAdapter

_log: Final = logging.getLogger(__name__)
Report = list[dict[str, Any]] | None


class _Held(NamedTuple):
    version: int
    report: asyncio.Future[Report]


class MismatchReports:
    """The newest report of every session.

    Args:
        tokenizer: its `mismatch` is called in a worker thread.
    """

    def __init__(self, tokenizer: TokenizerAdapter) -> None:
        self._tokenizer = tokenizer
        self._held: weakref.WeakKeyDictionary[Session, _Held] = weakref.WeakKeyDictionary()

    async def current(self, session: Session) -> Report:
        """The report of the session as it is when this returns; None where there is none.

        There is none without token ids, and where making it failed.
        """
        while True:
            held = self._of_this_version(session)
            report = await asyncio.shield(held.report)
            if held.version == session.trajectory.version:
                return report

    def _of_this_version(self, session: Session) -> _Held:
        held = self._held.get(session)
        if held is None or held.version != session.trajectory.version:
            snapshot = session.trajectory.snapshot()
            held = _Held(snapshot.version, asyncio.ensure_future(self._make(snapshot)))
            self._held[session] = held
        return held

    async def _make(self, snapshot: Snapshot) -> Report:
        if not len(snapshot.token_ids):
            return None
        try:
            return await asyncio.to_thread(
                self._tokenizer.mismatch,
                snapshot.messages,
                snapshot.tools,
                snapshot.kwargs,
                snapshot.token_ids,
            )
        except Exception:  # noqa: BLE001  # an extra: what is wrong with it must not cost samples
            _log.exception("the mismatch report failed")
            return None
