"""A stub of SGLang, in a process of its own: answers chat with the replies of a session.

Run as `python -m benchmarks._stub_engine SHAPE` it prints its port and serves until it is killed.
The number of prompt ids tells which turn is asked for; a start row in the request, that only
new routing rows are.
"""

from __future__ import annotations

import sys
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from benchmarks._assembly import session_of
from benchmarks._client import LOOPBACK
from benchmarks._data import SHAPES, ShapeName

_IDS: Final = b'"input_ids":['
_START: Final = b'"routed_experts_start_len":'


class _Engine(ThreadingHTTPServer):
    daemon_threads = True
    shape: ShapeName

    def reply_to(self, request: bytes) -> list[bytes | memoryview]:
        start = request.index(_IDS)
        num_ids = request.count(b",", start, request.index(b"]", start)) + 1
        turn = num_ids // session_of(self.shape).turn_size
        return _pieces(self.shape, turn, incremental=_START in request)


@cache
def _pieces(shape: ShapeName, turn: int, *, incremental: bool) -> list[bytes | memoryview]:
    """A reply; making one takes longer than the server may take for the whole turn."""
    return session_of(shape).reply_pieces(turn, incremental=incremental)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Engine

    def do_POST(self) -> None:
        request = self.rfile.read(int(self.headers["content-length"]))
        pieces = self.server.reply_to(request)
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(sum(map(len, pieces))))
        self.end_headers()
        for piece in pieces:
            self.wfile.write(piece)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def main(shape: str) -> None:
    """The process of the engine."""
    _Engine.shape = next(name for name in SHAPES if name == shape)
    with _Engine((LOOPBACK, 0), _Handler) as engine:
        print(engine.server_port, flush=True)
        engine.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1])
