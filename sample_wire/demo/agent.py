"""A tool-calling agent as anybody would write it: the openai client, and nothing of ours."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

import openai
from openai.types.chat import ChatCompletionMessageFunctionToolCall

from . import tools

MAX_TURNS: Final = 5
_PATIENCE_S: Final = 120.0
_RETRY_SEED: Final = 11
_GO_ON: Final = {"role": "user", "content": "Go on."}
_ANOTHER_WAY: Final = {"role": "user", "content": "Answer without the tools."}
_Call = ChatCompletionMessageFunctionToolCall


class Speaker:
    """Speaks with a model and runs the tools that it calls.

    Args:
        client, model: the endpoint, and its name for the model.
        request_kwargs: further arguments of every request.
        after_turn: called behind every turn.
    """

    def __init__(
        self,
        client: openai.AsyncOpenAI,
        model: str,
        request_kwargs: Mapping[str, Any],
        after_turn: Callable[[], None],
    ) -> None:
        self._client = client
        self._model = model
        self._request_kwargs = request_kwargs
        self._after_turn = after_turn
        self._num_calls = 0
        self._tool_s = 0.0

    async def turn(self, messages: Sequence[Any], **others: Any) -> list[Any]:
        """What follows these messages: the model's own, and the answers of the tools it calls.

        Args:
            messages: the conversation.
            others: arguments of this request that take the place of those of every request.
        """
        completion = await self._client.chat.completions.create(
            model=self._model,
            messages=list(messages),
            tools=tools.described(),
            **{**self._request_kwargs, **others},
        )
        said = completion.choices[0].message
        calls = [call for call in said.tool_calls or () if isinstance(call, _Call)]
        started = time.perf_counter()
        answers = [_answer(call) for call in calls]
        self._tool_s += time.perf_counter() - started
        self._num_calls += len(calls)
        self._after_turn()
        return [said.model_dump(exclude_none=True), *answers]

    def told(self) -> dict[str, Any]:
        """How many tools were called, and how many seconds that took."""
        return {
            "num_tool_calls": self._num_calls,
            "agent_metrics": {"total_tool_time": self._tool_s},
        }


@contextlib.asynccontextmanager
async def speaking(
    base_url: str, request_kwargs: Mapping[str, Any], after_turn: Callable[[], None]
) -> AsyncIterator[Speaker]:
    """A speaker with the first model of an endpoint; arguments as for Speaker."""
    async with openai.AsyncOpenAI(
        base_url=base_url,
        api_key="none",
        max_retries=0,
        timeout=_PATIENCE_S,
        http_client=openai.DefaultAsyncHttpxClient(trust_env=False),  # no proxy to loopback
    ) as client:
        model = (await client.models.list()).data[0].id
        yield Speaker(client, model, request_kwargs, after_turn)


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
    messages = list(prompt)
    async with speaking(base_url, request_kwargs, after_turn) as speaker:
        for _ in range(MAX_TURNS):
            added = await speaker.turn(messages)
            messages += added
            if len(added) == 1:
                break
    return speaker.told()


async def play_branches(
    base_url: str,
    prompt: Sequence[Any],
    request_kwargs: Mapping[str, Any],
    after_turn: Callable[[], None],
) -> dict[str, Any]:
    """Goes several ways: a turn, the next one tried twice, on from the second try, and a fork.

    Arguments, result and errors are those of `play`.
    """
    async with speaking(base_url, request_kwargs, after_turn) as speaker:
        opened = [*prompt, *await speaker.turn(prompt)]
        await speaker.turn(opened)
        retried = [*opened, *await speaker.turn(opened, seed=_RETRY_SEED)]
        await speaker.turn([*retried, _GO_ON])
        await speaker.turn([*opened, _ANOTHER_WAY])
    return speaker.told()


def told_by(error: Exception) -> str:
    """What an error says; of a refused request all that the endpoint answered."""
    text = str(error)
    if isinstance(error, openai.APIStatusError):
        text = f"{error.status_code}, {error.response.text}"
    return f"{type(error).__name__}: {text}"


def _answer(call: _Call) -> dict[str, Any]:
    content = tools.call(call.function.name, call.function.arguments)
    return {"role": "tool", "tool_call_id": call.id, "content": content}
