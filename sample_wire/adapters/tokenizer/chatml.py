"""Byte-level ChatML: a tokenizer for tests and demonstrations that needs no files.

Ids 0 to 255 are bytes of UTF-8, the ids after them the four markers.  Since content is always
bytes, no message can write a marker, and since a message renders to the same ids wherever it
stands, prompts that were appended to equal prompts rendered anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ._families import APPEND_ROLES, Boundary, Family, TemplateKwargs
from ._messages import bad_messages, plain_messages, plain_tools
from ._mismatch import IdComparison

Message = Mapping[str, Any]

NUM_BYTES: Final = 256
MARKERS: Final = ("<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>")
IM_START: Final = NUM_BYTES
IM_END: Final = NUM_BYTES + 1
TOOL_CALL: Final = NUM_BYTES + 2
END_TOOL_CALL: Final = NUM_BYTES + 3
NEWLINE: Final = 0x0A

_ID_OF_MARKER: Final = {marker: NUM_BYTES + at for at, marker in enumerate(MARKERS)}
_SPLIT_AT_MARKERS: Final = re.compile("(" + "|".join(map(re.escape, MARKERS)) + ")")
_UNKNOWN: Final = "\ufffd"
_TOOLS_INTRODUCTION: Final = (
    "You can call functions. To call one, write its name and arguments as JSON in a tool call:\n"
    '{"name": <name>, "arguments": <object>}\n'
    "These are the functions:\n"
)


class ByteChatML:
    """Tokenizes conversations as ChatML, byte by byte, tool calls in the Hermes form.

    Args:
        template_kwargs: kept and handed out like those of any tokenizer; this template reads none.

    Attributes:
        max_trim_tokens: 0.
        allowed_append_roles: roles of messages that may follow a generated turn.
        num_ids: how many ids there are.
    """

    max_trim_tokens = 0
    allowed_append_roles = APPEND_ROLES
    num_ids = NUM_BYTES + len(MARKERS)

    def __init__(self, *, template_kwargs: Mapping[str, Any] | None = None) -> None:
        self._kwargs = TemplateKwargs(Family("chatml"), template_kwargs, frozenset())
        self._boundary = Boundary({IM_END: NEWLINE})
        self._comparison = IdComparison(
            decode=self.decode,
            special_ids=range(NUM_BYTES, self.num_ids),
            openings={IM_START: None},
            trailing_ids=self._boundary.trailing_ids,
        )

    def template_kwargs(self, request_kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
        """The launch arguments, overlaid by a request's.

        Raises:
            SessionError: 400 "template_kwargs": no object.
        """
        return self._kwargs.overlaid(request_kwargs)

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Any] | None,
        kwargs: Mapping[str, Any],  # noqa: ARG002 (the protocol's; this template reads none)
    ) -> list[int]:
        """The ids of a whole conversation and the opening of the assistant's next turn.

        Raises:
            SessionError: 400 "bad_messages".
        """
        if not messages:
            raise bad_messages("messages must not be empty")
        return self._conversation(messages, tools) + _opening("assistant")

    def append(
        self,
        checkpoint_ids: Sequence[int],
        stored: Sequence[Message],  # noqa: ARG002 (the protocol's)
        appended: Sequence[Message],
        tools: Sequence[Any] | None,  # noqa: ARG002
        kwargs: Mapping[str, Any],  # noqa: ARG002
    ) -> tuple[int, list[int]]:
        """(num_kept, tail_ids): the next prompt is the kept checkpoint ids, then the tail.

        Args:
            checkpoint_ids: prompt and output of the last turn.
            appended: the messages after the generated one, maybe none.

        Raises:
            SessionError: 400 "bad_messages".
        """
        tail = [token_id for message in plain_messages(appended) for token_id in _message(message)]
        return self._boundary.join(checkpoint_ids, tail + _opening("assistant"))

    def encode(self, text: str) -> list[int]:
        """The ids of a text, markers in it as their own ids: what a model would have written."""
        parts = _SPLIT_AT_MARKERS.split(text)
        return [
            token_id
            for part in parts
            for token_id in ([_ID_OF_MARKER[part]] if part in _ID_OF_MARKER else _bytes(part))
        ]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, markers kept; bytes that are no UTF-8 and unknown ids as U+FFFD."""
        array = np.asarray(ids, dtype=np.int64)
        parts, start = [], 0
        for mark in np.flatnonzero((array < 0) | (array >= NUM_BYTES)).tolist():
            parts += [_text(array[start:mark]), self._marker(int(array[mark]))]
            start = mark + 1
        return "".join([*parts, _text(array[start:])])

    def decode_message(self, ids: Sequence[int]) -> str:
        """The text of a generated turn: as `decode`, without the marks of turns."""
        return self.decode([token_id for token_id in ids if token_id not in (IM_START, IM_END)])

    def mismatch(
        self,
        messages: Sequence[Message],
        tools: Sequence[Any] | None,
        kwargs: Mapping[str, Any],  # noqa: ARG002
        ids: Sequence[int],
    ) -> list[dict[str, Any]]:
        """Where ids differ from the messages rendered anew, as IdComparison.differences.

        Raises:
            SessionError: 400 "bad_messages".
        """
        return self._comparison.differences(self._conversation(messages, tools), ids)

    def _conversation(self, messages: Sequence[Message], tools: Sequence[Any] | None) -> list[int]:
        plain, described = plain_messages(messages), plain_tools(tools)
        if described:
            plain = _with_tools(plain, described)
        return [token_id for message in plain for token_id in _message(message)]

    def _marker(self, token_id: int) -> str:
        return MARKERS[token_id - NUM_BYTES] if NUM_BYTES <= token_id < self.num_ids else _UNKNOWN


