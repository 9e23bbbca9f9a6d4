"""Tool calls that a model writes into its text, read into OpenAI's form.

A call that is not whole is no call: then the text stays what it is, so that nothing a model
said is lost or guessed at.
"""

from __future__ import annotations

import uuid
from typing import Any, Final, NamedTuple

import msgspec

from .._json import MAX_JSON_DEPTH, exceeds_depth

_OPENING: Final = "<tool_call>"
_CLOSING: Final = "</tool_call>"


class ParsedText(NamedTuple):
    """The content and the tool calls of an assistant's message."""

    content: str
    tool_calls: list[dict[str, Any]]


# In a chat request a call's arguments lie as text, in a rendered prompt as an object in a list.
_MAX_DEPTH: Final = MAX_JSON_DEPTH - 8


class _Call(msgspec.Struct):
    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


def parse_hermes(text: str) -> ParsedText:
    """Reads `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, the form of Hermes.

    Args:
        text: an assistant's text without the marker that ends its turn.

    Returns:
        The text around the calls, stripped, and the calls in order: {"id", "type": "function",
        "function": {"name", "arguments"}}, where the arguments are the object's JSON text as the
        model wrote it, "{}" where it wrote none, and ids are new each time.  The text unchanged
        and no calls, where there are none or one of them is not whole: not closed, not JSON,
        without a name, or with arguments that are no object.

    Cost: linear in the text.
    """
    head, *pieces = text.split(_OPENING)
    around, calls = [head], []
    for piece in pieces:
        inside, closing, after = piece.partition(_CLOSING)
        call = _read(inside) if closing else None
        if call is None:
            return ParsedText(text, [])
        calls.append(call)
        around.append(after)
    if not calls:
        return ParsedText(text, [])
    return ParsedText("".join(around).strip(), calls)


def _read(inside: str) -> dict[str, Any] | None:
    """One call in OpenAI's form, or None where it is none.

    One that nests too deep is none: the request that it comes back in would be refused.
    """
    if exceeds_depth(inside.encode("utf-8", "replace"), _MAX_DEPTH):
        return None
    try:
        call = msgspec.json.decode(inside, type=_Call)
        arguments = bytes(call.arguments).decode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    if not arguments.startswith("{"):
        return None
    return {
        "id": f"call_{uuid.uuid4().hex}",
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }
