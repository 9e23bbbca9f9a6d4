"""An agent that speaks through the openai package, as agents do."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import openai
import pytest
from openai.types.chat import ChatCompletionMessageFunctionToolCall

from ._errors import refusal
from ._serving import Handle
from ._sglang import FIRST_OUTPUT, answer, completion, first_turn, second_turn
from ._stub import PATIENCE_S, Answer, StubEngine

USER: Final[Any] = {"role": "user", "content": "1 2 3"}
CALL: Final = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
TOOLS: Final[Any] = [{"type": "function", "function": {"name": "f", "parameters": {}}}]


@pytest.fixture
def agent(routed_session: Handle) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=routed_session.chat_url, api_key="k", max_retries=0) as client:
        yield client


def test_an_agent_calls_a_tool_and_goes_on(
    agent: openai.OpenAI, routed_session: Handle, engine: StubEngine
) -> None:
    spoken = {"role": "assistant", "content": "", "tool_calls": [CALL]}
    engine.will(first_turn(message=spoken, finish="tool_calls"), second_turn())
    messages = [USER]
    first = agent.chat.completions.create(model="stub", messages=messages, tools=TOOLS)
    said = first.choices[0].message
    assert said.tool_calls is not None
    (call,) = said.tool_calls
    assert isinstance(call, ChatCompletionMessageFunctionToolCall)
    assert call.function.name == "f"
    messages += [
        said.model_dump(exclude_none=True),
        {"role": "tool", "content": "20 21", "tool_call_id": call.id},
    ]
    second = agent.chat.completions.create(model="stub", messages=messages, tools=TOOLS)
    assert second.choices[0].finish_reason == "stop"
    (sample,) = routed_session.collect().samples
    assert sample.tokens.tolist() == [1, 2, 3, 10, 11, 20, 21, 30, 31]
    assert engine.seen[0].values("authorization") == ["Bearer k"]


def test_an_agent_streams(agent: openai.OpenAI, engine: StubEngine) -> None:
    spoken = {"role": "assistant", "content": "10 11", "tool_calls": [CALL]}
    engine.will(answer(completion(3, *FIRST_OUTPUT, message=spoken)))
    (chunk,) = agent.chat.completions.create(model="stub", messages=[USER], stream=True)
    assert chunk.choices[0].delta.content == "10 11"
    assert chunk.choices[0].delta.tool_calls is not None
    assert chunk.choices[0].delta.tool_calls[0].index == 0
    assert chunk.choices[0].finish_reason == "stop"
    assert chunk.usage is not None
    assert chunk.usage.prompt_tokens == 3


def test_an_agent_lists_the_models(agent: openai.OpenAI, engine: StubEngine) -> None:
    engine.will(answer({"object": "list", "data": [{"id": "stub", "object": "model"}]}))
    assert [model.id for model in agent.models.list()] == ["stub"]


@pytest.mark.parametrize("stream", [False, True])
def test_an_agent_sees_the_engines_errors_as_its_own_kinds(
    agent: openai.OpenAI, engine: StubEngine, stream: bool
) -> None:
    engine.will(Answer(429, b'{"error":{"message":"slow down"}}'), Answer(hang_up=True))
    with pytest.raises(openai.RateLimitError, match="slow down"):
        agent.chat.completions.create(model="stub", messages=[USER], stream=stream)
    with pytest.raises(openai.InternalServerError) as refused:
        agent.chat.completions.create(model="stub", messages=[USER], stream=stream)
    assert refusal(refused.value.response) == (502, "engine_unreachable")


def test_a_turn_that_came_too_late_is_not_sent_again_by_a_client_at_its_defaults(
    session: Handle, engine: StubEngine, threads: ThreadPoolExecutor
) -> None:
    """It would roll back the turn that it lost to, whose caller has had its 200."""
    late = engine.will_hold(first_turn())
    engine.will(first_turn())
    with openai.OpenAI(base_url=session.chat_url, api_key="k") as client:
        create = functools.partial(client.chat.completions.create, model="stub", messages=[USER])
        loser = threads.submit(create)
        late.wait_for_request()
        assert create().choices[0].finish_reason == "stop"
        late.open()
        with pytest.raises(openai.ConflictError) as refused:
            loser.result(PATIENCE_S)
    assert refusal(refused.value.response) == (409, "stale_turn")
    assert len(engine.seen) == 2
    assert session.num_records() == 1


def test_a_bad_reply_is_not_paid_for_again_by_a_client_at_its_defaults(
    session: Handle, engine: StubEngine
) -> None:
    engine.will(Answer(200, b"{}"), first_turn())
    with (
        openai.OpenAI(base_url=session.chat_url, api_key="k") as client,
        pytest.raises(openai.InternalServerError) as refused,
    ):
        client.chat.completions.create(model="stub", messages=[USER])
    assert refusal(refused.value.response) == (502, "bad_engine_reply")
    assert len(engine.seen) == 1


def test_an_agent_is_told_when_its_session_is_gone(
    agent: openai.OpenAI, routed_session: Handle
) -> None:
    routed_session.delete()
    with pytest.raises(openai.NotFoundError) as refused:
        agent.chat.completions.create(model="stub", messages=[USER])
    assert refusal(refused.value.response) == (404, "unknown_session")


def test_an_agents_other_routes_do_not_exist(agent: openai.OpenAI, engine: StubEngine) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        agent.completions.create(model="stub", prompt="x")
    assert refusal(refused.value.response) == (404, "not_found")
    assert engine.seen == []
