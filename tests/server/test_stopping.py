"""A server that is told to end: what runs may finish, or is refused; nothing is half done."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from sample_wire.adapters.server import ServerSettings, create_app
from sample_wire.adapters.server.serving import http_server

from ._numbers import NumberTokenizer
from ._raw import chat, connected, first, replies_in, request, until_closed
from ._serving import Site
from ._sglang import first_turn
from ._stub import NEVER, PATIENCE_S, StubEngine

LONG_S = 3600.0


class Stopping:
    """A server that a test ends.

    Attributes:
        site: it, from outside.
    """

    def __init__(self, site: Site, server: uvicorn.Server, thread: threading.Thread) -> None:
        self.site = site
        self._server = server
        self._thread = thread

    def tell(self) -> None:
        """Tells it to end, as a signal does; returns when it takes no new connections."""
        self._server.should_exit = True
        while not self.is_closed():
            pass

    def is_closed(self) -> bool:
        """Whether nothing listens there any more."""
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self.site.port)) != 0

    def wait(self) -> None:
        """Returns when it has ended."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


@contextlib.contextmanager
def stopping(engine: StubEngine, **settings: Any) -> Iterator[Stopping]:
    """A server with these settings; it is ended at the latest when this is left."""
    made = ServerSettings(engine_url=engine.url, tokenizer="of the test", **settings)
    server = http_server(create_app(made, tokenizer=NumberTokenizer()))
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(128)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        site = Site(sock.getsockname()[1])
        try:
            with site.http:
                yield Stopping(site, server, thread)
        finally:
            server.should_exit = True
            thread.join()


def test_a_chat_that_ends_in_time_is_answered(engine: StubEngine) -> None:
    with stopping(engine, stop_timeout_s=LONG_S) as server:
        session = server.site.create()
        gate = engine.will_hold(first_turn())
        with connected(server.site) as sock:
            sock.sendall(chat(session, keep=True))
            gate.wait_for_request()
            server.tell()
            gate.open()
            (reply,) = replies_in(until_closed(sock))
        server.wait()
    assert reply.status == 200


def test_a_chat_that_does_not_end_in_time_is_503_in_our_shape(engine: StubEngine) -> None:
    with stopping(engine, stop_timeout_s=0.1) as server:
        session = server.site.create()
        engine.will(NEVER)
        with connected(server.site) as sock:
            sock.sendall(chat(session))
            assert engine.asked.wait(PATIENCE_S)
            server.tell()
            (reply,) = replies_in(until_closed(sock))
        server.wait()
    assert reply.refusal == (503, "stopping")
    assert reply.header("retry-after") == "5"
    assert engine.hung_up.wait(PATIENCE_S)


def test_a_body_that_does_not_come_in_time_is_503_in_our_shape(engine: StubEngine) -> None:
    with stopping(engine, stop_timeout_s=0.1) as server:
        session = server.site.create()
        with connected(server.site) as sock:
            sock.sendall(chat(session)[:-5])
            server.tell()
            reply = first(sock)
        server.wait()
    assert reply.refusal == (503, "stopping")


def test_a_connection_that_asks_for_nothing_is_closed_at_once(engine: StubEngine) -> None:
    with stopping(engine, stop_timeout_s=LONG_S) as server:
        with connected(server.site) as silent, connected(server.site) as kept:
            kept.sendall(request("GET", "/health", keep=True))
            assert first(kept).status == 200
            server.tell()
            assert until_closed(silent) == until_closed(kept) == b""
        server.wait()


def test_an_answer_that_is_not_taken_in_time_breaks_off_without_a_fault(
    engine: StubEngine, caplog: pytest.LogCaptureFixture
) -> None:
    user = {"role": "user", "content": " ".join(["7"] * 1_000_000)}
    with stopping(engine, stop_timeout_s=0.1) as server, caplog.at_level(logging.INFO):
        session = server.site.create()
        engine.will(first_turn())
        assert session.chat([user]).status_code == 200
        with connected(server.site) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.sendall(request("POST", f"{session.path}/samples", "x-request-id: r-7", body=b""))
            sock.recv(1)
            server.tell()
            server.wait()
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []
    (told,) = (vars(one) for one in caplog.records if vars(one).get("request_id") == "r-7")
    assert (told["status"], told["code"]) == (200, "stopping")


@pytest.mark.parametrize("seen", [1, 1000])
def test_samples_that_are_on_their_way_arrive_whole(engine: StubEngine, seen: int) -> None:
    """The client reads slowly: only a little before the server is told to end."""
    user = {"role": "user", "content": " ".join(["7"] * 200_000)}
    with stopping(engine, stop_timeout_s=LONG_S) as server:
        session = server.site.create()
        engine.will(first_turn())
        assert session.chat([user]).status_code == 200
        with connected(server.site) as sock:
            sock.sendall(request("POST", f"{session.path}/samples", body=b"", keep=True))
            begun = sock.recv(seen)
            server.tell()
            (reply,) = replies_in(begun + until_closed(sock))
        server.wait()
    assert reply.status == 200
    assert len(reply.body) > 200_000 * 8
