"""multi_turn.generate: a conversation with tools, held here, on an engine's /generate.

The sample is assembled from the turns as a session's is, by the same code: the same
conversation gives the same sample by either way.  It ends with the last completion, also where
a tool was called last: no engine has seen what that tool said, so nobody has routing for it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np

from ..assembly import RoutingSpec, Turn, TurnReader, assemble_turns
from ..assembly.routing import DecodeBase64, strict_base64
from ..assembly.samples import extra_fields
from ..codec import decode_samples, encode_samples
from ..errors import AssemblyError, TemplateError
from ..sample import Sample, Status
from ..schema import Schema, schema_of
from ..session import TokenizerAdapter
from ..session.requests import START_KEY
from ..session.tool_calls import ParsedText, parse_hermes
from .types import GenerateInput, GenerateOutput, SampleT


class EngineClient(Protocol):
    """An engine; `adapters.engine_client.HttpEngine` is one."""

    async def generate(self, body: Mapping[str, Any]) -> bytes | bytearray:
        """The reply to a /generate request, a 200, as it came.

        Raises:
            ClientError: there is none.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The tools of a conversation.

    Args:
        definitions: as in a chat request: {"type": "function", "function": {...}}.
        run: given a function's name and the JSON text of its arguments, an object as the model
            wrote it, says what the model is told.  What it raises ends the rollout.
        parse: finds the calls in a completion's text.
    """

    definitions: Sequence[Mapping[str, Any]]
    run: Callable[[str, str], Awaitable[str]]
    parse: Callable[[str], ParsedText] = parse_hermes


async def generate(
    given: GenerateInput[SampleT],
    *,
    engine: EngineClient,
    tokenizer: TokenizerAdapter,
    max_turns: int,
    tools: Tools | None = None,
    routing: RoutingSpec | None = None,
    decode_base64: DecodeBase64 = strict_base64,
) -> GenerateOutput[SampleT]:
    """The sample of one conversation with an engine.

    It goes on until a completion calls no tool or did not complete, max_turns are made, or a
    prompt leaves no room in max_seq_len.  Calls are run one after another, also those of the
    last turn.

    Args:
        given: its prompt is a list of messages, and its sampling_params go to the engine, but
            that max_new_tokens is never more than max_seq_len leaves.
        engine, tokenizer: of one model.
        max_turns: completions to ask for, at most.
        tools: None for a single turn.
        routing: shape and form of the engine's routing arrays; None asks for none.
        decode_base64: as for assemble.

    Returns:
        One sample, all turns merged.  Truncated where there was no room for a turn; a first
        prompt without room gives a sample of that prompt alone, with no response or routing.

    Raises:
        TypeError, ValueError: max_turns below 1, a prompt that is no list of messages, or
            neither max_new_tokens nor max_seq_len: engines then stop where it suits them.
        TemplateError: the input sample has a response already; there are no partial rollouts.
        SessionError: the tokenizer refuses the messages.
        ClientError: the engine gave no reply.
        AssemblyError: its reply is malformed; names the turn.

    Cost: a reply is read at once, between two awaits.  Where routing covers long prompts, an
    incremental `routing` keeps that short, and `adapters.engines.fast_base64()` helps.
    """
    _check(given, max_turns)
    conversation = _Conversation(given.sample, tokenizer, tools, routing, decode_base64)
    for _ in range(max_turns):
        prompt = conversation.prompt()
        room = _room(given, len(prompt))
        if room <= 0:
            return GenerateOutput(conversation.sample(given, ended_by=prompt))
        body = conversation.request(prompt, _sampling_params(given, room))
        asked = time.time()
        calls = conversation.take(body, await engine.generate(body), asked)
        if not calls:
            break
        for call in calls:
            await conversation.run(call)
    return GenerateOutput(conversation.sample(given))


def _check(given: GenerateInput[SampleT], max_turns: int) -> None:
    """Refuses what cannot be generated, before anything is."""
    if type(max_turns) is not int or max_turns < 1:
        raise ValueError(f"max_turns is an integer of at least 1, not {max_turns!r}")
    if not isinstance(given.sample.prompt, list) or not given.sample.prompt:
        raise TypeError("multi_turn needs a prompt that is a list of messages")
    limit = given.sampling_params.get("max_new_tokens")
    if limit is None and given.max_seq_len is None:
        raise ValueError("multi_turn needs sampling_params.max_new_tokens or max_seq_len")
    if limit is not None and type(limit) is not int:
        raise TypeError("sampling_params.max_new_tokens is an integer or None")
    if given.sample.response or given.sample.response_length or len(given.sample.tokens):
        raise TemplateError("the sample has a response already: there are no partial rollouts")


def _room(given: GenerateInput[SampleT], num_prompt: int) -> int:
    """How many tokens the next completion may have."""
    limit: int | None = given.sampling_params.get("max_new_tokens")
    if given.max_seq_len is None:
        assert limit is not None  # _check asked for one of the two
        return limit
    left = given.max_seq_len - num_prompt
    return left if limit is None else min(limit, left)


def _sampling_params(given: GenerateInput[SampleT], room: int) -> dict[str, Any]:
    """What the engine is told; a parameter that is None is left to it."""
    told = {key: value for key, value in given.sampling_params.items() if value is not None}
    return told | {"max_new_tokens": room}


class _Conversation:
    """One conversation: its messages, and the turns that were read of it."""

    def __init__(
        self,
        sample: Sample,
        tokenizer: TokenizerAdapter,
        tools: Tools | None,
        routing: RoutingSpec | None,
        decode_base64: DecodeBase64,
    ) -> None:
        self._schema: Schema = schema_of(type(sample))
        self._tokenizer = tokenizer
        self._tools = tools
        self._definitions = list(tools.definitions) if tools is not None else None
        self._kwargs = tokenizer.template_kwargs(None)
        self._routing = routing
        self._reader = TurnReader(
            routing=routing,
            decode_text=tokenizer.decode,
            extras=extra_fields(self._schema),
            decode_base64=decode_base64,
        )
        self._turns: list[Turn] = []
        self._stored: list[Mapping[str, Any]] = []
        self._appended: list[Mapping[str, Any]] = [*cast(list[Any], sample.prompt)]

    def prompt(self) -> list[int]:
        """The ids of the next prompt; those of earlier turns are never made again."""
        held = self._held()
        if not held:
            return self._tokenizer.render(self._appended, self._definitions, self._kwargs)
        num_kept, tail = self._tokenizer.append(
            held, self._stored, self._appended, self._definitions, self._kwargs
        )
        return [*held[:num_kept], *tail]

    def request(self, prompt: list[int], sampling_params: dict[str, Any]) -> dict[str, Any]:
        """The body of the next /generate request."""
        body = {"input_ids": prompt, "sampling_params": sampling_params, "return_logprob": True}
        if self._routing is not None:
            body["return_routed_experts"] = True
            if self._routing.incremental:
                body[START_KEY] = max(len(self._held()) - 1, 0)
        return body

    def take(
        self, body: Mapping[str, Any], reply: bytes | bytearray, asked: float
    ) -> list[dict[str, Any]]:
        """Reads a turn; gives the tool calls with which the conversation goes on."""
        record = {
            "request": body,
            "response": reply,
            "timestamp": time.time(),
            "request_timestamp": asked,
        }
        turn = self._reader.read(record, self._turns[-1] if self._turns else None)
        self._turns.append(turn)
        if self._tools is None or turn.status is not Status.COMPLETED:
            return []
        text = (turn.message or {}).get("content")
        if not isinstance(text, str):
            raise AssemblyError("the reply has no text", turn=turn.number, field="text")
        content, calls = self._tools.parse(text)
        if not all(isinstance(call.get("function"), Mapping) and "id" in call for call in calls):
            raise TypeError("parse gave a tool call without an id or a function")
        said = {"role": "assistant", "content": content, "tool_calls": calls}
        self._stored += [*self._appended, said]
        self._appended = []
        return calls

    async def run(self, call: Mapping[str, Any]) -> None:
        """Runs a tool call; what it says will be in the next prompt."""
        assert self._tools is not None
        function = call["function"]
        output: object = await self._tools.run(function["name"], function["arguments"])
        if not isinstance(output, str):
            raise TypeError(f"tool {function['name']} gave a {type(output).__name__}, not text")
        self._appended.append({"role": "tool", "tool_call_id": call["id"], "content": output})

    def sample(
        self, given: GenerateInput[SampleT], *, ended_by: Sequence[int] | None = None
    ) -> SampleT:
        """The sample of all turns over a copy of the input.

        Args:
            ended_by: the prompt that left no room for its turn; None where none did.
        """
        made = self._assembled(given.max_seq_len) if self._turns else self._alone(ended_by)
        if ended_by is not None:
            made.status = Status.TRUNCATED
        payload = encode_samples([made], schema=self._schema)
        return decode_samples(payload, given.sample, schema=self._schema).samples[0]

    def _assembled(self, max_seq_len: int | None) -> Any:
        """Of all turns; cut where an engine said more than it was asked for."""
        result = assemble_turns(
            self._turns,
            accumulated_token_ids=None,
            max_trim_tokens=self._tokenizer.max_trim_tokens,
            decode_text=self._tokenizer.decode,
            max_seq_len=max_seq_len,
            routing=self._routing,
            schema=self._schema,
        )
        return result.samples[0]

    def _alone(self, prompt: Sequence[int] | None) -> Any:
        return self._schema.sample_type(
            tokens=np.asarray(prompt, np.int64),
            loss_mask=np.empty(0, np.uint8),
            rollout_log_probs=np.empty(0, np.float64),
        )

    def _held(self) -> list[int]:
        """Prompt and output ids of the last turn."""
        if not self._turns:
            return []
        ids: list[int] = self._turns[-1].tokens.to_array(np.int64).tolist()
        return ids
