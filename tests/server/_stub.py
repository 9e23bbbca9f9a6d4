"""A stub engine on a loopback port: it serves what a test hands it and keeps what it was sent.

Each connection has a thread, so an answer may wait for a gate that the test opens: that makes
concurrency deterministic.  Headers and bodies go out byte for byte.
"""

from __future__ import annotations

import collections
import functools
import json
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple

Header = tuple[str, str]
JSON_TYPE: Final = ("content-type", "application/json")
# Long enough for a busy machine; only a broken test waits it out.
PATIENCE_S: Final = 60


class Seen(NamedTuple):
    """A request as it reached the engine."""

    method: str
    target: str
    headers: list[Header]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)

    def values(self, name: str) -> list[str]:
        """The values of every header of that name."""
        return [value for key, value in self.headers if key.lower() == name.lower()]


class Answer(NamedTuple):
    """A reply, byte for byte; the length header is added unless one is given.

    With hang_up the connection is closed behind the body, and where there is none at once.
    """

    status: int = 200
    body: bytes = b""
    headers: Sequence[Header] = (JSON_TYPE,)
    hang_up: bool = False


Making = Callable[[Seen], Answer]
# An answer that never comes: the engine waits until its client hangs up.
NEVER: Final = Answer(status=0)


class Gate:
    """Holds an answer back until the test opens it."""

    def __init__(self) -> None:
        self._arrived = threading.Event()
        self._open = threading.Event()

    def wait_for_request(self) -> None:
        """Returns when the request is at the engine."""
        assert self._arrived.wait(PATIENCE_S)

    def open(self) -> None:
        """Lets the answer go."""
        self._open.set()

    def pass_through(self) -> None:
        """What the engine's thread does."""
        self._arrived.set()
        assert self._open.wait(PATIENCE_S)


class StubEngine:
    """The engine: answers are served in the order in which they were handed over.

    Attributes:
        seen: requests, in the order in which they came.
        asked: set when a request that gets a NEVER answer has come.
        hung_up: set when the client of a NEVER answer has closed its connection.
    """

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self._answers: collections.deque[Making] = collections.deque()
        self._gates: list[Gate] = []
        self.asked = threading.Event()
        self.hung_up = threading.Event()
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.engine = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def will(self, *answers: Answer | Making) -> None:
        """Hands over answers for the next requests."""
        for answer in answers:
            self._answers.append(answer if callable(answer) else functools.partial(_given, answer))

    def will_hold(self, answer: Answer | Making) -> Gate:
        """An answer that waits for its gate."""
        gate = Gate()
        self._gates.append(gate)

        def held(seen: Seen) -> Answer:
            gate.pass_through()
            return answer(seen) if callable(answer) else answer

        self.will(held)
        return gate

    def answer(self, seen: Seen) -> Answer:
        """What the engine's threads call."""
        with self._lock:
            self.seen.append(seen)
            making = self._answers.popleft() if self._answers else _unasked
        return making(seen)

    def reset(self) -> None:
        """Forgets requests and answers; opens gates that a failed test left closed."""
        for gate in self._gates:
            gate.open()
        self._gates.clear()
        self._answers.clear()
        self.asked.clear()
        self.hung_up.clear()
        self.seen.clear()

    def close(self) -> None:
        """Ends all threads."""
        self.reset()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _given(answer: Answer, _seen: Seen) -> Answer:
    return answer


def _unasked(seen: Seen) -> Answer:
    return Answer(599, json.dumps({"unasked": seen.target}).encode())


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    engine: StubEngine


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _serve(self) -> None:
        length = int(self.headers.get("content-length", 0))
        body = self.rfile.read(length)
        seen = Seen(self.command, self.path, list(self.headers.items()), body)
        answer = self.server.engine.answer(seen)
        if answer is NEVER:
            self.server.engine.asked.set()
            self.rfile.read(1)  # returns when there is nothing more to come
            self.server.engine.hung_up.set()
        self.close_connection = answer.hang_up or answer is NEVER
        if self.close_connection and not answer.body:
            return
        lines = [f"HTTP/1.1 {answer.status} Said"]
        headers = list(answer.headers)
        if not any(name.lower() in _LENGTHS for name, _ in headers):
            headers.append(("content-length", str(len(answer.body))))
        lines += [f"{name}: {value}" for name, value in headers]
        head = "\r\n".join([*lines, "", ""]).encode()
        try:
            self.wfile.write(head + answer.body)
        except OSError:  # the server under test gave up waiting
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def log_message(self, *_arguments: Any) -> None:
        """The stub is silent."""


_LENGTHS: Final = ("content-length", "transfer-encoding")
