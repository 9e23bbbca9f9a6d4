"""A session server on a loopback port, and short calls to one of its sessions."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import httpx2
from starlette.types import ASGIApp

from sample_wire import Sample, SamplesReply, decode_samples
from sample_wire.adapters.server import ServerSettings, create_app
from sample_wire.adapters.server.serving import http_server
from sample_wire.adapters.server.state import ServerState
from sample_wire.session import TokenizerAdapter

from ._stub import PATIENCE_S

Message = dict[str, Any]


@contextlib.contextmanager
def serving(app: ASGIApp) -> Iterator[int]:
    """Serves an application as the command does, from a thread; gives the port.

    The socket listens before the thread starts, so nobody need wait for it.
    """
    server = http_server(app)
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(128)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        try:
            yield sock.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


class Site:
    """One running server.

    Attributes:
        state: its own, where it runs in this process.
    """

    state: ServerState

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.http = httpx2.Client(base_url=self.url, timeout=PATIENCE_S, trust_env=False)

    def create(self, **handshake: Any) -> Handle:
        """A new session."""
        response = self.http.post("/sessions", json=handshake or None)
        assert response.status_code == 200, response.text
        return Handle(self, response.json()["session_id"])

    def raw(self, request: bytes) -> bytes:
        """Everything that the server sends in answer to these bytes, on a connection of its own."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE_S) as sock:
            sock.sendall(request)
            pieces = []
            while piece := sock.recv(65536):
                pieces.append(piece)
        return b"".join(pieces)


@contextlib.contextmanager
def running(tokenizer: TokenizerAdapter, engine_url: str, **settings: Any) -> Iterator[Site]:
    """A server with these settings."""
    made = ServerSettings(engine_url=engine_url, tokenizer="of the test", **settings)
    app = create_app(made, tokenizer=tokenizer)
    with serving(app) as port:
        site = Site(port)
        site.state = app.state.server
        with site.http:
            yield site


class Handle:
    """One session, as its agent and its trainer see it."""

    def __init__(self, site: Site, session_id: str) -> None:
        self.site = site
        self.id = session_id
        self.path = f"/sessions/{session_id}"

    @property
    def chat_url(self) -> str:
        """The base URL that an OpenAI client is given."""
        return f"{self.site.url}{self.path}/v1"

    def chat(self, messages: Sequence[Message], **body: Any) -> httpx2.Response:
        """One chat call."""
        return self.chat_bytes(json.dumps({"messages": list(messages), **body}).encode())

    def chat_bytes(
        self, body: bytes, headers: Sequence[tuple[str, str]] = (), query: str = ""
    ) -> httpx2.Response:
        """One chat call with this body."""
        return self.site.http.post(
            f"{self.path}/v1/chat/completions{query}",
            content=body,
            headers=[("content-type", "application/json"), *headers],
        )

    def samples(self, body: Any = None) -> httpx2.Response:
        """The samples reply."""
        return self.site.http.post(f"{self.path}/samples", json=body)

    def collect(self, max_seq_len: int | None = None) -> SamplesReply[Sample]:
        """The samples reply, decoded."""
        response = self.samples({"max_seq_len": max_seq_len})
        assert response.status_code == 200, response.text
        return decode_samples(response.content, Sample())

    def dump(self) -> dict[str, Any]:
        """The records dump."""
        response = self.site.http.get(self.path)
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found

    def num_records(self) -> int:
        """Turns that are recorded."""
        return len(self.dump()["records"])

    def delete(self) -> httpx2.Response:
        """The deletion's response."""
        return self.site.http.delete(self.path)
