"""Large bodies go out in slices, and between two of them the loop serves everybody else."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest

from sample_wire.adapters.server.sending import SLICE_BYTES, SlicedResponse

Event = MutableMapping[str, Any]
PIECES = (b"a" * (3 * SLICE_BYTES + 1), b"", memoryview(b"b" * SLICE_BYTES), b"c")


class Exchange:
    """The server's side of one response.

    Attributes:
        events: what was sent, and None for every turn that the loop gave to others meanwhile.
    """

    def __init__(self, method: str = "GET", gone_after: int | None = None) -> None:
        self.scope = {"type": "http", "method": method}
        self.events: list[Event | None] = []
        self._gone = asyncio.Event()
        self._left = itertools.count(-1 if gone_after is None else gone_after, -1)

    async def receive(self) -> Event:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, event: Event) -> None:
        self.events.append(event)
        if next(self._left) == 0:
            self._gone.set()

    async def run(self, response: SlicedResponse) -> None:
        ticking = asyncio.ensure_future(self._tick())
        await response(self.scope, self.receive, self.send)
        ticking.cancel()

    async def _tick(self) -> None:
        while True:
            self.events.append(None)
            await asyncio.sleep(0)


def exchanged(response: SlicedResponse, **options: Any) -> list[Event | None]:
    """All that happened while this response was sent."""

    async def run() -> list[Event | None]:
        exchange = Exchange(**options)
        await exchange.run(response)
        return exchange.events

    return asyncio.run(run())


def bodies(events: list[Event | None]) -> list[bytes]:
    """The bodies of the events."""
    return [bytes(one["body"]) for one in events if one is not None and "body" in one]


def test_the_body_is_whole_and_no_slice_is_too_long() -> None:
    sent = bodies(exchanged(SlicedResponse(PIECES, "a/b", None)))
    assert b"".join(sent) == b"".join(PIECES)
    assert max(map(len, sent)) == SLICE_BYTES


def test_others_run_between_any_two_slices() -> None:
    events = exchanged(SlicedResponse(PIECES, "a/b", None))
    slices = [index for index, one in enumerate(events) if one is not None and one.get("body")]
    assert len(slices) == 6
    for first, second in itertools.pairwise(slices):
        assert None in events[first:second]


@pytest.mark.parametrize("size", [None, sum(map(len, PIECES))])
def test_the_length_is_told_where_it_is_known(size: int | None) -> None:
    start = next(one for one in exchanged(SlicedResponse(PIECES, "a/b", size)) if one)
    headers = dict(start["headers"])
    assert headers[b"content-type"] == b"a/b"
    assert headers.get(b"content-length") == (None if size is None else str(size).encode())


def test_a_head_makes_no_body() -> None:
    def none_made() -> Iterator[bytes]:
        raise AssertionError("a body was made")
        yield b""

    assert bodies(exchanged(SlicedResponse(none_made(), "a/b", None), method="HEAD")) == [b""]


def test_no_more_is_made_once_the_client_has_gone() -> None:
    made = []

    def endless() -> Iterator[bytes]:
        for number in itertools.count():
            made.append(number)
            yield b"x"

    exchanged(SlicedResponse(endless(), "a/b", None), gone_after=3)
    assert len(made) < 10
