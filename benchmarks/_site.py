"""A session server and its engine as processes, and an agent and a trainer that talk to it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final

import httpx2
import msgspec

from benchmarks._assembly import Session, said, session_of
from benchmarks._client import LOOPBACK, read_exactly
from benchmarks._data import ShapeName
from benchmarks._memory import ROOT, status_bytes
from benchmarks._session_server import CALLS_PATH, TICKER_PATH, Call, Setup
from sample_wire import Sample, SamplesReply, decode_samples

TIMEOUT_S: Final = 300.0
_END_OF_HEAD: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length: "
_COLLECT: Final = json.dumps({"max_seq_len": None})


class Site:
    """One running server, seen from outside.

    Args:
        session: whose turns its sessions have.
        server: its process.
        port: that it listens on.

    Attributes:
        pid: of the server's process.
    """

    def __init__(self, session: Session, server: subprocess.Popen[bytes], port: int) -> None:
        self.session = session
        self.port = port
        self.pid = server.pid
        self.http = httpx2.Client(
            base_url=f"http://{LOOPBACK}:{port}", timeout=TIMEOUT_S, trust_env=False
        )

    def create(self) -> str:
        """A new session's id."""
        session_id: str = self._checked(self.http.post("/sessions")).json()["session_id"]
        return session_id

    def talk(self, num_turns: int) -> str:
        """The id of a new session that has had so many turns."""
        session_id = self.create()
        for turn in range(num_turns):
            self.chat(session_id, turn)
        return session_id

    def chat(self, session_id: str, turn: int) -> None:
        """One turn; the last one of a session may be had again, and is then made anew."""
        path = f"/sessions/{session_id}/v1/chat/completions"
        self._checked(self.http.post(path, content=self._requests[turn]))

    def collect(self, session_id: str) -> SamplesReply[Sample]:
        """The session's samples, received into one buffer and decoded; the session stays."""
        request = (
            f"POST /sessions/{session_id}/samples HTTP/1.1\r\nHost: server\r\n"
            f"Content-Length: {len(_COLLECT)}\r\nConnection: close\r\n\r\n{_COLLECT}"
        )
        with socket.create_connection((LOOPBACK, self.port), TIMEOUT_S) as sock:
            sock.sendall(request.encode())
            return decode_samples(_read_body(sock), Sample())

    def dump(self, session_id: str) -> Any:
        """The session's records dump, parsed by the fastest parser at hand."""
        return msgspec.json.decode(self._checked(self.http.get(f"/sessions/{session_id}")).content)

    def delete(self, session_id: str) -> None:
        """Ends a session."""
        self._checked(self.http.delete(f"/sessions/{session_id}"))

    def calls(self) -> list[Call]:
        """What the requests cost that were answered since this was asked last."""
        answer = self._checked(self.http.get(CALLS_PATH))
        return msgspec.json.decode(answer.content, type=list[Call])

    def longest_gap_s(self, session_id: str) -> float:
        """The longest gap of a ticker in the server's loop while a session is collected."""
        self._checked(self.http.post(TICKER_PATH))
        self.collect(session_id)
        return float(self._checked(self.http.delete(TICKER_PATH)).content)

    def resident_bytes(self) -> int:
        """The server's resident set, once it is done with what it has answered."""
        self.calls()
        return status_bytes("VmRSS", self.pid)

    @cached_property
    def _requests(self) -> list[bytes]:
        """Each turn's request, with the whole conversation, as agents send it."""
        session, num_new = self.session, self.session.num_prompt(0)
        messages: list[dict[str, Any]] = []
        requests = []
        for _ in range(session.num_turns):
            messages.append({"role": "user", "content": "words " * num_new})
            requests.append(json.dumps({"model": "m", "messages": messages}).encode())
            messages.append(said(session.turn_size - num_new))
        return requests

    @staticmethod
    def _checked(response: httpx2.Response) -> httpx2.Response:
        if not response.is_success:
            raise RuntimeError(f"{response.status_code}: {response.text}")
        return response


@contextmanager
def serving(shape: ShapeName, *, incremental: bool) -> Iterator[Site]:
    """A site whose engine has the replies of a shape's session."""
    session = session_of(shape)
    with _process("_stub_engine", shape) as (_, engine_port):
        setup = Setup(
            engine_url=f"http://{LOOPBACK}:{engine_port}",
            routing=session.spec(incremental=incremental),
            num_new=session.num_prompt(0),
        )
        ids = session.ids(session.num_turns).tobytes()
        argument = msgspec.json.encode(setup).decode()
        with _process("_session_server", argument, ids) as (server, port):
            site = Site(session, server, port)
            with site.http:
                yield site


@contextmanager
def _process(
    module: str, argument: str, given: bytes = b""
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process of one of our modules that prints its port; killed when the block ends."""
    command = [sys.executable, "-m", f"benchmarks.{module}", argument]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with process.stdin as stream:
                stream.write(given)
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def _read_body(sock: socket.socket) -> bytearray:
    """The body of a response that tells its length and has status 200.

    Raises:
        RuntimeError: another status.
    """
    head = b""
    while _END_OF_HEAD not in head:
        head += sock.recv(1)
    if not head.startswith(b"HTTP/1.1 200 "):
        raise RuntimeError(head.partition(b"\r\n")[0].decode())
    return read_exactly(sock, int(head.partition(_LENGTH)[2].partition(b"\r\n")[0]))
