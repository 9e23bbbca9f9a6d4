"""What the engine answered, as responses to the client."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from starlette.responses import Response

from .headers import to_client
from .upstream import EngineReply

# Errors and lists of models come to a few KB; parsing holds up the loop, 20 ms for this much.
_MAX_RENDERED: Final = 1 << 20
_SSE_HEADERS: Final = {"cache-control": "no-cache", "x-accel-buffering": "no"}


def json_response(reply: EngineReply, text: bytes) -> Response:
    """The engine's status and headers with this JSON text."""
    response = _response(reply, text)
    response.headers.setdefault("content-type", "application/json")
    return response


def passed_on(reply: EngineReply) -> Response:
    """The engine's answer as it is: JSON rendered anew, anything else byte for byte, and so
    what is too large for either."""
    is_json = reply.content_type in ("", "application/json")
    try:
        if is_json and 0 < len(reply.body) <= _MAX_RENDERED:
            return json_response(reply, msgspec.json.encode(msgspec.json.decode(reply.body)))
    except (msgspec.MsgspecError, RecursionError):
        pass  # it is no JSON, whatever its type says
    return _response(reply, bytes(reply.body))


def stream_response(completion: dict[str, Any]) -> Response:
    """A whole chat completion as one server-sent chunk and the end mark."""
    text = msgspec.json.encode(_chunk(completion))
    body = b"data: %b\n\ndata: [DONE]\n\n" % text
    return Response(body, 200, _SSE_HEADERS, "text/event-stream; charset=utf-8")


def _chunk(completion: dict[str, Any]) -> dict[str, Any]:
    choice = completion["choices"][0]
    message = choice.get("message") or {}
    delta = {"role": message.get("role") or "assistant", "content": message.get("content")}
    if message.get("reasoning_content") is not None:
        delta["reasoning_content"] = message["reasoning_content"]
    calls = message.get("tool_calls")
    if isinstance(calls, list) and calls:
        delta["tool_calls"] = [
            {**call, "index": index} for index, call in enumerate(calls) if isinstance(call, dict)
        ]
    chunk = {
        "id": completion.get("id"),
        "object": "chat.completion.chunk",
        "created": completion.get("created"),
        "model": completion.get("model"),
        "choices": [{"index": 0, "delta": delta, "finish_reason": choice.get("finish_reason")}],
    }
    if completion.get("usage") is not None:
        chunk["usage"] = completion["usage"]
    return chunk


def _response(reply: EngineReply, body: bytes) -> Response:
    response = Response(body, reply.status)
    length = [pair for pair in response.raw_headers if pair[0] == b"content-length"]
    response.raw_headers = to_client(reply.headers) + length
    return response
