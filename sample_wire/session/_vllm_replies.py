"""Replies of vLLM's token-in endpoint, told as chat completions: the endpoint gives ids alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ..assembly import Turn
from ..sample import Status
from ._vllm_requests import Wishes
from .replies import HeldReply, bad_reply, first_choice
from .tokenizer import TokenizerAdapter
from .tool_calls import parse_hermes

# How the endpoint spells tokens.  Nine digits at most: any tokenizer takes such an id.
_TOKEN: Final = re.compile(r"token_id:(\d{1,9})")


class _Token(msgspec.Struct):
    token: str = ""
    logprob: float | None = None


class _Content(_Token):
    top_logprobs: list[_Token] | None = None


class _LogProbs(msgspec.Struct):
    content: list[_Content]


class _Choice(msgspec.Struct):
    token_ids: list[int]
    logprobs: _LogProbs
    finish_reason: str | None = None


class _Reply(msgspec.Struct):
    choices: list[_Choice]
    request_id: str | None = None
    created: int | None = None
    model: str | None = None
    usage: dict[str, Any] | None = None


def check_generated(body: Any) -> None:
    """Passes for a reply with token ids, log-probs, and nothing of a wrong type.

    Raises:
        SessionError: 502 "bad_engine_reply".
    """
    if "meta_info" in first_choice(body):
        raise bad_reply("it has meta_info, which vLLM does not tell")
    try:
        msgspec.convert(body, _Reply)
    except msgspec.ValidationError as error:
        raise bad_reply(str(error)) from None


def message_of(turn: Turn, wishes: Wishes, tokenizer: TokenizerAdapter) -> dict[str, Any]:
    """What the assistant said: the text, and the tool calls that are written in it.

    The content is never null, also where tool calls are all that was said.
    """
    text = _text(turn, wishes, tokenizer)
    if not wishes.may_call_tools:
        return {"role": "assistant", "content": text}
    content, calls = parse_hermes(text)
    return {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}


def completion_of(
    reply: HeldReply,
    turn: Turn,
    wishes: Wishes,
    tokenizer: TokenizerAdapter,
    *,
    model: str | None,
) -> dict[str, Any]:
    """The chat completion of a committed turn.

    Args:
        model: the one that was asked for, should the reply not name it.
    """
    body = msgspec.convert(reply.bare_body(), _Reply)
    choice = body.choices[0]
    assert turn.message is not None
    called = "tool_calls" in turn.message and choice.finish_reason == "stop"
    shown = _log_probs(choice, wishes.top_logprobs or 0, tokenizer) if wishes.logprobs else None
    return {
        "id": body.request_id or "",
        "object": "chat.completion",
        "created": int(turn.timestamp or 0) if body.created is None else body.created,
        "model": body.model or model or "",
        "choices": [
            {
                "index": 0,
                "message": turn.message,
                "logprobs": shown,
                "finish_reason": "tool_calls" if called else choice.finish_reason,
            }
        ],
        "usage": {
            **(body.usage or {}),
            "prompt_tokens": turn.num_prompt,
            "completion_tokens": turn.num_output,
            "total_tokens": turn.num_tokens,
        },
    }


def _text(turn: Turn, wishes: Wishes, tokenizer: TokenizerAdapter) -> str:
    """The text of a turn, without what ended it unless that is asked for."""
    keeps_special = wishes.skip_special_tokens is False
    decode = tokenizer.decode if keeps_special else tokenizer.decode_message
    ids = turn.output_ids(turn.num_output)
    if turn.status is not Status.COMPLETED or wishes.include_stop_str_in_output:
        return decode(ids)
    if ids and (ids[-1] in (wishes.stop_token_ids or ()) or not tokenizer.decode_message(ids[-1:])):
        ids = ids[:-1]
    text = decode(ids)
    # A stop text that ends before min_tokens are out stops nothing.
    start = len(decode(ids[: wishes.min_tokens])) if wishes.min_tokens else 0
    return text[: _first_of(wishes.stop_texts, text, start)]


def _first_of(wanted: Sequence[str], text: str, start: int) -> int:
    """Where the first of these texts that end behind start begins, or the length of the text."""
    found = [text.find(one, max(start + 1 - len(one), 0)) for one in wanted]
    return min((at for at in found if at >= 0), default=len(text))


def _log_probs(choice: _Choice, num_top: int, tokenizer: TokenizerAdapter) -> dict[str, Any]:
    texts: dict[str, str] = {}  # a reply of thousands of tokens names few of them, often
    content = [
        {
            **_told(entry, texts, tokenizer),
            "top_logprobs": [_told(top, texts, tokenizer) for top in tops],
        }
        for entry in choice.logprobs.content
        for tops in [(entry.top_logprobs or [])[:num_top]]
    ]
    return {"content": content, "refusal": None}


def _told(entry: _Token, texts: dict[str, str], tokenizer: TokenizerAdapter) -> dict[str, Any]:
    """A token by its text; bytes are null where the text is not the whole of a character.

    Args:
        texts: of the tokens that were told before, by their names.
    """
    if entry.token not in texts:
        named = _TOKEN.fullmatch(entry.token)
        texts[entry.token] = entry.token if named is None else tokenizer.decode([int(named[1])])
    text = texts[entry.token]
    whole = "\ufffd" not in text
    return {
        "token": text,
        "logprob": entry.logprob,
        "bytes": list(text.encode()) if whole else None,
    }
