"""The server's routes as an OpenAPI 3.1 description: `GET /openapi.json`.

Which errors an operation has is told by CODES.  The routes are compared with the application's
by a test, and answers of a real server with what stands here.
"""

from __future__ import annotations

import functools
import itertools
from typing import Final, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ... import __version__
from .._media_types import PAYLOAD_TYPES
from .codes import CODES, Code
from .openapi_schemas import SCHEMAS, Json, error, ref
from .state import ServerState

_JSON: Final = "application/json"
_ABOUT: Final = (
    "Agents speak OpenAI chat to a session, trainers get its samples. Every error is JSON,"
    ' {"error": text, "code": code}; codes stay as they are, texts are for people. HEAD is'
    " answered as GET; another method of a path is 405 `method_not_allowed`, another path 404"
    " `not_found`."
)
_BEARER: Final = "bearer"
_BEARER_SCHEME: Final = {"type": "http", "scheme": "bearer"}
_SESSION: Final = "/sessions/{session_id}"
_PASSED_ON: Final = "what the engine answers, passed on as it is"


class _Operation(NamedTuple):
    """One method of one path.

    Attributes:
        name: as in CODES.
        success: its status, and the schema of each media type.
        body: the schema of the request's JSON, or None where it has none.
        needs_body: whether a request without one is refused.
        passes_on: whether the engine's own errors are answers of it too.
    """

    name: str
    method: str
    path: str
    summary: str
    success: tuple[int, dict[str, Json]]
    body: str | None = None
    needs_body: bool = False
    passes_on: bool = False


_OPERATIONS: Final = (
    _Operation("health", "get", "/health", "Whether it serves", (200, {_JSON: ref("Health")})),
    _Operation("describe", "get", "/openapi.json", "This text", (200, {_JSON: ref("Description")})),
    _Operation(
        "create", "post", "/sessions", "A new session", (200, {_JSON: ref("Created")}), "Handshake"
    ),
    _Operation(
        "create",
        "post",
        "/sessions/",
        "The same as without the slash",
        (200, {_JSON: ref("Created")}),
        "Handshake",
    ),
    _Operation(
        "dump",
        "get",
        _SESSION,
        "Its records: every request and reply as it went over the wire",
        (200, {_JSON: ref("Dump")}),
    ),
    _Operation("delete", "delete", _SESSION, "Ends the session", (204, {})),
    _Operation(
        "chat",
        "post",
        f"{_SESSION}/v1/chat/completions",
        "A turn: 200 is recorded, and nothing else is",
        (200, {_JSON: ref("ChatCompletion"), "text/event-stream": {}}),
        "ChatRequest",
        needs_body=True,
        passes_on=True,
    ),
    _Operation(
        "samples",
        "post",
        f"{_SESSION}/samples",
        "The payload of what the session's turns come to; changes nothing",
        (200, {media_type: {} for media_type in PAYLOAD_TYPES.values()}),
        "SamplesRequest",
    ),
    _Operation(
        "models",
        "get",
        f"{_SESSION}/v1/models",
        "The engine's models",
        (200, {_JSON: ref("EngineAnswer")}),
        passes_on=True,
    ),
)


async def describe(_state: ServerState, _request: Request) -> Response:
    """GET /openapi.json."""
    return Response(description(), media_type=_JSON)


@functools.cache
def description() -> bytes:
    """The description, as JSON."""
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "sample_wire", "version": __version__, "description": _ABOUT},
            "paths": _paths(),
            "security": [{}, {_BEARER: []}],  # a server without a token asks for none
            "components": {"schemas": SCHEMAS, "securitySchemes": {_BEARER: _BEARER_SCHEME}},
        }
    )


def _paths() -> dict[str, Json]:
    """The operations by path and method; with each GET a HEAD, whose answers have no body."""
    paths: dict[str, Json] = {}
    for operation in _OPERATIONS:
        item = paths.setdefault(operation.path, _parameters(operation.path))
        item[operation.method] = _described(operation)
        if operation.method == "get":
            item["head"] = _without_bodies(item["get"])
    return paths


def _parameters(path: str) -> Json:
    if not path.startswith(_SESSION):
        return {}
    session = {"name": "session_id", "in": "path", "required": True, "schema": {"type": "string"}}
    return {"parameters": [session]}


def _described(operation: _Operation) -> Json:
    found: Json = {"summary": operation.summary, "responses": _responses(operation)}
    if operation.body is not None:
        content = _content({_JSON: ref(operation.body)})
        found["requestBody"] = {"content": content, "required": operation.needs_body}
    return found


def _responses(operation: _Operation) -> dict[str, Json]:
    status, bodies = operation.success
    responses = {str(status): _response("It is done", bodies)}
    given = (code for code in CODES if operation.name in code.operations)
    for failed, codes in itertools.groupby(given, key=lambda code: code.status):
        responses[str(failed)] = _failure([*codes], passes_on=operation.passes_on)
    if operation.passes_on:
        responses["default"] = _response(_PASSED_ON, {"*/*": ref("EngineAnswer")})
    return responses


def _failure(codes: list[Code], *, passes_on: bool) -> Json:
    """The errors of one status; the engine's own of that status may be anything."""
    schema = error([code.name for code in codes])
    bodies = {_JSON: schema}
    if passes_on:
        bodies = {_JSON: {"anyOf": [schema, ref("EngineAnswer")]}, "*/*": ref("EngineAnswer")}
    return _response("; ".join(f"`{code.name}`: {code.when}" for code in codes), bodies)


def _response(text: str, bodies: dict[str, Json]) -> Json:
    return {"description": text, **({"content": _content(bodies)} if bodies else {})}


def _content(bodies: dict[str, Json]) -> Json:
    return {media_type: {"schema": schema} for media_type, schema in bodies.items()}


def _without_bodies(operation: Json) -> Json:
    responses = {
        status: {"description": response["description"]}
        for status, response in operation["responses"].items()
    }
    return {**operation, "responses": responses}
