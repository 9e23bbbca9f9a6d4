"""Peak memory of collecting a reply, in payload sizes: our two clients and the plain way.

The server is a process of its own, and so is each client, whose growth of the peak resident
set is what is measured (Linux only).  A session of shape S goes first, so that what the first
call loads is not counted.

Run as `python -m benchmarks._client_memory serve SHAPE` or `... collect WAY PORT`.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import BinaryIO, Final

import httpx2

from benchmarks._client import LOOPBACK
from benchmarks._data import SHAPES, ShapeName, sample_of
from benchmarks._memory import _CLEAR_REFS, _RESET_PEAK, ROOT, status_bytes
from sample_wire import Sample, SamplesReply, decode_samples, encode_samples
from sample_wire.adapters.client import SessionClient, SyncSessionClient

WARM_UP: Final = "warm-up"
MEASURED: Final = "measured"
_CREATED: Final = b'{"session_id":"0123456789abcdef0123456789abcdef"}'
_END_OF_HEAD: Final = b"\r\n\r\n"


def client_peaks(name: ShapeName) -> dict[str, float]:
    """Growth of the peak resident set by one collect, over the payload, for each way of WAYS.

    Raises:
        subprocess.CalledProcessError: a process failed.
    """
    command = [sys.executable, "-m", "benchmarks._client_memory", "serve", name]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            port = server.stdout.readline().strip()
            return {way: _peak_of(way, port) for way in WAYS}
        finally:
            server.kill()


def collect_async(url: str) -> SamplesReply[Sample]:
    """By SessionClient."""

    async def collect() -> SamplesReply[Sample]:
        async with SessionClient(url) as client:
            return await client.collect(Sample())

    return asyncio.run(collect())


def collect_sync(url: str) -> SamplesReply[Sample]:
    """By SyncSessionClient."""
    with SyncSessionClient(url) as client:
        return client.collect(Sample())


def collect_content(url: str) -> SamplesReply[Sample]:
    """By the HTTP package's own reading of the body, which joins its pieces."""
    with httpx2.Client(trust_env=False, verify=False) as client:
        session = f"{url}/sessions/{client.post(f'{url}/sessions').json()['session_id']}"
        reply = client.post(f"{session}/samples", json={"max_seq_len": None})
        client.delete(session)
    return decode_samples(reply.content, Sample())


WAYS: Final[dict[str, Callable[[str], SamplesReply[Sample]]]] = {
    "SessionClient": collect_async,
    "SyncSessionClient": collect_sync,
    "httpx2, .content": collect_content,
}


def _peak_of(way: str, port: str) -> float:
    command = [sys.executable, "-m", "benchmarks._client_memory", "collect", way, port]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout)


def _growth(way: str, port: str) -> float:
    """Collects twice in this process; the second time is measured."""
    collect, url = WAYS[way], f"http://{LOOPBACK}:{port}"
    collect(f"{url}/{WARM_UP}")
    _CLEAR_REFS.write_text(_RESET_PEAK)
    before = status_bytes("VmHWM")
    reply = collect(f"{url}/{MEASURED}")
    grown = status_bytes("VmHWM") - before
    return grown / encode_samples(reply.samples, reply.session_metadata).nbytes


def _serve(name: ShapeName) -> None:
    """Answers session requests one after another until it is killed; prints its port."""
    bodies: dict[str, memoryview] = {
        path: encode_samples([sample_of(shape, "arrays")]).contiguous()
        for path, shape in ((WARM_UP, "S"), (MEASURED, name))
    }
    with socket.create_server((LOOPBACK, 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as reader:
                _answer(connection, _read_request_line(reader), bodies)


def _read_request_line(reader: BinaryIO) -> str:
    """The first line of a request that is read whole: what is unread at the end is a reset."""
    line, length = reader.readline(), 0
    while (header := reader.readline().strip()) != b"":
        name, _, value = header.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    reader.read(length)
    return line.decode("ascii")


def _answer(connection: socket.socket, line: str, bodies: dict[str, memoryview]) -> None:
    """Answers the request of this line."""
    method, path, _ = line.split()
    if method == "DELETE":
        connection.sendall(b"HTTP/1.1 204 No Content" + _END_OF_HEAD)
        return
    is_collect = path.endswith("/samples")
    kind = "application/octet-stream" if is_collect else "application/json"
    body = bodies[path.split("/")[1]] if is_collect else memoryview(_CREATED)
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}"
    connection.sendall(head.encode("ascii") + _END_OF_HEAD)
    connection.sendall(body)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        _serve(next(name for name in SHAPES if name == sys.argv[2]))
    else:
        print(_growth(*sys.argv[2:]))
