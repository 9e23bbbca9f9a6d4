"""The JSON schemas of what goes in and out of the session server, for openapi.py.

Of foreign bodies, OpenAI's chat and the engine's, only what the server itself reads or makes is
described; further keys are passed on.
"""

from __future__ import annotations

from typing import Any, Final

from .trajectories import FIELD_SETS

Json = dict[str, Any]


def ref(name: str) -> Json:
    """A reference to one of SCHEMAS."""
    return {"$ref": f"#/components/schemas/{name}"}


def _object(required: tuple[str, ...] = (), *, open_: bool = True, **properties: Json) -> Json:
    schema: Json = {"type": "object", "properties": properties, "required": [*required]}
    return schema if open_ else {**schema, "additionalProperties": False}


def _maybe(kind: str) -> Json:
    return {"type": [kind, "null"]}


_TEXT: Final[Json] = {"type": "string"}
_INTEGER: Final[Json] = {"type": "integer"}
_OBJECT: Final[Json] = {"type": "object"}
_SESSION_ID: Final[Json] = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
_INSTANCE: Final[Json] = {**_TEXT, "description": "the server's process, where it has an id"}
_CHOICE: Final[Json] = _object(
    ("index", "message"), index=_INTEGER, message=_OBJECT, finish_reason=_maybe("string")
)
_PART: Final[Json] = _object(("type", "text"), type={"const": "text"}, text=_TEXT)
_CALL: Final[Json] = _object(
    ("id", "type", "function"),
    id=_TEXT,
    type={"const": "function"},
    function=_object(("name", "arguments"), name=_TEXT, arguments=_TEXT),
)
_TOOL: Final[Json] = _object(
    ("type", "function"),
    type={"const": "function"},
    function=_object(("name",), name=_TEXT, parameters=_OBJECT),
)
_RECORD: Final[Json] = _object(
    ("timestamp", "method", "path", "status_code", "request", "response"),
    timestamp=_maybe("number"),
    request_timestamp=_maybe("number"),
    method=_TEXT,
    path=_TEXT,
    status_code=_INTEGER,
    request=_OBJECT,
    response=_OBJECT,
)

SCHEMAS: Final[dict[str, Json]] = {
    "Health": _object(
        ("status",), open_=False, status={"const": "ok"}, session_server_instance_id=_INSTANCE
    ),
    "Handshake": _object(
        field_set={**_maybe("integer"), "description": "must be the server's, or null"},
        schema={
            **_maybe("string"),
            "description": "the fingerprint; must be the server's, or null",
        },
    ),
    "Created": _object(
        ("session_id", "field_set", "schema", "trajectory"),
        open_=False,
        session_id=_SESSION_ID,
        field_set=_INTEGER,
        schema=_TEXT,
        trajectory={"enum": [*FIELD_SETS]},
        session_server_instance_id=_INSTANCE,
    ),
    "Dump": _object(
        ("session_id", "records", "metadata"),
        open_=False,
        session_id=_SESSION_ID,
        records={"type": "array", "items": _RECORD},
        metadata=_OBJECT,
    ),
    "Message": _object(
        ("role",),
        role={"enum": ["system", "user", "assistant", "tool"]},
        content={"type": ["string", "array", "null"], "items": _PART},
        tool_calls={"type": ["array", "null"], "items": _CALL},
        tool_call_id=_TEXT,
    ),
    "ChatRequest": _object(
        ("messages",),
        messages={"type": "array", "items": ref("Message"), "minItems": 1},
        tools={"type": ["array", "null"], "items": _TOOL},
        stream=_maybe("boolean"),
        chat_template_kwargs=_maybe("object"),
        model=_TEXT,
        max_tokens=_maybe("integer"),
        temperature=_maybe("number"),
    ),
    "ChatCompletion": _object(("choices",), choices={"type": "array", "items": _CHOICE}),
    "SamplesRequest": _object(
        max_seq_len={**_maybe("integer"), "description": "tokens that a sample may have"},
        metadata={**_maybe("object"), "description": "laid over a tree's samples"},
    ),
    "EngineAnswer": {"description": "what the engine answered, as it is"},
    "Description": _object(
        ("openapi", "info", "paths"), openapi=_TEXT, info=_OBJECT, paths=_OBJECT
    ),
}

# Further keys of an error, by its code.
_BROUGHT: Final[dict[str, dict[str, Json]]] = {
    "not_acceptable": {"supported": {"type": "array", "items": _TEXT}},
}


def error(codes: list[str]) -> Json:
    """The one form of errors, with one of these codes and what it brings."""
    more = {key: schema for code in codes for key, schema in _BROUGHT.get(code, {}).items()}
    return _object(("error", "code"), open_=False, error=_TEXT, code={"enum": codes}, **more)
