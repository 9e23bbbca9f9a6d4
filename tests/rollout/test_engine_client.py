"""HttpEngine: what it sends to /generate, and how it tells that there is no reply."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from typing import Any

import pytest
from server._stub import NEVER, Answer, StubEngine

from sample_wire import ClientError, EncodeError, ServerError
from sample_wire.adapters.engine_client import HttpEngine

BODY = {"input_ids": [1, 2], "sampling_params": {"temperature": 0.5}, "text": "\u00e4"}


def ask(url: str, body: Mapping[str, Any] = BODY, **options: Any) -> bytearray:
    """The reply to one request."""

    async def main() -> bytearray:
        async with HttpEngine(url, **options) as engine:
            return await engine.generate(body)

    return asyncio.run(main())


@pytest.mark.parametrize("path", ["", "/", "/engines/3", "/engines/3/"])
def test_a_request_is_sent_as_json_below_the_base_url(engine: StubEngine, path: str) -> None:
    engine.will(Answer(200, b'{"text":"as it came", "n": 1e400}'))
    assert ask(engine.url + path) == b'{"text":"as it came", "n": 1e400}'
    (seen,) = engine.seen
    assert (seen.method, seen.target) == ("POST", f"{path.rstrip('/')}/generate")
    assert json.loads(seen.body.decode()) == BODY
    assert seen.values("content-type") == ["application/json"]


def test_rollouts_share_one_engine(engine: StubEngine) -> None:
    engine.will(*[Answer(200, b"%d" % number) for number in range(4)])

    async def main() -> list[bytearray]:
        async with HttpEngine(engine.url) as client:
            return await asyncio.gather(*(client.generate(BODY) for _ in range(4)))

    assert sorted(asyncio.run(main())) == [b"0", b"1", b"2", b"3"]


def test_what_an_engine_sends_behind_a_reply_does_not_answer_another_rollout(
    engine: StubEngine,
) -> None:
    more = b"mineHTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nstale"
    engine.will(Answer(200, more, [("content-length", "4")]), Answer(200, b"yours"))

    async def main() -> list[bytearray]:
        async with HttpEngine(engine.url) as client:
            return [await client.generate(BODY) for _ in range(2)]

    assert asyncio.run(main()) == [b"mine", b"yours"]


@pytest.mark.parametrize(
    "value", [math.nan, {1: 2}, object(), "\ud800", 10**5000], ids=lambda v: type(v).__name__
)
def test_a_body_that_json_does_not_carry_is_refused_before_it_is_sent(
    engine: StubEngine, value: Any
) -> None:
    with pytest.raises(EncodeError, match="the request"):
        ask(engine.url, {"sampling_params": {"stop": value}})
    assert engine.seen == []


@pytest.mark.parametrize("status", [201, 204, 307, 400, 422, 500, 503])
def test_another_status_than_200_is_an_error_with_the_engines_words(
    engine: StubEngine, status: int
) -> None:
    body = b"" if status == 204 else b'{"error":{"message":"no \xff"}}'
    engine.will(Answer(status, body))
    with pytest.raises(ServerError) as refused:
        ask(engine.url)
    assert refused.value.status == status
    assert refused.value.text == body.decode("utf-8", "replace")
    assert len(engine.seen) == 1


@pytest.mark.parametrize(
    "answer",
    [
        Answer(hang_up=True),
        Answer(200, b'{"te', [("content-length", "100")], hang_up=True),
        Answer(200, b"x", [("content-encoding", "br")]),
        Answer(200, b'{"text": "plain"}', [("content-encoding", "gzip")]),
    ],
    ids=["no answer", "half an answer", "unknown encoding", "broken encoding"],
)
def test_a_reply_that_is_not_whole_is_an_error(engine: StubEngine, answer: Answer) -> None:
    engine.will(answer)
    with pytest.raises(ClientError, match="/generate got no whole answer") as failed:
        ask(engine.url)
    assert type(failed.value) is ClientError
    assert failed.value.__cause__ is not None


def test_an_engine_that_keeps_silent_for_too_long_is_an_error(engine: StubEngine) -> None:
    engine.will(NEVER)
    with pytest.raises(ClientError, match="Timeout"):
        ask(engine.url, timeout_s=0.25)


def test_an_engine_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ClientError, match="ConnectError"):
        ask("http://127.0.0.1:1")


@pytest.mark.parametrize("url", ["", "127.0.0.1:30000", "ftp://a", "http://", "http://a?b=c"])
def test_a_url_that_is_no_engines_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="URL"):
        HttpEngine(url)
