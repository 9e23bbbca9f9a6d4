"""An agent with tools on the openai package, and the same tools for multi_turn."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import openai

from sample_wire import Sample
from sample_wire.rollout.agentic import AgentFunction

WEATHER: Final[dict[str, Any]] = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city", "days"],
        },
    },
}
CLOCK: Final[dict[str, Any]] = {
    "type": "function",
    "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}},
}
TOOLS: Final[Any] = [WEATHER, CLOCK]


def question(text: str = "What is the weather?", **fields: Any) -> Sample:
    """An input sample."""
    prompt = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
    return Sample(prompt=prompt, **fields)


async def run_tool(name: str, arguments: str) -> str:
    """What a tool says: the same for the same call."""
    return f"{name} of {json.dumps(json.loads(arguments), sort_keys=True)}: 21\u00b0"


def tool_agent(max_turns: int) -> AgentFunction:
    """An agent that answers tool calls until there are none, or no turn is left."""

    async def agent(
        *,
        base_url: str,
        prompt: str | list[dict[str, Any]],
        request_kwargs: dict[str, Any],
        metadata: dict[str, Any],  # noqa: ARG001
    ) -> Mapping[str, Any] | None:
        assert isinstance(prompt, list)
        messages: list[Any] = prompt
        async with openai.AsyncOpenAI(base_url=base_url, api_key="k", max_retries=0) as client:
            for turn in range(max_turns):
                completion = await client.chat.completions.create(
                    model="any", messages=messages, tools=TOOLS, extra_body=request_kwargs
                )
                (choice,) = completion.choices
                messages.append(choice.message.model_dump(exclude_none=True))
                for call in choice.message.tool_calls or ():
                    assert call.type == "function"
                    content = await run_tool(call.function.name, call.function.arguments)
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
                if not choice.message.tool_calls or choice.finish_reason == "length":
                    return {"turns": turn + 1}
        return {"turns": max_turns}

    return agent
