"""Messages as chat templates expect them, from messages as OpenAI clients send them.

Clients spell one thing in several ways, and templates know one of them: some drop a list of
text parts without a word, most write None for a null content, and all want the arguments of a
tool call as an object, not as JSON text.  The engines do the same before they render.  Nothing
else in a message is touched.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..._json import MAX_JSON_VALUES, exceeds_values
from ...errors import SessionError


def plain_messages(messages: Iterable[object]) -> list[dict[str, Any]]:
    """Copies of messages with text content and parsed tool call arguments.

    Args:
        messages: objects with a `role`.  Content null, absent or [] becomes "", a list of text
            parts their joined text.

    Raises:
        SessionError: 400 "bad_messages": no object, no role, or content that is no text.
    """
    return [_plain(message, f"messages[{at}]") for at, message in enumerate(messages)]


def plain_tools(tools: object) -> list[Any] | None:
    """The tools as templates expect them: a list of objects, or None for none.

    Raises:
        SessionError: 400 "bad_messages": something else.
    """
    if tools is None:
        return None
    if not isinstance(tools, Sequence) or not all(isinstance(tool, Mapping) for tool in tools):
        raise bad_messages("tools must be a list of objects")
    return list(tools) or None


def bad_messages(fault: str) -> SessionError:
    """The refusal of messages of a wrong form."""
    return SessionError(fault, code="bad_messages", http_status=400)


def _plain(message: object, where: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise bad_messages(f"{where} must be an object, not {type(message).__name__}")
    if not isinstance(message.get("role"), str):
        raise bad_messages(f"{where} must have a role")
    plain = {**message, "content": _text(message.get("content"), where)}
    calls = plain.pop("tool_calls", None)
    if calls is None:
        return plain
    if not isinstance(calls, list):
        raise bad_messages(f"{where}: tool_calls must be a list, not {type(calls).__name__}")
    return plain | {"tool_calls": [_plain_call(call) for call in calls]}


def _text(content: object, where: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise bad_messages(f"{where}: content must be text, not {type(content).__name__}")
    return "".join(_part_text(part, where) for part in content)


def _part_text(part: object, where: str) -> str:
    if isinstance(part, Mapping) and part.get("type") == "text":
        text = part.get("text")
        if isinstance(text, str):
            return text
    raise bad_messages(f"{where}: a part of the content is not text")


def _plain_call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return call
    return {**call, "function": {**function, "arguments": _arguments(function.get("arguments"))}}


def _arguments(arguments: Any) -> Any:
    """The arguments as an object; text that is no JSON is left to the template."""
    if arguments is None or arguments == "":
        return {}
    if not isinstance(arguments, str):
        return arguments
    if exceeds_values(arguments.encode("utf-8", "replace"), MAX_JSON_VALUES):
        raise bad_messages(f"the arguments of a tool call have more than {MAX_JSON_VALUES} values")
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
