"""A server that answers each operation with exactly the bytes, or the fault, it was given.

It runs in a thread with a loop of its own, so that a blocking client can be tested as well.
Nothing in it knows HTTP beyond the end of a request.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Final, NamedTuple, Self

SESSION_ID: Final = "0123456789abcdef0123456789abcdef"
_PACE_S: Final = 0.02
_JOIN_S: Final = 10.0
Reply = Callable[["Exchange"], Awaitable[None]]


class Exchange(NamedTuple):
    """The two ends of one connection, its request having been read."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Received(NamedTuple):
    """One request as it came; header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Stub:
    """The server, for one `with` block.

    Args:
        create, samples, delete: how the operations are answered.

    Attributes:
        received: every request, in the order in which its last byte came.
        num_connections: how many connections were made.
        late_bytes: what clients sent on a connection after their request.
    """

    def __init__(
        self,
        samples: Reply | None = None,
        *,
        create: Reply | None = None,
        delete: Reply | None = None,
    ) -> None:
        self.create = create or created()
        self.samples = samples or answer(b"{}", status=404)
        self.delete = delete or answer(status=204)
        self.received: list[Received] = []
        self.num_connections = 0
        self.late_bytes = b""
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def requests(self) -> list[str]:
        """Method and path of each request, the session's path written short."""
        return [
            f"{item.method} {item.path}".replace(f"/sessions/{SESSION_ID}", "/ID")
            for item in self.received
        ]

    def count(self, operation: str) -> int:
        """How often "create", "collect" or "delete" was asked for."""
        names = {"create": "POST /sessions", "collect": "POST /ID/samples", "delete": "DELETE /ID"}
        return self.requests.count(names[operation])

    def only(self, operation: str) -> Received:
        """The one request for an operation."""
        names = {"create": "POST /sessions", "collect": "POST /ID/samples", "delete": "DELETE /ID"}
        (index,) = (i for i, text in enumerate(self.requests) if text == names[operation])
        return self.received[index]

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_JOIN_S)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self._port: int = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        task = asyncio.get_running_loop().create_task(self._exchange(Exchange(reader, writer)))
        self._tasks.add(task)

    async def _exchange(self, exchange: Exchange) -> None:
        try:
            request = await _read_request(exchange.reader)
            self.received.append(request)
            await self._reply_to(request)(exchange)
            self.late_bytes += await exchange.reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client hung up, as it may
        finally:
            exchange.writer.close()

    def _reply_to(self, request: Received) -> Reply:
        if request.method == "DELETE":
            return self.delete
        return self.samples if request.path.endswith("/samples") else self.create


async def _read_request(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii")
    line, *lines = head.rstrip("\r\n").split("\r\n")
    headers = {name.lower(): value for name, _, value in (item.partition(": ") for item in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    method, path, _ = line.split(" ")
    return Received(method, path, headers, body)


def head(
    status: int = 200,
    media_type: str | None = "application/octet-stream",
    length: int | None = None,
    *extra: str,
) -> bytes:
    """The head of an answer; without a length the end of the connection ends the body."""
    lines = [f"HTTP/1.1 {status} Status", *extra]
    if media_type is not None:
        lines.append(f"Content-Type: {media_type}")
    if length is not None:
        lines.append(f"Content-Length: {length}")
    return "\r\n".join([*lines, "", ""]).encode("ascii")


def sends(*pieces: bytes | memoryview, then: Reply | None = None) -> Reply:
    """Writes the bytes as they are; then waits for the client to hang up, or does `then`."""

    async def reply(exchange: Exchange) -> None:
        for piece in pieces:
            exchange.writer.write(piece)
            await exchange.writer.drain()
        if then is not None:
            await then(exchange)

    return reply


def answer(
    body: bytes | memoryview = b"",
    *extra: str,
    status: int = 200,
    media_type: str | None = "application/octet-stream",
) -> Reply:
    """A whole, correct answer."""
    length = None if status == 204 else len(body)
    return sends(head(status, None if status == 204 else media_type, length, *extra), body)


def created(body: bytes = b'{"session_id":"%s"}' % SESSION_ID.encode(), **facts: int) -> Reply:
    """The answer to POST /sessions; by default from a server that knows no handshake."""
    return answer(body, status=facts.get("status", 200), media_type="application/json")


def chunked(pieces: Iterable[bytes], *, whole: bool = True) -> bytes:
    """A body in chunks; without its last one where it is not whole."""
    coded = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return coded + b"0\r\n\r\n" if whole else coded


async def silence(exchange: Exchange) -> None:
    """Sends nothing more until the client hangs up."""
    await exchange.reader.read()


async def hang_up(exchange: Exchange) -> None:
    """Ends the connection in good order."""
    exchange.writer.close()


async def reset(exchange: Exchange) -> None:
    """Ends the connection by a reset."""
    sock = exchange.writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    exchange.writer.transport.abort()


async def drip(exchange: Exchange) -> None:
    """One byte now and then until the client hangs up: never silent for long."""
    while True:
        exchange.writer.write(b"x")
        try:
            await asyncio.wait_for(exchange.reader.read(1), _PACE_S)
        except TimeoutError:
            continue
        return


def in_turn(*replies: Reply) -> Reply:
    """The first reply for the first request, and so on; the last one for all others."""
    rest = list(replies)

    async def reply(exchange: Exchange) -> None:
        await (rest.pop(0) if len(rest) > 1 else rest[0])(exchange)

    return reply


def calls(function: Callable[[], object], then: Reply) -> Reply:
    """Calls the function in the server's thread, then replies."""

    async def reply(exchange: Exchange) -> None:
        function()
        await then(exchange)

    return reply
