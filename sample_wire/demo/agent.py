"""A tool-calling agent as anybody would write it: the openai client, and nothing of ours."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import openai
from openai.types.chat import ChatCompletionMessageFunctionToolCall

from . import tools

MAX_TURNS: Final = 5
_PATIENCE_S: Final = 120.0
_Call = ChatCompletionMessageFunctionToolCall


async def play(
    base_url: str,
    prompt: Sequence[Any],
    request_kwargs: Mapping[str, Any],
    after_turn: Callable[[], None],
) -> dict[str, Any]:
    """Holds one conversation: the model speaks and calls tools until it calls none.

    Args:
        base_url: of the chat endpoint.
        prompt: the messages to begin with.
        request_kwargs: further arguments of every request.
        after_turn: called behind every turn, of which there are MAX_TURNS at most.

    Returns:
        How many tools were called, and how many seconds that took.

    Raises:
        openai.OpenAIError: the endpoint cannot be reached, or refused a request.
    """
    num_calls, tool_s = 0, 0.0
    messages = list(prompt)
    async with _client(base_url) as client:
        model = (await client.models.list()).data[0].id
        for _ in range(MAX_TURNS):
            completion = await client.chat.completions.create(
                model=model, messages=messages, tools=tools.described(), **request_kwargs
            )
            said = completion.choices[0].message
            calls = [call for call in said.tool_calls or () if isinstance(call, _Call)]
            started = time.perf_counter()
            answers = [_answer(call) for call in calls]
            tool_s += time.perf_counter() - started
            num_calls += len(calls)
            messages += [said.model_dump(exclude_none=True), *answers]
            after_turn()
            if not calls:
                break
    return {"num_tool_calls": num_calls, "agent_metrics": {"total_tool_time": tool_s}}


def _client(base_url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=base_url,
        api_key="none",
        max_retries=0,
        timeout=_PATIENCE_S,
        http_client=openai.DefaultAsyncHttpxClient(trust_env=False),  # no proxy to loopback
    )


def told_by(error: Exception) -> str:
    """What an error says; of a refused request all that the endpoint answered."""
    text = str(error)
    if isinstance(error, openai.APIStatusError):
        text = f"{error.status_code}, {error.response.text}"
    return f"{type(error).__name__}: {text}"


def _answer(call: _Call) -> dict[str, Any]:
    content = tools.call(call.function.name, call.function.arguments)
    return {"role": "tool", "tool_call_id": call.id, "content": content}
