"""Both clients against the library's own server, with a stub for the engine behind it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator

import httpx2
import pytest
import uvicorn

from sample_wire import Sample
from sample_wire.adapters.client import ClientLimits
from sample_wire.adapters.server import ServerSettings, create_app
from sample_wire.errors import ServerError

from ._clients import AnyClient, Connect
from ._stub import Stub, answer

OUTPUT_IDS = [72, 105]
LOG_PROBS = [-0.25, -0.5]
COMPLETION = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "stub",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hi"},
            "finish_reason": "stop",
            "meta_info": {
                "finish_reason": {"type": "stop"},
                "completion_tokens": len(OUTPUT_IDS),
                "output_token_logprobs": [
                    [log_prob, token, None]
                    for log_prob, token in zip(LOG_PROBS, OUTPUT_IDS, strict=True)
                ],
            },
        }
    ],
}
MESSAGES = [{"role": "user", "content": "Say hi"}]


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    """A server in a thread; its engine gives every prompt the same completion."""
    body = json.dumps(COMPLETION).encode()
    with (
        Stub(create=answer(body, "Connection: close", media_type="application/json")) as engine,
        socket.create_server(("127.0.0.1", 0)) as sock,
    ):
        app = create_app(ServerSettings(engine_url=engine.url, tokenizer="chatml"))
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        server.should_exit = True
        thread.join()


def chat(client: AnyClient) -> None:
    url = f"{client.chat_base_url}/chat/completions"
    httpx2.post(url, json={"messages": MESSAGES}).raise_for_status()


def test_a_turn_comes_back_as_a_sample(connect: Connect, server_url: str) -> None:
    with connect(server_url) as client:
        chat(client)
        (sample,) = client.collect(Sample(label="kept")).samples
    assert sample.tokens[-2:].tolist() == OUTPUT_IDS
    assert sample.rollout_log_probs is not None
    assert sample.rollout_log_probs.tolist() == LOG_PROBS
    assert sample.label == "kept"


def test_a_session_without_a_turn_gives_an_empty_reply(connect: Connect, server_url: str) -> None:
    with connect(server_url) as client:
        reply = client.collect(Sample())
    assert (reply.samples, reply.empty_reason) == ([], "no_records")


def test_collect_leaves_no_session_behind(connect: Connect, server_url: str) -> None:
    with connect(server_url) as client:
        client.collect(Sample())
        url = f"{client.server_url}/sessions/{client.session_id}"
    assert httpx2.get(url).status_code == 404


def test_another_field_set_is_refused_before_there_is_a_session(
    connect: Connect, server_url: str
) -> None:
    client = connect(server_url, field_set=2, limits=ClientLimits(create_tries=1))
    with pytest.raises(ServerError) as caught:
        client.create()
    assert (caught.value.status, caught.value.code) == (409, "schema_mismatch")


def test_a_session_that_is_gone_is_told_in_the_servers_words(
    connect: Connect, server_url: str
) -> None:
    with connect(server_url) as client:
        httpx2.delete(f"{server_url}/sessions/{client.session_id}").raise_for_status()
        with pytest.raises(ServerError) as caught:
            client.collect(Sample())
    assert caught.value.code == "unknown_session"
    assert caught.value.text == f"session not found: session_id={client.session_id}"
