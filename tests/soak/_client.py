"""A trainer as a process that stops in the middle of its samples, to be killed there.

Run as `python -m tests.soak._client URL` it prints its session's path.  A line on its standard
input has it collect; after the first piece of the body it prints a line and reads no further.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from typing import Final

import httpx2

from sample_wire import Sample
from sample_wire.adapters.client import SyncSessionClient

# What fits between two processes would be sent although nobody reads it.
_SMALL_BUFFER: Final = [(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)]
_SAMPLES: Final = "/samples"


class _FirstPiece(httpx2.SyncByteStream):
    """A body that nobody reads on after its first piece."""

    def __init__(self, body: httpx2.SyncByteStream) -> None:
        self._body = body

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._body:
            yield piece
            print("receiving", flush=True)
            sys.stdin.read()


class _Stopping(httpx2.HTTPTransport):
    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        response = super().handle_request(request)
        if request.url.path.endswith(_SAMPLES):
            assert isinstance(response.stream, httpx2.SyncByteStream)
            response.stream = _FirstPiece(response.stream)
        return response


def main(url: str) -> None:
    """The process."""
    http = httpx2.Client(transport=_Stopping(socket_options=_SMALL_BUFFER), trust_env=False)
    with SyncSessionClient(url, http=http) as client:
        print(client.session_id, flush=True)
        sys.stdin.readline()
        client.collect(Sample())


if __name__ == "__main__":
    main(sys.argv[1])