def _with_tools(messages: list[dict[str, Any]], tools: Sequence[Any]) -> list[dict[str, Any]]:
    """The tools written behind the leading system message, or into one of their own."""
    text = _TOOLS_INTRODUCTION + "\n".join(map(_json, tools))
    if messages and messages[0]["role"] == "system":
        content = "\n\n".join(filter(None, (messages[0]["content"], text)))
        return [{"role": "system", "content": content}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


def _message(message: Mapping[str, Any]) -> list[int]:
    role = message["role"]
    body = {"assistant": _assistant, "tool": _tool}.get(role, _content)(message)
    return [*_opening(role), *body, IM_END, NEWLINE]


def _content(message: Mapping[str, Any]) -> list[int]:
    return _bytes(message["content"])


def _tool(message: Mapping[str, Any]) -> list[int]:
    return _bytes(f"<tool_response>\n{message['content']}\n</tool_response>")


def _assistant(message: Mapping[str, Any]) -> list[int]:
    reasoning = message.get("reasoning_content")
    thought = f"<think>\n{reasoning}\n</think>\n\n" if reasoning else ""
    ids = _bytes(thought + message["content"])
    for call in message.get("tool_calls") or ():
        separator = [NEWLINE] if ids else []
        ids += [*separator, TOOL_CALL, *_bytes(_call_text(call)), END_TOOL_CALL]
    return ids


def _call_text(call: Any) -> str:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise bad_messages("a tool call must have a function with a name")
    called = {"name": function["name"], "arguments": function["arguments"]}
    return f"\n{_json(called)}\n"


def _opening(role: str) -> list[int]:
    return [IM_START, *_bytes(role), NEWLINE]


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError as error:
        raise bad_messages("tools and arguments must not be nested so deeply") from error


def _text(byte_ids: npt.NDArray[np.int64]) -> str:
    return byte_ids.astype(np.uint8).tobytes().decode(errors="replace")


def _bytes(text: str) -> list[int]:
    try:
        return list(text.encode())
    except UnicodeEncodeError as error:
        raise bad_messages("the messages are not valid Unicode") from error
