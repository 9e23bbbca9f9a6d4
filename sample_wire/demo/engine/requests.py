"""Requests in SGLang's form, read and checked: what to generate, and what to tell of it."""

from __future__ import annotations

import uuid
from typing import Any, Final, Literal, NamedTuple, TypeVar

import msgspec

from ...errors import SessionError
from .grammar import TOKENIZER, StructuralTag, read_structural_tag, structural_tag
from .sampling import SamplingParams, Size
from .settings import ModelSettings

ValueT = TypeVar("ValueT")


class BadRequestError(ValueError):
    """A request that is answered with HTTP 400."""


class _Function(msgspec.Struct):
    name: str
    parameters: dict[str, Any] | None = None


class NamedFunction(msgspec.Struct):
    """OpenAI's function tool, or a tool choice that names one."""

    function: _Function
    type: Literal["function"] = "function"


class Common(msgspec.Struct, kw_only=True):
    """What /generate and chat have in common; unknown keys are passed over, as SGLang does."""

    input_ids: list[Size] | None = None
    return_routed_experts: bool = False
    routed_experts_start_len: Size | None = None
    rid: str | None = None
    stream: bool | None = None


class GenerateRequest(Common, kw_only=True):
    """The body of POST /generate."""

    sampling_params: SamplingParams = SamplingParams()
    return_logprob: bool = False


class ChatRequest(Common, kw_only=True):
    """The body of POST /v1/chat/completions."""

    messages: list[dict[str, Any]] = []
    model: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Literal["auto", "none", "required"] | NamedFunction | None = None
    max_tokens: Size | None = None
    max_completion_tokens: Size | None = None
    min_tokens: Size | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    seed: int | None = None
    n: int | None = None
    ignore_eos: bool | None = None
    logit_bias: dict[str, float] | None = None
    no_stop_trim: bool | None = None
    skip_special_tokens: bool | None = None
    logprobs: bool | None = None
    return_meta_info: bool = False
    return_prompt_token_ids: bool = False


# Options that chat takes under the name they have among the sampling parameters.
_SAME_NAME: Final = {*SamplingParams.__struct_fields__} & {*ChatRequest.__struct_fields__}


class Job(NamedTuple):
    """What to generate, and which of it is asked for.

    Attributes:
        rid: the request's name.
        prompt: ids of the vocabulary.
        params, tag: as for Engine.generate.
        log_probs: whether they are told.
        start: the first routing row that is told, or None for none at all.
    """

    rid: str
    prompt: list[int]
    params: SamplingParams
    tag: StructuralTag | None
    log_probs: bool
    start: int | None


def parsed(text: bytes, kind: type[ValueT]) -> ValueT:
    """A request body.

    Raises:
        BadRequestError: no JSON, or a key is of another type.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadRequestError(str(error)) from None


def generate_job(request: GenerateRequest, settings: ModelSettings) -> Job:
    """The job of a /generate request.

    Raises:
        BadRequestError: it does not hold together, or asks for what the engine lacks.
    """
    if request.stream:
        raise BadRequestError("the embedded engine does not stream")
    if request.input_ids is None:
        raise BadRequestError("input_ids are needed: the embedded engine takes no text")
    text = request.sampling_params.structural_tag
    return _job(
        request,
        request.input_ids,
        request.sampling_params,
        None if text is None else _tag(text),
        request.return_logprob,
        settings,
    )


def chat_job(request: ChatRequest, settings: ModelSettings) -> Job:
    """The job of a chat request: its token ids if it brings them, else its messages rendered.

    Raises:
        BadRequestError: as for generate_job.
    """
    if request.stream and request.return_meta_info:
        raise BadRequestError(
            "return_meta_info is not supported with streaming. Please set stream=false when "
            "using return_meta_info=true."
        )
    if request.stream:
        raise BadRequestError("the embedded engine does not stream")
    given = {name: getattr(request, name) for name in _SAME_NAME} | {
        "sampling_seed": request.seed,
        "min_new_tokens": request.min_tokens,
    }
    options = {name: option for name, option in given.items() if option is not None}
    limit = request.max_completion_tokens
    options["max_new_tokens"] = request.max_tokens if limit is None else limit
    params = _converted(options, SamplingParams)
    tag = _chat_tag(request)
    prompt = _rendered(request) if request.input_ids is None else request.input_ids
    return _job(request, prompt, params, tag, bool(request.logprobs), settings)


def _converted(found: object, kind: type[ValueT]) -> ValueT:
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        raise BadRequestError(str(error)) from None


def _rendered(request: ChatRequest) -> list[int]:
    try:
        return TOKENIZER.render(request.messages, request.tools, {})
    except SessionError as error:
        raise BadRequestError(str(error)) from None


def _chat_tag(request: ChatRequest) -> StructuralTag | None:
    chosen = request.tool_choice
    tools = request.tools or []
    _converted(tools, list[NamedFunction])
    if isinstance(chosen, NamedFunction):
        tools = [tool for tool in tools if tool["function"]["name"] == chosen.function.name]
        if not tools:
            raise BadRequestError("tool_choice names a function that is not among the tools")
    if not tools or chosen == "none":
        return None
    required = chosen == "required" or isinstance(chosen, NamedFunction)
    try:
        return _tag(structural_tag(tools, required=required))
    except RecursionError:
        raise BadRequestError("tools must not be nested so deeply") from None


def _tag(text: str) -> StructuralTag:
    try:
        return read_structural_tag(text)
    except ValueError as error:
        raise BadRequestError(str(error)) from None


def _job(
    request: Common,
    prompt: list[int],
    params: SamplingParams,
    tag: StructuralTag | None,
    log_probs: bool,
    settings: ModelSettings,
) -> Job:
    if not prompt or max(prompt) >= TOKENIZER.num_ids:
        raise BadRequestError(f"input_ids must be one id or more, each below {TOKENIZER.num_ids}")
    num_tokens = len(prompt) + max(params.max_new_tokens or 0, 1)
    if num_tokens > settings.max_context:
        raise BadRequestError(
            f"the request is for {num_tokens} tokens in all, prompt and output; the context "
            f"has room for {settings.max_context}"
        )
    start = request.routed_experts_start_len or 0
    if start > len(prompt):
        raise BadRequestError(
            f"recv_req.routed_experts_start_len={start} is higher than the number of input tokens "
            f"len(req.origin_input_ids)={len(prompt)}. Please use a smaller "
            "routed_experts_start_len."
        )
    rid = uuid.uuid4().hex if request.rid is None else request.rid
    return Job(
        rid, prompt, params, tag, log_probs, start if request.return_routed_experts else None
    )
