"""Tool calls under a grammar, and the rule that says when the embedded model makes one.

A grammar is asked for as in SGLang: a structural tag, which opens with a trigger and goes on by
a schema.  Chat makes one of the request's tools, /generate takes one in its sampling
parameters, so that both generate alike.  Whether the trigger is written is, in a trained model,
the model's choice; random weights cannot make it, so a rule on the prompt's ids stands in.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np

from ...adapters.tokenizer.chatml import IM_END, IM_START, NEWLINE, TOOL_CALL, ByteChatML
from .schema import BLANK, DIGITS, LETTERS, Grammar, Schema, literal, one_of, value
from .settings import EngineSettings

_TRIGGER: Final = "<tool_call>"
_ASSISTANT: Final = (IM_START, *b"assistant\n")
_MAX_DEPTH: Final = 64  # each level is a frame of Python's stack
_MIN_THOUGHT: Final = 8
_MAX_THOUGHT: Final = 40
TOKENIZER: Final = ByteChatML()


class _Content(msgspec.Struct):
    json_schema: Schema
    type: Literal["json_schema"] = "json_schema"


class _Tag(msgspec.Struct):
    begin: Annotated[str, msgspec.Meta(min_length=1)]
    content: _Content
    end: Annotated[str, msgspec.Meta(min_length=1)]


class _Format(msgspec.Struct):
    tags: Annotated[list[_Tag], msgspec.Meta(min_length=1)]
    triggers: list[str]
    type: Literal["triggered_tags"] = "triggered_tags"
    at_least_one: bool = False


class StructuralTag(msgspec.Struct):
    """A structural tag as SGLang takes it, with tags that a trigger opens."""

    format: _Format
    type: Literal["structural_tag"] = "structural_tag"


def structural_tag(tools: Sequence[Mapping[str, Any]], *, required: bool = False) -> str:
    """The grammar of tool calls in the Hermes form, for `sampling_params.structural_tag`.

    Args:
        tools: OpenAI's function tools.
        required: whether there must be a call, whatever the model would like.
    """
    tags = [
        {
            "begin": f'{_TRIGGER}\n{{"name": {_json(tool["function"]["name"])}, "arguments": ',
            "content": {
                "type": "json_schema",
                "json_schema": tool["function"].get("parameters") or {"type": "object"},
            },
            "end": "}\n</tool_call>",
        }
        for tool in tools
    ]
    inner = {
        "type": "triggered_tags",
        "triggers": [_TRIGGER],
        "tags": tags,
        "at_least_one": required,
        "stop_after_first": True,
    }
    return _json({"type": "structural_tag", "format": inner})


def read_structural_tag(text: str) -> StructuralTag:
    """Reads a structural tag.

    Raises:
        ValueError: no JSON, another form, or a schema that there is no grammar for.
    """
    try:
        tag = msgspec.json.decode(text, type=StructuralTag)
        depth = max(one.content.json_schema.depth() for one in tag.format.tags)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"structural_tag: {error}") from None
    if depth > _MAX_DEPTH:
        raise ValueError(f"structural_tag: a schema is nested more than {_MAX_DEPTH} levels deep")
    return tag


def turn_grammar(
    settings: EngineSettings, tag: StructuralTag, prompt: Sequence[int]
) -> Grammar | None:
    """The grammar of a turn that calls a tool; None where the turn answers.

    A conversation makes as many calls as its opening says, the ids up to the assistant's first
    turn, and then answers.  Some of the calls have text before them.
    """
    opening = np.array(prompt[: _opening_size(prompt)], np.int32).tobytes()
    number = list(prompt).count(TOOL_CALL)
    num_choices = settings.max_tool_calls - settings.min_tool_calls + 1
    num_calls = settings.min_tool_calls + zlib.crc32(opening, settings.seed) % num_choices
    if number >= num_calls and not tag.format.at_least_one:
        return None
    return _call(tag, has_thought=bool(zlib.crc32(opening, number) % 2))


def _opening_size(prompt: Sequence[int]) -> int:
    size = len(_ASSISTANT)
    for at, token_id in enumerate(prompt):
        if token_id == IM_START and tuple(prompt[at : at + size]) == _ASSISTANT:
            return at + size
    return len(prompt)


def _call(tag: StructuralTag, *, has_thought: bool) -> Grammar:
    if has_thought:
        yield from _thought()
    tags = tag.format.tags
    called = tags[(yield from one_of([TOKENIZER.encode(one.begin) for one in tags]))]
    end = TOKENIZER.encode(called.end)
    yield from value(called.content.json_schema, frozenset(end[:1]))
    yield from literal([*end[1:], IM_END])


def _thought() -> Grammar:
    """A line of text, with blanks only between words."""
    word = LETTERS | DIGITS
    came = yield word
    for size in range(1, _MAX_THOUGHT):
        nexts = word if came == BLANK else word | {BLANK}
        if size >= _MIN_THOUGHT and came != BLANK:
            nexts |= {NEWLINE}
        came = yield nexts
        if came == NEWLINE:
            return
    if came == BLANK:
        yield word
    yield frozenset([NEWLINE])


def _json(found: object) -> str:
    return json.dumps(found, ensure_ascii=False)
