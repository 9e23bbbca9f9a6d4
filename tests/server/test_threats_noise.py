"""Requests bent by chance: whatever comes, the server answers in its one form or hangs up."""

from __future__ import annotations

import json
import logging
import random
from typing import Final

import pytest

from ._raw import Reply, chat, connected, one, replies_in, request, until_closed
from ._serving import Handle
from ._sglang import first_turn
from ._stub import StubEngine
from .conftest import StartServer

NUM_BENT: Final = 100
# What the stub answers, and what is answered where it hangs up on a header that it cannot read.
_ENGINES: Final = (599, 502)
SHORT_S: Final = 0.05
PIECES: Final = (
    *(b"\r\n", b"\n", b"\r", b"\x00", b" ", b":", b"\t", b"\xff", b"%", b"/..", b"\\", b"?", b"#"),
    *(b"content-length: 5\r\n", b"transfer-encoding: chunked\r\n", b"0\r\n\r\n", b"host: x\r\n"),
    *(b"connection: close, x\r\n", b"expect: 100-continue\r\n", b"upgrade: h2c\r\n", b"HTTP/1.0"),
    *(b"[" * 200, b'{"messages":', b"GET ", b"\xed\xa0\x80", b"99999999999999999999"),
)


def bent(raw: bytes, chance: random.Random) -> bytes:
    """A request with a few parts cut out, doubled, or put in."""
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(raw) + 1)
        stop = min(len(raw), start + chance.randint(0, 12))
        raw = chance.choice(
            (
                raw[:start] + raw[stop:],
                raw[:stop] + raw[start:],
                raw[:start] + chance.choice(PIECES) + raw[start:],
                raw[:start] + bytes([chance.randrange(256)]) + raw[start + 1 :],
            )
        )
    return raw


def answers(session: Handle, raw: bytes) -> list[Reply]:
    """What comes back until the server hangs up, which a last request asks it to."""
    with connected(session.site) as sock:
        try:
            sock.sendall(raw + request("GET", "/health"))
            return replies_in(until_closed(sock))
        except ConnectionError:  # it hung up on bytes that it did not want
            return []


@pytest.fixture
def session(start: StartServer) -> Handle:
    """A session of a server that does not wait long for the rest of a request."""
    return start(head_timeout_s=SHORT_S, body_timeout_s=SHORT_S).create()


@pytest.mark.parametrize("seed", range(3))
def test_no_bent_request_is_a_fault_of_the_server(
    session: Handle, engine: StubEngine, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    chance = random.Random(seed)
    good = (
        chat(session),
        request("POST", f"{session.path}/samples", body=b'{"max_seq_len": 5}'),
        request("POST", "/sessions", "transfer-encoding: chunked") + b"2\r\n{}\r\n0\r\n\r\n",
        request("GET", f"{session.path}/v1/models?a=b"),
        request("GET", "/health", keep=True) + request("GET", session.path),
    )
    with caplog.at_level(logging.INFO):
        for _ in range(NUM_BENT):
            raw = bent(chance.choice(good), chance)
            for reply in answers(session, raw):
                assert reply.status < 500 or reply.status in _ENGINES, raw
                if 400 <= reply.status < 599 and reply.body:
                    assert list(json.loads(reply.body))[:2] == ["error", "code"]
    assert "internal" not in caplog.text
    assert "Exception in ASGI" not in caplog.text
    engine.reset()
    engine.will(first_turn())
    assert one(session.site, chat(session.site.create())).status == 200
