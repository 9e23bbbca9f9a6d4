"""Requests as bytes, and what comes back for them, over sockets of the test's own."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any, NamedTuple

from ._serving import Handle, Site
from ._stub import PATIENCE_S


class Reply(NamedTuple):
    """One answer, taken apart."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def refusal(self) -> tuple[int, str]:
        """Status and code of an error in the one form that errors have."""
        assert dict(self.headers)["content-type"] == "application/json"
        found = json.loads(self.body)
        assert list(found) == ["error", "code"]
        return self.status, found["code"]

    @property
    def text(self) -> str:
        """The error's text."""
        said: str = json.loads(self.body)["error"]
        return said

    def header(self, name: str) -> str | None:
        """The value of a header, or None."""
        return dict(self.headers).get(name)


def replies_in(received: bytes) -> list[Reply]:
    """All answers in what came over a connection; each must be whole."""
    found = []
    while received:
        head, separator, rest = received.partition(b"\r\n\r\n")
        assert separator, received
        status_line, *lines = head.decode("latin-1").split("\r\n")
        status = int(status_line.split()[1])
        headers = [(line.partition(": ")[0].lower(), line.partition(": ")[2]) for line in lines]
        if status in (100, 204):
            body, received = b"", rest
        elif "content-length" in dict(headers):
            length = int(dict(headers)["content-length"])
            assert len(rest) >= length, "the body breaks off"
            body, received = rest[:length], rest[length:]
        else:
            body, received = _chunks_in(rest)
        found.append(Reply(status, headers, body))
    return found


def _chunks_in(rest: bytes) -> tuple[bytes, bytes]:
    """The body that is sent in chunks, and what follows it."""
    body = b""
    while True:
        size, separator, rest = rest.partition(b"\r\n")
        assert separator, "the chunks break off"
        length = int(size, 16)
        body, rest = body + rest[:length], rest[length + 2 :]
        if not length:
            return body, rest


def connected(site: Site) -> socket.socket:
    """A connection to the server; no call on it waits for ever."""
    return socket.create_connection(("127.0.0.1", site.port), PATIENCE_S)


def until_closed(sock: socket.socket) -> bytes:
    """What comes until the server closes the connection."""
    pieces = []
    while piece := sock.recv(1 << 16):
        pieces.append(piece)
    return b"".join(pieces)


def first(sock: socket.socket) -> Reply:
    """The first answer on a connection, which has a length; what follows it is not read."""
    received = b""
    while True:
        piece = sock.recv(1 << 16)
        assert piece, "the answer breaks off"
        received += piece
        with contextlib.suppress(AssertionError):
            return replies_in(received)[0]


def sent(site: Site, request: bytes) -> list[Reply]:
    """The answers to these bytes; the server has closed the connection behind the last one."""
    with connected(site) as sock:
        sock.sendall(request)
        return replies_in(until_closed(sock))


def one(site: Site, request: bytes) -> Reply:
    """The one answer to these bytes, but for those that only ask to go on."""
    (reply,) = (reply for reply in sent(site, request) if reply.status != 100)
    return reply


def request(
    method: str, path: str, *headers: str, body: bytes | None = None, keep: bool = False
) -> bytes:
    """A request, well formed but for what the caller puts in."""
    lines = [f"{method} {path} HTTP/1.1", "host: h"]
    lines += [] if keep else ["connection: close"]
    lines += [] if body is None else [f"content-length: {len(body)}"]
    return "\r\n".join([*lines, *headers, "", ""]).encode("latin-1") + (body or b"")


def chat(session: Handle, *headers: str, body: Any = None, keep: bool = False) -> bytes:
    """A chat request; its body is JSON, or a short conversation where none is given."""
    given = {"messages": [{"role": "user", "content": "1 2 3"}]} if body is None else body
    text = given if isinstance(given, bytes) else json.dumps(given).encode()
    path = f"{session.path}/v1/chat/completions"
    return request("POST", path, *headers, body=text, keep=keep)
