"""The parts of a record: its request, its reply, and what stands beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from ..errors import AssemblyError
from .replies import merge_events


def bodies(record: Mapping[str, Any], number: int) -> tuple[Mapping[str, Any], object]:
    """Request and reply of a record, also of one that wraps them with method and status."""
    if not isinstance(record, Mapping):
        raise AssemblyError("the record is no object", turn=number)
    request, reply = record.get("request"), record.get("response")
    if isinstance(request, Mapping) and "body" in request:
        request = request["body"]
    if isinstance(reply, Mapping) and "body" in reply:
        reply = reply["body"]
    if isinstance(reply, Mapping) and "sse" in reply:
        reply = merge_events(reply["sse"], number)
    if not isinstance(request, Mapping) or reply is None:
        raise AssemblyError("the record has no request object, or no response", turn=number)
    return request, reply


def seconds(record: Mapping[str, Any], key: str, number: int) -> float | None:
    """A time of a record, or None where it has none."""
    value = record.get(key)
    if value is None:
        return None
    if type(value) in (int, float) and abs(value) < 2**63:
        return cast(float, value)
    raise AssemblyError(f"its {key} is no time in seconds", turn=number, field=key)


def messages_in(request: Mapping[str, Any], number: int) -> Sequence[Any]:
    """The messages of a request; a token-in one has none."""
    messages = request.get("messages")
    if messages is None or isinstance(messages, (list, tuple)):
        return messages or ()
    raise AssemblyError("the request's messages are no list", turn=number, field="messages")
