"""The client of the event loop rows, a process of its own: reads payloads, answers checksums.

Run as `python -m benchmarks._client PORT COUNT`.  Imports nothing of the library, so that it
starts at once.
"""

from __future__ import annotations

import socket
import sys
import zlib
from typing import Final

LOOPBACK: Final = "127.0.0.1"
REQUEST: Final = b"?"
LENGTH_BYTES: Final = 8
CHECKSUM_BYTES: Final = 4


def read_exactly(sock: socket.socket, num_bytes: int) -> bytearray:
    """The next num_bytes of the connection.

    Raises:
        EOFError: the other side closed before.
    """
    body = bytearray(num_bytes)
    view = memoryview(body)
    while view:
        count = sock.recv_into(view)
        if not count:
            raise EOFError("the server closed the connection early")
        view = view[count:]
    return body


def fetch(port: int) -> None:
    """Asks for one payload, reads it whole, and sends back its CRC-32."""
    with socket.create_connection((LOOPBACK, port)) as sock:
        sock.sendall(REQUEST)
        num_bytes = int.from_bytes(read_exactly(sock, LENGTH_BYTES), "little")
        body = read_exactly(sock, num_bytes)
        sock.sendall(zlib.crc32(body).to_bytes(CHECKSUM_BYTES, "little"))


if __name__ == "__main__":
    for _ in range(int(sys.argv[2])):
        fetch(int(sys.argv[1]))
