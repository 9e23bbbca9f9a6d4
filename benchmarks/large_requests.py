"""How long /health waits while the server takes one request as large as it may be.

    python benchmarks/large_requests.py [--tokenizer PATH] [--family NAME]

Server and engine are processes of their own, with their defaults; each request is the only one.
Prints a Markdown table: the longest answer of /health meanwhile, the request's own time, and the
server's memory after it.  Without a tokenizer's folder it is byte by byte, as the demo's.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

# Run as a file, only this folder is on the path, and the benchmarks import each other by name.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import httpx2

from benchmarks._health import watched
from sample_wire._json import MAX_JSON_VALUES
from sample_wire.adapters.server import ServerSettings
from sample_wire.adapters.server.bodies import SMALL_BODY_BYTES
from sample_wire.bench_server.memory import resident_bytes

TIMEOUT_S: Final = 120.0
MOST: Final = ServerSettings(engine_url="http://h", tokenizer="chatml").max_body_bytes - 200
CHAT: Final = "/sessions/{id}/v1/chat/completions"
SAMPLES: Final = "/sessions/{id}/samples"
MIB: Final = 1 << 20


def requests() -> Iterator[tuple[str, str, bytes]]:
    """What is asked: a name, the path, the body."""
    prose = " ".join(f"the{number} value{number}" for number in range(1 << 19)).encode()
    yield "1 MiB of prose", CHAT, _saying(prose[:MIB])
    yield "8 MiB of prose", CHAT, _saying(prose[:MOST])
    yield "8 MiB of one letter", CHAT, _saying(b"a" * MOST)
    message = b'{"role":"user","content":"x"},'
    yield "87,000 messages", CHAT, b'{"messages":[%b]}' % (message * 87_000)[:-1]
    tool = b'{"type":"function","function":{"name":"%b"}},' % (b"x" * 70)
    yield "64,000 tools", CHAT, _beside(b'"tools":[%b]' % (tool * 64_000)[:-1])
    yield "as many values as may be", CHAT, _beside(b'"x":[%b0]' % _full(MOST, MAX_JSON_VALUES))
    yield "8 MiB of empty arrays", CHAT, _beside(b'"x":[%b0]' % _full(MOST, MOST))
    yield (
        "samples, as many values as may be",
        SAMPLES,
        b'{"x":[%b0]}' % _full(SMALL_BODY_BYTES, MAX_JSON_VALUES),
    )
    yield (
        "a new session, 1 MiB of empty arrays",
        "/sessions",
        b'{"x":[%b0]}' % _full(SMALL_BODY_BYTES, MOST),
    )


def _saying(text: bytes) -> bytes:
    return b'{"messages":[{"role":"user","content":"%b"}]}' % text


def _beside(more: bytes) -> bytes:
    return b'{"messages":[{"role":"user","content":"x"}],%b}' % more


def _full(num_bytes: int, num_values: int) -> bytes:
    """Empty arrays, each of which counts as two values."""
    return b"[]," * (min(num_bytes // 3, num_values // 2) - 20)


@contextmanager
def running(*arguments: str) -> Iterator[tuple[str, int]]:
    """A command of the package, which says where it listens; its URL and process id."""
    command = [sys.executable, "-m", *arguments, "--port", "0"]
    log = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
        assert process.stdout is not None
        said = re.search(r"http://\S+", process.stdout.readline())
        assert said is not None, "it does not start"
        try:
            yield said.group(), process.pid
        finally:
            process.terminate()


def row(http: httpx2.Client, pid: int, name: str, path: str, body: bytes) -> str:
    """One request, as a row of the table."""
    session_id = http.post("/sessions").json()["session_id"]
    with watched(http.base_url.port or 0) as health:
        began = time.monotonic()
        status = http.post(path.replace("{id}", session_id), content=body).status_code
        took = time.monotonic() - began
    longest = health.latencies_s[-1]
    memory = (resident_bytes(pid) or 0) / MIB
    return (
        f"| {name} | {len(body):,} | {status} | {took:.2f} s | {longest * 1e3:.0f} ms "
        f"| {health.num_failed} | {memory:.0f} MiB |"
    )


def main(arguments: Sequence[str]) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokenizer", default="chatml", metavar="PATH")
    parser.add_argument("--family", default="default", metavar="NAME")
    options = parser.parse_args(arguments)
    model = ("--tokenizer", options.tokenizer, "--family", options.family)
    print("| one request | bytes | status | took | longest /health | failed | memory |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with (
        running("sample_wire.demo.engine", "--replay") as (engine, _),
        running("sample_wire", "serve", "--engine", engine, *model) as (server, pid),
        httpx2.Client(base_url=server, timeout=TIMEOUT_S, trust_env=False) as http,
    ):
        for name, path, body in requests():
            print(row(http, pid, name, path, body), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
