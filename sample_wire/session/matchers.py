"""Message matchers: whether a message that a client replays is the one that is stored.

Three are built in, chosen by name; a dotted path names a function of the operator's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec

from .._json import MAX_JSON_VALUES, encode_json, exceeds_values
from ..errors import SessionError
from ._dotted import imported
from .tokenizer import Message

MessageMatcher = Callable[[Message, Message], bool]
_STRICT_KEYS: Final = ("role", "content", "reasoning_content", "tool_calls")
_encode_sorted: Final = msgspec.json.Encoder(order="sorted").encode
_MISSING: Final = object()


def matcher(selector: str) -> MessageMatcher:
    """The matcher of a name, or of a dotted path to a function (stored, replayed) -> bool.

    Args:
        selector: "strict", "loose_tool_call", "role_content_only", or "package.module.name".

    Raises:
        ValueError: no such name, nothing at that path, or what is there cannot be called
            synchronously.
    """
    return _NAMED.get(selector) or _imported(selector)


def prefix_length(
    match: MessageMatcher, stored: Sequence[Message], replayed: Sequence[Message]
) -> int:
    """How many leading messages match.

    Raises:
        SessionError: 500 "matcher_failed": the matcher raised, or gave no bool.
    """
    count = 0
    for one, other in zip(stored, replayed, strict=False):
        if not _asked(match, one, other):
            break
        count += 1
    return count


def _asked(match: MessageMatcher, stored: Message, replayed: Message) -> bool:
    try:
        answer: object = match(stored, replayed)
    except Exception as error:
        raise _failed(f"it raised {type(error).__name__}") from error
    if type(answer) is not bool:
        raise _failed(f"it gave a {type(answer).__name__}, not a bool")
    return answer


def _failed(why: str) -> SessionError:
    return SessionError(
        f"the message matcher failed: {why}", code="matcher_failed", http_status=500
    )


def strict(stored: Message, replayed: Message) -> bool:
    """Equal role, content, reasoning and tool calls; None, "" and [] are one value."""
    return _same_values(_STRICT_KEYS, stored, replayed)


def loose_tool_call(stored: Message, replayed: Message) -> bool:
    """Like strict, but the arguments of tool calls are compared as JSON objects."""
    return _same_values(_STRICT_KEYS[:-1], stored, replayed) and (
        _same_values(("tool_calls",), stored, replayed) or _loosely_same_calls(stored, replayed)
    )


def role_content_only(stored: Message, replayed: Message) -> bool:
    """Equal role and content; None, "" and [] are one value."""
    return _same_values(_STRICT_KEYS[:2], stored, replayed)


_NAMED: Final[dict[str, MessageMatcher]] = {
    function.__name__: function for function in (strict, loose_tool_call, role_content_only)
}


def _imported(selector: str) -> MessageMatcher:
    if "." not in selector:
        names = ", ".join(_NAMED)
        raise ValueError(f"message matcher {selector!r} is none of {names}, and no dotted path")
    return imported(selector, "message matcher")


def _same_values(keys: Sequence[str], stored: Message, replayed: Message) -> bool:
    for key in keys:
        one, other = stored.get(key), replayed.get(key)
        # Nearly all values end here; a conversation has hundreds, and each turn compares all.
        if one is other or (type(one) is type(other) is str and one == other):
            continue
        one, other = _value(key, stored), _value(key, replayed)
        if one is not other and not _same(one, other):
            return False
    return True


def _value(key: str, message: Message) -> Any:
    """A message's value for a key, its empty spellings as None, tool calls without `index`."""
    value = message.get(key)
    if value is None or value == "" or value == []:
        return None
    if key == "tool_calls" and isinstance(value, list):
        return [_without(call, "index") for call in value]
    return value


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON: key order does not count, but true is not 1 and 1 is not 1.0."""
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    return _encode_sorted(one) == _encode_sorted(other)


def _without(value: Any, key: str) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: inner for name, inner in value.items() if name != key}


def _loosely_same_calls(stored: Message, replayed: Message) -> bool:
    ours, theirs = _value("tool_calls", stored), _value("tool_calls", replayed)
    if not isinstance(ours, list) or not isinstance(theirs, list) or len(ours) != len(theirs):
        return False
    return all(_loosely_same_call(one, other) for one, other in zip(ours, theirs, strict=True))


def _loosely_same_call(one: Any, other: Any) -> bool:
    ours, theirs = _function(one), _function(other)
    if ours is None or theirs is None:
        return _same(one, other)
    return (
        _same(_without(one, "function"), _without(other, "function"))
        and _same(_without(ours, "arguments"), _without(theirs, "arguments"))
        and _same_arguments(ours.get("arguments", _MISSING), theirs.get("arguments", _MISSING))
    )


def _function(call: Any) -> dict[str, Any] | None:
    function = call.get("function") if isinstance(call, dict) else None
    return function if isinstance(function, dict) else None


def _same_arguments(one: Any, other: Any) -> bool:
    if one is _MISSING or other is _MISSING:
        return one is other
    try:
        return _object_of(one) == _object_of(other)
    except (ValueError, ArithmeticError, RecursionError):
        return _same(one, other)


def _object_of(arguments: Any) -> dict[str, Any]:
    """Arguments as an object whose numbers are exact; None and "" are the empty one.

    Raises:
        ValueError: no JSON object, a repeated key, a NaN, or more than MAX_JSON_VALUES values.
    """
    if arguments is None or arguments == "":
        return {}
    text = arguments if isinstance(arguments, str) else encode_json(arguments).decode()
    if exceeds_values(text.encode(), MAX_JSON_VALUES):
        raise ValueError("too many values")
    found = json.loads(
        text,
        object_pairs_hook=_unique,
        parse_int=_number,
        parse_float=_number,
        parse_constant=_no_number,
    )
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    return found


def _number(digits: str) -> tuple[str, Decimal]:
    """A number by its exact decimal value, marked, so that it never equals true."""
    return "number", Decimal(digits)


def _no_number(_name: str) -> Any:
    raise ValueError("NaN or Infinity")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        raise ValueError("a repeated key")
    return unique
