"""Work that is given up with its client: what is left of it."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

from sample_wire.adapters.server.disconnects import unless_gone
from sample_wire.errors import SessionError


class Held:
    """Something that a caller holds while the work goes on: the plan of a turn, say."""


async def never() -> Any:
    await asyncio.Event().wait()


async def fails() -> None:
    raise SessionError("no engine", code="engine_unreachable", http_status=502)


async def caller(refs: list[weakref.ref[Held]]) -> None:
    held = Held()
    refs.append(weakref.ref(held))
    await unless_gone(never, fails())


async def caught(refs: list[weakref.ref[Held]]) -> bool:
    try:
        await caller(refs)
    except SessionError:
        return True
    return False


def test_failed_work_holds_nothing_of_its_caller() -> None:
    """Also before the garbage collector comes: a plan holds one of a tree's places."""
    refs: list[weakref.ref[Held]] = []
    gc.disable()
    try:
        assert asyncio.run(caught(refs))
        assert [ref() for ref in refs] == [None]
    finally:
        gc.enable()
