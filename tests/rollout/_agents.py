"""Agents, and running them through agentic.generate."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import openai

from sample_wire import Sample
from sample_wire.adapters.client import SessionClient
from sample_wire.rollout import GenerateInput, GenerateOutput, agentic

Chat = Callable[..., Awaitable[Any]]
Told = Mapping[str, Any] | None
INSTANCE_ID = "instance-7"


class Agent:
    """An agent that chats as a test says, and keeps what it was called with.

    Args:
        steps: is given a function that makes one chat call; None makes no call at all.
        told: what the agent returns.
    """

    def __init__(
        self, steps: Callable[[Chat], Awaitable[None]] | None = None, told: Any = None
    ) -> None:
        self._steps = steps
        self._told = told
        self.calls: list[dict[str, Any]] = []

    async def __call__(
        self,
        *,
        base_url: str,
        prompt: str | list[dict[str, Any]],
        request_kwargs: dict[str, Any],
        metadata: dict[str, Any],
    ) -> Told:
        self.calls.append(
            {
                "base_url": base_url,
                "prompt": prompt,
                "request_kwargs": request_kwargs,
                "metadata": metadata,
            }
        )
        async with openai.AsyncOpenAI(base_url=base_url, api_key="k", max_retries=0) as client:

            async def chat(*messages: Any) -> Any:
                completion = await client.chat.completions.create(
                    model="any", messages=messages, extra_body=request_kwargs
                )
                return completion.choices[0].message.model_dump(exclude_none=True)

            if self._steps is not None:
                await self._steps(chat)
        told: Told = self._told
        return told


def rollout(
    url: str,
    agent: agentic.AgentFunction,
    sample: Sample | None = None,
    params: Mapping[str, Any] | None = None,
    max_seq_len: int | None = None,
    client: type[SessionClient] = SessionClient,
) -> GenerateOutput[Sample]:
    """One rollout on the server at that URL."""
    given = GenerateInput(
        sample=sample or Sample(), sampling_params=params or {}, max_seq_len=max_seq_len
    )
    return asyncio.run(agentic.generate(given, sessions=lambda: client(url), agent=agent))


def one(output: GenerateOutput[Sample]) -> Sample:
    """The sample of an output that is not a list."""
    assert isinstance(output.samples, Sample)
    return output.samples


def nested(depth: int) -> Any:
    """Lists in one another."""
    found: Any = 1
    for _ in range(depth):
        found = [found]
    return found
