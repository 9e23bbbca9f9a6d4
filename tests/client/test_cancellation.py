"""A caller that gives up while collect is under way: the session is deleted all the same."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable

import anyio
import pytest

from sample_wire import Sample
from sample_wire.adapters.client import ClientLimits, SessionClient, SyncSessionClient

from ._samples import make_payload
from ._stub import Exchange, Reply, Stub, answer, head, sends, silence

PAYLOAD = make_payload()
IN_COLLECT: dict[str, Reply] = {
    "before the head": silence,
    "before the body": sends(head(length=len(PAYLOAD)), then=silence),
    "in the body": sends(head(length=len(PAYLOAD)), PAYLOAD[:50], then=silence),
}
each_place = pytest.mark.parametrize("reply", IN_COLLECT.values(), ids=IN_COLLECT)
Collecting = Awaitable[object]


class Signal:
    """Lets the server's thread tell the test's loop that something has come."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def before(self, reply: Reply) -> Reply:
        """The reply, and the signal as it begins."""

        async def signalling(exchange: Exchange) -> None:
            self._loop.call_soon_threadsafe(self._event.set)
            await reply(exchange)

        return signalling

    async def wait(self) -> None:
        await self._event.wait()


async def by_task(collecting: Collecting, arrived: Signal) -> None:
    task = asyncio.ensure_future(collecting)
    await arrived.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def by_timeout(collecting: Collecting, arrived: Signal) -> None:
    async def limited() -> None:
        async with asyncio.timeout(None) as limit:
            waiting = asyncio.ensure_future(arrived.wait())
            waiting.add_done_callback(lambda _: limit.reschedule(0))
            await collecting

    with pytest.raises(TimeoutError):
        await limited()


async def by_task_group(collecting: Collecting, arrived: Signal) -> None:
    async def collect() -> None:
        await collecting

    async def fail() -> None:
        await arrived.wait()
        raise RuntimeError("another rollout of the group broke")

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(collect())
            group.create_task(fail())

    with pytest.raises(ExceptionGroup):
        await both()


async def by_cancel_scope(collecting: Collecting, arrived: Signal) -> None:
    async with anyio.create_task_group() as group:

        async def collect() -> None:
            await collecting

        group.start_soon(collect)
        await arrived.wait()
        # Unlike asyncio's, this cancellation strikes again at every await that is not shielded.
        group.cancel_scope.cancel()


GIVE_UP: dict[str, Callable[[Collecting, Signal], Awaitable[None]]] = {
    "task": by_task,
    "timeout": by_timeout,
    "task group": by_task_group,
    "cancel scope": by_cancel_scope,
}


@each_place
@pytest.mark.parametrize("give_up", GIVE_UP.values(), ids=GIVE_UP)
def test_a_cancelled_collect_deletes_the_session(
    reply: Reply, give_up: Callable[[Collecting, Signal], Awaitable[None]]
) -> None:
    async def main(stub: Stub) -> None:
        arrived = Signal()
        stub.samples = arrived.before(reply)
        async with SessionClient(stub.url) as client:
            await give_up(client.collect(Sample()), arrived)

    with Stub() as stub:
        asyncio.run(main(stub))
        assert stub.requests == ["POST /sessions", "POST /ID/samples", "DELETE /ID"]


def test_a_client_that_is_closed_while_it_collects_deletes_the_session() -> None:
    async def main(stub: Stub) -> None:
        arrived = Signal()
        stub.samples = arrived.before(silence)
        async with SessionClient(stub.url) as client:
            collecting = asyncio.ensure_future(client.collect(Sample()))
            await arrived.wait()
        collecting.cancel()
        await asyncio.gather(collecting, return_exceptions=True)

    with Stub() as stub:
        asyncio.run(main(stub))
        assert stub.requests == ["POST /sessions", "POST /ID/samples", "DELETE /ID"]


def test_a_second_cancellation_does_not_wait_for_the_delete() -> None:
    async def main(stub: Stub) -> None:
        collecting, deleting = Signal(), Signal()
        stub.samples = collecting.before(silence)
        stub.delete = deleting.before(silence)
        client = SessionClient(stub.url, limits=ClientLimits(delete_timeout_s=None))
        await client.create()
        task = asyncio.ensure_future(client.collect(Sample()))
        for arrived in (collecting, deleting):
            await arrived.wait()
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await client.aclose()

    with Stub() as stub:
        asyncio.run(main(stub))
        assert stub.count("delete") == 1


def test_a_block_that_is_cancelled_deletes_the_session() -> None:
    async def main(stub: Stub) -> None:
        opened = asyncio.Event()

        async def rollout() -> None:
            async with SessionClient(stub.url):
                opened.set()
                await asyncio.Event().wait()

        task = asyncio.ensure_future(rollout())
        await opened.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with Stub() as stub:
        asyncio.run(main(stub))
        assert stub.requests == ["POST /sessions", "DELETE /ID"]


def interrupts(then: Reply) -> Reply:
    """Sends SIGINT to the main thread, as Ctrl-C does, then replies."""

    async def reply(exchange: Exchange) -> None:
        ident = threading.main_thread().ident
        assert ident is not None
        signal.pthread_kill(ident, signal.SIGINT)
        await then(exchange)

    return reply


@each_place
def test_an_interrupted_collect_deletes_the_session(reply: Reply) -> None:
    with Stub(interrupts(reply)) as stub:
        client = SyncSessionClient(stub.url)
        client.create()
        with pytest.raises(KeyboardInterrupt):
            client.collect(Sample())
        assert stub.requests == ["POST /sessions", "POST /ID/samples", "DELETE /ID"]
        client.close()


def test_an_interrupt_in_the_delete_is_obeyed() -> None:
    with Stub(answer(PAYLOAD), delete=interrupts(silence)) as stub:
        client = SyncSessionClient(stub.url, limits=ClientLimits(delete_timeout_s=None))
        client.create()
        with pytest.raises(KeyboardInterrupt):
            client.collect(Sample())
        assert stub.count("delete") == 1
        client.close()


def test_two_clients_collect_at_the_same_time() -> None:
    async def one(url: str) -> int:
        async with SessionClient(url) as client:
            return len((await client.collect(Sample())).samples)

    async def main(url: str) -> list[int]:
        return await asyncio.gather(*(one(url) for _ in range(8)))

    with Stub(answer(PAYLOAD)) as stub:
        assert asyncio.run(main(stub.url)) == [1] * 8
        assert (stub.count("collect"), stub.count("delete")) == (8, 8)


def test_a_second_collect_beside_the_first_is_refused_and_leaves_it_alone() -> None:
    async def main(stub: Stub) -> None:
        arrived, go_on = Signal(), asyncio.Event()
        loop = asyncio.get_running_loop()

        async def gated(exchange: Exchange) -> None:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(go_on.wait(), loop))
            await answer(PAYLOAD)(exchange)

        stub.samples = arrived.before(gated)
        async with SessionClient(stub.url) as client:
            first = asyncio.ensure_future(client.collect(Sample()))
            await arrived.wait()
            with pytest.raises(Exception, match="once a session"):
                await client.collect(Sample())
            go_on.set()
            assert len((await first).samples) == 1

    with Stub() as stub:
        asyncio.run(main(stub))
        assert stub.requests == ["POST /sessions", "POST /ID/samples", "DELETE /ID"]
