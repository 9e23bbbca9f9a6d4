"""Random conversations, and what a model would write for their assistant's messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from sample_wire.session.tokenizer import TokenizerAdapter

Message = dict[str, Any]
TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]

# What tokenizers join or treat in a way of its own, and anything else.  NFC text without
# the opening of a marker: text that is its own rendering.
PIECES = st.sampled_from(
    [
        "hello",
        " the",
        "\n",
        "\n\n",
        "  ",
        "\t",
        "10.5",
        "'s",
        "\u6771\u4eac",
        "\u00e9",
        "\U0001f600",
        "{}",
        " ",
    ]
)
WORDS = st.lists(PIECES, max_size=6).map("".join)
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<["), max_size=8)
TEXTS = WORDS | ANY_TEXT
ARGUMENTS = st.dictionaries(st.sampled_from(["city", "limit"]), st.integers(-9, 99) | WORDS)


def _call(arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": "look_up", "arguments": json.dumps(arguments)}
    return {"id": "call_1", "type": "function", "function": function}


def _said(content: str, calls: list[dict[str, Any]]) -> Message:
    return {"role": "assistant", "content": content} | ({"tool_calls": calls} if calls else {})


def _message(role: str) -> st.SearchStrategy[Message]:
    return TEXTS.map(lambda content: {"role": role, "content": content})


SAID = st.builds(_said, TEXTS, st.lists(ARGUMENTS.map(_call), max_size=2))
ASKED = st.sampled_from(["user", "tool", "system"]).flatmap(_message)
FOLLOWING = st.lists(ASKED, max_size=3)


@dataclass(frozen=True)
class Talk:
    """A conversation: what is asked first, then answers and what follows each."""

    first: list[Message]
    turns: list[tuple[Message, list[Message]]]
    tools: list[Any] | None


TALKS = st.builds(
    Talk,
    st.lists(_message("system"), max_size=1).flatmap(
        lambda head: st.lists(_message("user"), min_size=1, max_size=2).map(lambda u: head + u)
    ),
    st.lists(st.tuples(SAID, FOLLOWING), min_size=1, max_size=4),
    st.sampled_from([None, TOOLS]),
)


def qwen3_reply(message: Message) -> str:
    """What a model writes for a message under the Qwen3 template of these tests."""
    text = str(message["content"])
    for call in message.get("tool_calls", ()):
        function = call["function"]
        text += "\n" if text else ""
        text += f'<tool_call>\n{{"name": "{function["name"]}", "arguments": '
        text += json.dumps(json.loads(function["arguments"]), ensure_ascii=False)
        text += "}\n</tool_call>"
    return text + "<|im_end|>"


def glm_reply(message: Message) -> str:
    """The same under the GLM-like template, without the token that ends the turn.

    The prompt has opened the reasoning already; the template keeps an empty one closed only.
    """
    text = "</think>" + str(message["content"])
    for call in message.get("tool_calls", ()):
        function = call["function"]
        text += f"<tool_call>{function['name']}"
        for key, value in json.loads(function["arguments"]).items():
            shown = value if isinstance(value, str) else json.dumps(value)
            text += f"<arg_key>{key}</arg_key><arg_value>{shown}</arg_value>"
        text += "</tool_call>"
    return text


@dataclass(frozen=True)
class Step:
    """One turn as it was built: what stood before, and the prompt made from it."""

    messages: list[Message]
    checkpoint: list[int]
    num_kept: int
    prompt: list[int]


def played(
    talk: Talk,
    tokenizer: TokenizerAdapter,
    written: Callable[[Message], list[int]],
    kwargs: dict[str, Any] | None = None,
) -> list[Step]:
    """Plays a conversation turn by turn, each prompt appended to the one before.

    Args:
        written: the ids that the model writes for a message.
    """
    effective = tokenizer.template_kwargs(kwargs)
    messages = list(talk.first)
    prompt = tokenizer.render(messages, talk.tools, effective)
    steps = []
    for reply, following in talk.turns:
        checkpoint = prompt + written(reply)
        stored = [*messages, reply]
        num_kept, tail = tokenizer.append(checkpoint, stored, following, talk.tools, effective)
        prompt = checkpoint[:num_kept] + tail
        messages = [*stored, *following]
        steps.append(Step(messages, checkpoint, num_kept, prompt))
    return steps


def appended_to(
    tokenizer: TokenizerAdapter,
    checkpoint: Sequence[int],
    stored: Sequence[Message],
    following: Sequence[Message],
    **kwargs: object,
) -> list[int]:
    """The whole prompt that `append` makes."""
    effective = tokenizer.template_kwargs(kwargs)
    num_kept, tail = tokenizer.append(checkpoint, stored, following, None, effective)
    return [*checkpoint[:num_kept], *tail]
