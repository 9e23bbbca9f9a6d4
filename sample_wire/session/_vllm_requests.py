"""Chat requests for vLLM's token-in endpoint, which takes ids and sampling parameters alone.

The endpoint ignores what it does not know, so nothing is passed on in the hope that it might:
a parameter of chat has its counterpart there, is done on this side, or is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec

from ..errors import SessionError
from .requests import IDS_KEY, START_KEY, bad_request

# Parameters with the same name and meaning in vLLM's sampling parameters.
_SAMPLING: Final = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "stop",
    "stop_token_ids",
    "ignore_eos",
    "min_tokens",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "allowed_token_ids",
    "bad_words",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "include_stop_str_in_output",
    "structured_outputs",
    "thinking_token_budget",
)
# Those that stand beside the sampling parameters.
_BESIDE: Final = ("model", "cache_salt", "priority", "kv_transfer_params")
# The newer name first: it wins, as in vLLM's chat.
_MAX_TOKENS: Final = ("max_completion_tokens", "max_tokens")
# What is done on this side.
_OURS: Final = (
    "messages",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "chat_template_kwargs",
    "response_format",
    "logprobs",
    "top_logprobs",
    "n",
    "stream",
    "stream_options",
)
# They tell a provider whose request it is, and change nothing in the reply.
_WITHOUT_EFFECT: Final = frozenset(
    ("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key")
)
_KNOWN: Final = frozenset((*_SAMPLING, *_BESIDE, *_MAX_TOKENS, *_OURS)) | _WITHOUT_EFFECT
_TOOL_CHOICES: Final = (None, "auto", "none")

_Count = Annotated[int, msgspec.Meta(ge=0)]
_StopText = Annotated[str, msgspec.Meta(min_length=1)]


class _JsonSchema(msgspec.Struct, frozen=True):
    schema: dict[str, Any]


class _ResponseFormat(msgspec.Struct, frozen=True):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: _JsonSchema | None = None


class Wishes(msgspec.Struct, frozen=True):
    """What of a chat request is done on this side; all else is for the engine to judge."""

    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    response_format: _ResponseFormat | None = None
    structured_outputs: Any = None
    logprobs: bool | None = None
    top_logprobs: _Count | None = None
    n: int | None = None
    stop: _StopText | list[_StopText] | None = None
    stop_token_ids: list[int] | None = None
    min_tokens: _Count | None = None
    skip_special_tokens: bool | None = None
    include_stop_str_in_output: bool | None = None

    @property
    def may_call_tools(self) -> bool:
        """Whether tool calls are read from the text."""
        return bool(self.tools) and self.tool_choice != "none"

    @property
    def stop_texts(self) -> Sequence[str]:
        """The texts that end the output."""
        return [self.stop] if isinstance(self.stop, str) else self.stop or ()


def wishes_of(request: Mapping[str, Any]) -> Wishes:
    """What a chat request wishes.

    Raises:
        SessionError: 400 "bad_request": one has a wrong type.
    """
    try:
        return msgspec.convert(request, Wishes)
    except msgspec.ValidationError as error:
        raise bad_request(f"a parameter has a wrong type: {error}") from None


def supported(body: Mapping[str, Any]) -> dict[str, Any]:
    """A client's request without its nulls and what has no effect.

    Raises:
        SessionError: 400 "bad_request", or "not_supported" for what the endpoint cannot do.
    """
    given = {name: value for name, value in body.items() if value is not None}
    for name in given:
        if name not in _KNOWN:
            raise _not_supported(f"{name!r:.60} is no parameter that it takes")
    wishes = wishes_of(given)
    if wishes.n not in (None, 1):
        raise _not_supported("n is 1: a turn has one answer")
    if wishes.tool_choice not in _TOOL_CHOICES:
        raise _not_supported("tool_choice is auto or none: no call can be forced")
    if wishes.tools and wishes.parallel_tool_calls is False:
        raise _not_supported("parallel_tool_calls is true: the number of calls cannot be limited")
    if wishes.top_logprobs and not wishes.logprobs:
        raise bad_request("top_logprobs needs logprobs")
    constraint = _constraint(wishes.response_format)
    if constraint and wishes.structured_outputs is not None:
        raise bad_request("response_format and structured_outputs exclude each other")
    return {name: value for name, value in given.items() if name not in _WITHOUT_EFFECT}


def generate_body(request: Mapping[str, Any]) -> dict[str, Any]:
    """What is posted for a kept request, which is `supported` and has its token ids.

    Without a limit of the client's own, `max_tokens` is null: as many tokens as the context
    has room for.  Left out, it would be 16.
    """
    wishes = wishes_of(request)
    sampling = {name: request[name] for name in _SAMPLING if name in request}
    sampling |= _constraint(wishes.response_format)
    sampling["max_tokens"] = next((request[key] for key in _MAX_TOKENS if key in request), None)
    sampling["logprobs"] = wishes.top_logprobs or 0  # 0: of the sampled token alone
    if START_KEY in request:
        sampling["routed_experts_prompt_start"] = request[START_KEY]
    beside = {name: request[name] for name in _BESIDE if name in request}
    return {**beside, "token_ids": request[IDS_KEY], "sampling_params": sampling}


def _constraint(wanted: _ResponseFormat | None) -> dict[str, Any]:
    """The sampling parameter that makes the output what a response format asks for."""
    if wanted is None or wanted.type == "text":
        return {}
    if wanted.type == "json_object":
        return {"structured_outputs": {"json_object": True}}
    if wanted.json_schema is None:
        raise bad_request("response_format has no json_schema")
    return {"structured_outputs": {"json": wanted.json_schema.schema}}


def _not_supported(why: str) -> SessionError:
    return SessionError(f"with vLLM, {why}", code="not_supported", http_status=400)
