"""Mismatch reports: how the ids of a session differ from its messages rendered afresh.

Rendering and tokenising a long conversation takes a third of a second.  So it is done in a
worker thread, from a snapshot, and once for each end of a session; one after another, since
they would only take the interpreter from each other and from the loop.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from typing import Final

from ...session import Mismatch, Session, Snapshot, TokenizerAdapter
from .logs import log_fault

_log: Final = logging.getLogger(__name__)


class MismatchReports:
    """The reports on the conversations that sessions end with.

    Args:
        tokenizer: its `mismatch` is called in a worker thread.
    """

    def __init__(self, tokenizer: TokenizerAdapter) -> None:
        self._tokenizer = tokenizer
        self._held: weakref.WeakKeyDictionary[Session, dict[int, asyncio.Future[Mismatch]]] = (
            weakref.WeakKeyDictionary()
        )

    async def current(self, session: Session) -> Mismatch:
        """The report on the session's newest conversation as it is when this returns.

        There is none, which is None, without token ids, and where making it failed.
        """
        while True:
            version = session.trajectory.version
            report = await self._report(session, version)
            if version == session.trajectory.version:
                return report

    async def of_ends(self, session: Session) -> dict[int, Mismatch]:
        """The reports on all its ends as they are when this returns, by version."""
        while True:
            ends = session.trajectory.ends()
            reports = {version: await self._report(session, version) for version in ends}
            if ends == session.trajectory.ends():
                return reports

    async def _report(self, session: Session, version: int) -> Mismatch:
        held = self._held.setdefault(session, {})
        if version not in held:
            for passed in held.keys() - set(session.trajectory.ends()):
                del held[passed]
            snapshot = session.trajectory.snapshot(version)
            held[version] = asyncio.ensure_future(self._make(snapshot))
        return await asyncio.shield(held[version])

    async def _make(self, snapshot: Snapshot) -> Mismatch:
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
        except Exception as error:  # noqa: BLE001  # an extra, which must not cost samples
            log_fault(_log, "the mismatch report failed", error)
            return None
