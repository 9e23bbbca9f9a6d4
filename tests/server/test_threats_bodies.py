"""Bad bodies on every route: 4xx with a short text, never 500, and nothing of them told again."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any, Final

import pytest

from sample_wire.adapters.tokenizer import ByteChatML

from ._raw import one, request
from ._serving import Handle, Site, running
from ._sglang import answer
from ._stub import StubEngine

SECRET: Final = "xyzzy-plugh"
USER: Final = {"role": "user", "content": "1 2 3"}
ROUTES: Final = ("", "/v1/chat/completions", "/samples")
NO_JSON: Final = {
    "a word": SECRET.encode(),
    "half an object": b'{"' + SECRET.encode(),
    "no UTF-8": b'{"messages": "' + SECRET.encode() + b'\xff"}',
    "half a surrogate pair": b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "two objects": b'{"messages": []}{"messages": []}',
    "a null byte": b"\x00",
    "a byte order mark": b"\xef\xbb\xbf{}",
    "NaN": b'{"messages": NaN}',
    "gzip": b"\x1f\x8b\x08\x00\x00\x00\x00\x00",
}
WRONG: Final[dict[str, Any]] = {
    "a list": [SECRET],
    "a text": SECRET,
    "a number": 7,
    "true": True,
    "no messages": {},
    "messages null": {"messages": None},
    "messages a text": {"messages": SECRET},
    "messages an object": {"messages": {SECRET: 1}},
    "no message": {"messages": []},
    "a message that is a text": {"messages": [SECRET]},
    "a message that is null": {"messages": [None]},
    "a message without a role": {"messages": [{"content": SECRET}]},
    "a role that is a number": {"messages": [{"role": 7, "content": SECRET}]},
    "a content that is a number": {"messages": [{"role": "user", "content": 7}]},
    "a content that is an object": {"messages": [{"role": "user", "content": {SECRET: 1}}]},
    "parts that are no objects": {"messages": [{"role": "user", "content": [SECRET, 1]}]},
    "tools that are a text": {"messages": [USER], "tools": SECRET},
    "tools that are no objects": {"messages": [USER], "tools": [SECRET]},
    "calls that are a text": {"messages": [{"role": "assistant", "tool_calls": SECRET}]},
    "calls that are no objects": {"messages": [{"role": "assistant", "tool_calls": [SECRET]}]},
    "template kwargs that are a list": {"messages": [USER], "chat_template_kwargs": [SECRET]},
    "template kwargs that are a text": {"messages": [USER], "chat_template_kwargs": SECRET},
    "routing asked for": {"messages": [USER], "return_routed_experts": True, "user": SECRET},
}
LIMITS: Final[tuple[Any, ...]] = ([1], "7", 7.5, True, {}, SECRET)


@pytest.fixture(scope="module")
def chatml_site(_engine: StubEngine) -> Iterator[Site]:
    """A server whose tokenizer renders like a model's."""
    with running(ByteChatML(), _engine.url) as site:
        yield site


def check_refused(site: Site, raw: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """A request is refused by a short text, and nothing of it is told anywhere."""
    with caplog.at_level(logging.DEBUG):
        reply = one(site, raw)
    status, _ = reply.refusal
    assert 400 <= status < 500
    assert len(reply.text) < 300
    assert SECRET not in reply.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize("body", NO_JSON.values(), ids=NO_JSON)
@pytest.mark.parametrize("route", ROUTES[1:])
def test_what_is_no_json_is_400(
    session: Handle, caplog: pytest.LogCaptureFixture, route: str, body: bytes
) -> None:
    check_refused(session.site, request("POST", session.path + route, body=body), caplog)
    assert session.num_records() == 0


@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG)
def test_a_chat_of_a_wrong_form_is_400_and_reaches_no_engine(
    chatml_site: Site, engine: StubEngine, caplog: pytest.LogCaptureFixture, body: Any
) -> None:
    session = chatml_site.create()
    path = f"{session.path}/v1/chat/completions"
    check_refused(chatml_site, request("POST", path, body=json.dumps(body).encode()), caplog)
    assert session.num_records() == 0
    assert engine.seen == []


@pytest.mark.parametrize("limit", LIMITS, ids=repr)
def test_a_limit_that_is_no_integer_is_400(
    session: Handle, caplog: pytest.LogCaptureFixture, limit: Any
) -> None:
    body = json.dumps({"max_seq_len": limit}).encode()
    check_refused(session.site, request("POST", f"{session.path}/samples", body=body), caplog)


@pytest.mark.parametrize("body", NO_JSON.values(), ids=NO_JSON)
def test_a_new_session_asks_for_no_body_and_takes_any(site: Site, body: bytes) -> None:
    assert one(site, request("POST", "/sessions", body=body)).status == 200


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/health", 200),
        ("GET", "/sessions/{id}", 200),
        ("GET", "/sessions/{id}/v1/models", 200),
        ("DELETE", "/sessions/{id}", 204),
        ("PUT", "/sessions/{id}", 405),
        ("POST", "/nowhere", 404),
        ("POST", "/sessions/0123/samples", 404),
    ],
)
def test_a_route_that_has_no_use_for_a_body_is_not_moved_by_one(
    session: Handle, engine: StubEngine, method: str, path: str, expected: int
) -> None:
    engine.will(answer({"data": []}))
    path = path.replace("{id}", session.id)
    reply = one(session.site, request(method, path, body=b"\xff" * 100_000))
    assert reply.status == expected


@pytest.mark.parametrize("size", [-(2**70), -1, 0, 2**70])
def test_any_integer_is_a_limit(session: Handle, size: int) -> None:
    body = json.dumps({"max_seq_len": size}).encode()
    reply = one(session.site, request("POST", f"{session.path}/samples", body=body))
    assert reply.status == 200


def test_a_fault_of_ours_tells_nothing_of_what_it_met(
    engine: StubEngine, caplog: pytest.LogCaptureFixture
) -> None:
    class Faulty(ByteChatML):
        def render(self, *_: Any) -> list[int]:
            raise RuntimeError(SECRET)

    with running(Faulty(), engine.url) as site, caplog.at_level(logging.DEBUG):
        session = site.create()
        body = json.dumps({"messages": [{"role": "user", "content": SECRET}]}).encode()
        reply = one(site, request("POST", f"{session.path}/v1/chat/completions", body=body))
    assert reply.refusal == (500, "internal_error")
    assert SECRET not in reply.text + caplog.text
    assert "RuntimeError" in caplog.text
