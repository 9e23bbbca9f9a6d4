"""How long an asyncio server's loop stands still while it makes and sends a payload.

A ticker in the loop sleeps 1 ms again and again; its longest gap, the sleep included, is what
every other connection of the server would have waited.  The client is another process.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import zlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks._client import CHECKSUM_BYTES, LENGTH_BYTES, LOOPBACK, REQUEST
from sample_wire.bench_server.ticker import Ticker

ROOT: Final = Path(__file__).resolve().parents[1]
SLICE_BYTES: Final = 256 * 1024
TIMEOUT_S: Final = 120.0

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Job(NamedTuple):
    """One way to answer: make the body in the loop, then send it.

    Attributes:
        make: gives the body, an iterable of byte views in wire order.
        send: writes such a body.
    """

    make: Callable[[], Iterable[memoryview]]
    send: Callable[[asyncio.StreamWriter, Iterable[memoryview]], Awaitable[None]]


async def send_sliced(writer: asyncio.StreamWriter, body: Iterable[memoryview]) -> None:
    """Writes slices, and yields to the loop after each."""
    for view in body:
        for start in range(0, len(view), SLICE_BYTES):
            writer.write(view[start : start + SLICE_BYTES])
            await writer.drain()
            # drain does not yield while the socket takes everything.
            await asyncio.sleep(0)


async def send_whole(writer: asyncio.StreamWriter, body: Iterable[memoryview]) -> None:
    """Writes each buffer in one call, as a server does with a body that is one bytes object."""
    for view in body:
        writer.write(view)
        await writer.drain()


def longest_gaps_s(jobs: Mapping[str, Job], rounds: int) -> dict[str, list[float]]:
    """The longest gap of the ticker for each job and round, the jobs taken in turns.

    Raises:
        RuntimeError: the client did not get the bytes that were made.
        TimeoutError: the exchange takes longer than TIMEOUT_S.
    """
    return asyncio.run(_serve(jobs, rounds))


def idle_gap_s(window_s: float) -> float:
    """The longest gap of the same ticker in a loop that has nothing else to do."""

    async def idle() -> float:
        async with Ticker() as ticker:
            await asyncio.sleep(window_s)
        return ticker.longest_s

    return asyncio.run(idle())


async def _serve(jobs: Mapping[str, Job], rounds: int) -> dict[str, list[float]]:
    checksums = {name: _crc32(job.make()) for name, job in jobs.items()}
    gaps: dict[str, list[float]] = {name: [] for name in jobs}
    connections: asyncio.Queue[Connection] = asyncio.Queue()
    server = await asyncio.start_server(
        lambda reader, writer: connections.put_nowait((reader, writer)), LOOPBACK, 0
    )
    port = server.sockets[0].getsockname()[1]
    command = [sys.executable, "-m", "benchmarks._client", str(port), str(rounds * len(jobs))]
    async with server, asyncio.timeout(TIMEOUT_S):
        with subprocess.Popen(command, cwd=ROOT) as client:
            try:
                for _ in range(rounds):
                    for name, job in jobs.items():
                        gap_s, checksum = await _answer(job, await connections.get())
                        if checksum != checksums[name]:
                            raise RuntimeError(f"the client got other bytes: {name}")
                        gaps[name].append(gap_s)
            except BaseException:
                client.kill()
                raise
    return gaps


async def _answer(job: Job, connection: Connection) -> tuple[float, int]:
    """Serves one request; the ticker's longest gap, and the client's checksum."""
    reader, writer = connection
    await reader.readexactly(len(REQUEST))
    async with Ticker() as ticker:
        body = list(job.make())
        writer.write(sum(map(len, body)).to_bytes(LENGTH_BYTES, "little"))
        await job.send(writer, body)
        checksum = int.from_bytes(await reader.readexactly(CHECKSUM_BYTES), "little")
    writer.close()
    await writer.wait_closed()
    return ticker.longest_s, checksum


def _crc32(body: Iterable[Any]) -> int:
    checksum = 0
    for view in body:
        checksum = zlib.crc32(view, checksum)
    return checksum
