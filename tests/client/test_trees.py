"""Both clients against a server whose sessions are trees: the agent's object goes, a list comes."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
import uvicorn

from sample_wire import Sample
from sample_wire.adapters.client import ClientLimits
from sample_wire.adapters.server import ServerSettings, create_app
from sample_wire.errors import ServerError

from ._clients import AnyClient, Connect
from ._stub import Stub, answer
from .test_with_server import COMPLETION, MESSAGES

SAID = COMPLETION["choices"][0]["message"]  # type: ignore[index]  # it is a list


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    """A server in a thread; its engine gives every prompt the same completion."""
    body = json.dumps(COMPLETION).encode()
    with (
        Stub(create=answer(body, "Connection: close", media_type="application/json")) as engine,
        socket.create_server(("127.0.0.1", 0)) as sock,
    ):
        settings = ServerSettings(engine_url=engine.url, tokenizer="chatml", trajectory="tree")
        config = uvicorn.Config(create_app(settings), log_level="critical", access_log=False)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        server.should_exit = True
        thread.join()


def fork(client: AnyClient) -> None:
    """A first turn, two ways to go on from it, and one turn more on the first of them."""
    first = [*MESSAGES, SAID, {"role": "user", "content": "one way"}]
    for messages in (
        MESSAGES,
        first,
        [*first, SAID, {"role": "user", "content": "and on"}],
        [*MESSAGES, SAID, {"role": "user", "content": "another way"}],
    ):
        url = f"{client.chat_base_url}/chat/completions"
        httpx2.post(url, json={"messages": messages}).raise_for_status()


def test_every_kept_branch_comes_back_as_a_sample(connect: Connect, server_url: str) -> None:
    with connect(server_url, field_set=2) as client:
        fork(client)
        reply = client.collect(Sample(label="kept", reward=9.0, metadata={"mine": 1}))
    assert [sample.metadata["leaf"]["node_id"] for sample in reply.samples] == [2, 3]
    assert [sample.label for sample in reply.samples] == ["kept", "kept"]
    assert [sample.metadata["mine"] for sample in reply.samples] == [1, 1]
    assert [sample.reward for sample in reply.samples] == [9.0, 9.0]
    trained = [
        int(sample.loss_mask.sum()) for sample in reply.samples if sample.loss_mask is not None
    ]
    assert trained == [6, 2]


@pytest.mark.parametrize("reward", [0.0, 1, {"a": 0.5}], ids=str)
def test_the_agents_reward_goes_over_the_templates(
    connect: Connect, server_url: str, reward: Any
) -> None:
    with connect(server_url, field_set=2) as client:
        fork(client)
        reply = client.collect(Sample(reward=9.0), metadata={"reward": reward, "note": "x"})
    assert [sample.reward for sample in reply.samples] == [reward, reward]
    assert [sample.metadata["note"] for sample in reply.samples] == ["x", "x"]
    assert reply.session_metadata["agent"] == {"reward": reward, "note": "x"}


def test_a_refusal_of_the_hooks_is_told_in_the_servers_words(
    connect: Connect, server_url: str
) -> None:
    with connect(server_url, field_set=2) as client:
        fork(client)
        with pytest.raises(ServerError, match="the agent's reward is a str") as caught:
            client.collect(Sample(), metadata={"reward": "good"})
    assert (caught.value.status, caught.value.code) == (422, "hook_failed")
    assert "tree_samples.train_once" in caught.value.text


def test_a_session_without_a_turn_gives_an_empty_reply(connect: Connect, server_url: str) -> None:
    with connect(server_url, field_set=2) as client:
        reply = client.collect(Sample(), metadata={})
    assert (reply.samples, reply.empty_reason) == ([], "no_records")
    assert reply.session_metadata["agent"] == {}


def test_a_client_of_field_set_1_is_refused_before_there_is_a_session(
    connect: Connect, server_url: str
) -> None:
    client = connect(server_url, limits=ClientLimits(create_tries=1))
    with pytest.raises(ServerError) as caught:
        client.create()
    assert (caught.value.status, caught.value.code) == (409, "schema_mismatch")
