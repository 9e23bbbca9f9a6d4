"""What a session costs in memory: growth of the resident set of a process that reads its turns.

Run as `python -m benchmarks._session_memory RECEIVE LAYERS TOP_K EXPERTS` it is that process: it
reads sessions from standard input, one reply at a time, drops each reply once it is read, and
prints its resident set.  The replies are made by the process that starts it, so that what making
them leaves behind is not counted.

Protocol, all integers 8 bytes, little-endian: for each session the number of turns; for each turn
the prompt's ids as int64 and the reply, both with their size before.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Sequence
from typing import IO, Final, Literal, NamedTuple

import numpy as np

from benchmarks._assembly import Session
from benchmarks._memory import ROOT, status_bytes
from sample_wire.adapters.engines import turn_reader
from sample_wire.assembly import RoutingSpec, Turn

# "whole": each reply is received into one buffer of its size.  "chunks": in pieces that are joined
# at the end, as HTTP clients do that do not look at Content-Length.
Receive = Literal["whole", "chunks"]
RECEIVE: Final[tuple[Receive, ...]] = ("whole", "chunks")
# Enough to load all code and to fill the allocator's first pages, too little to leave free memory
# behind that would hide what the next session takes.
WARM_UP_TURNS: Final = 2
_CHUNK_BYTES: Final = 64 * 1024
_SIZE_BYTES: Final = 8


class Growth(NamedTuple):
    """Bytes of the resident set after the last turn, less those after the warm-up was deleted.

    Attributes:
        held: as the process is then.
        trimmed: once malloc has given its free memory back; None where it has no malloc_trim.
    """

    held: int
    trimmed: int | None


def session_growth(session: Session) -> dict[Receive, Growth]:
    """The growth for each way to receive; the processes are fed the same replies in turns.

    Raises:
        subprocess.CalledProcessError: a process failed.
    """
    spec = session.spec(incremental=False)
    shape = [str(spec.num_layers), str(spec.top_k), str(spec.num_experts)]
    children = {
        receive: subprocess.Popen(
            [sys.executable, "-m", "benchmarks._session_memory", receive, *shape],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for receive in RECEIVE
    }
    try:
        inputs = [child.stdin for child in children.values() if child.stdin is not None]
        for num_turns in (WARM_UP_TURNS, session.num_turns):
            _send_session(session, num_turns, inputs)
        return {receive: _growth(child) for receive, child in children.items()}
    finally:
        for child in children.values():
            child.kill()
            child.communicate()


def _send_session(session: Session, num_turns: int, inputs: Sequence[IO[bytes]]) -> None:
    for stream in inputs:
        stream.write(_size(num_turns))
    for turn in range(num_turns):
        record = session.record(turn, incremental=False)
        for data in (record["request"]["input_ids"].tobytes(), record["response"]):
            for stream in inputs:
                stream.write(_size(len(data)))
                stream.write(data)


def _growth(child: subprocess.Popen[bytes]) -> Growth:
    output, _ = child.communicate()
    if child.returncode != 0:
        raise subprocess.CalledProcessError(child.returncode, child.args, output)
    base, held, trimmed = (int(word) for word in output.split())
    return Growth(held - base, trimmed - base if trimmed else None)


def _size(number: int) -> bytes:
    return number.to_bytes(_SIZE_BYTES, "little")


def _read_size(stream: IO[bytes]) -> int:
    return int.from_bytes(stream.read(_SIZE_BYTES), "little")


def _receive(stream: IO[bytes], receive: str) -> bytes:
    left = _read_size(stream)
    if receive == "whole":
        return stream.read(left)
    chunks = []
    while left:
        chunk = stream.read(min(left, _CHUNK_BYTES))
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)


def _read_session(stream: IO[bytes], receive: str, spec: RoutingSpec) -> list[Turn]:
    reader = turn_reader(routing=spec, decode_text=None)
    turns: list[Turn] = []
    for _ in range(_read_size(stream)):
        ids = np.frombuffer(_receive(stream, "whole"), np.int64)
        record = {"request": {"input_ids": ids}, "response": _receive(stream, receive)}
        turns.append(reader.read(record, turns[-1] if turns else None))
    return turns


def _trim() -> bool:
    """Has malloc give back what it keeps free; only glibc can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return trim is not None


def main(arguments: Sequence[str]) -> None:
    """The process that is measured."""
    receive, layers, top_k, experts = arguments
    spec = RoutingSpec(
        num_layers=int(layers), top_k=int(top_k), num_experts=int(experts), required=True
    )
    warm_up = _read_session(sys.stdin.buffer, receive, spec)
    del warm_up
    print(status_bytes("VmRSS"))
    turns = _read_session(sys.stdin.buffer, receive, spec)
    print(status_bytes("VmRSS"))
    print(status_bytes("VmRSS") if _trim() else 0)
    del turns


if __name__ == "__main__":
    main(sys.argv[1:])
