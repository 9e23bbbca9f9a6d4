"""The judge of answers: what it has to refuse, it refuses."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from ._description import DESCRIPTION, faults
from ._talking import Answer, check

SESSION: Final = "/sessions/{session_id}"
CHAT: Final = f"{SESSION}/v1/chat/completions"
SAMPLES: Final = f"{SESSION}/samples"
JSON: Final = "application/json"
PAYLOAD: Final = "application/octet-stream"


def error(code: str, **more: Any) -> bytes:
    return json.dumps({"error": "text", "code": code, **more}).encode()


@pytest.mark.parametrize(
    ("method", "path", "answer"),
    [
        ("get", "/health", Answer(200, JSON, b'{"status": "ok"}')),
        ("head", "/health", Answer(200, JSON, b"")),
        ("delete", SESSION, Answer(204, "", b"")),
        ("delete", SESSION, Answer(404, JSON, error("unknown_session"))),
        ("put", SESSION, Answer(405, JSON, error("method_not_allowed"))),
        ("post", SAMPLES, Answer(200, PAYLOAD, b"payload")),
        ("post", SAMPLES, Answer(200, f"{PAYLOAD}; format=2", b"payload")),
        ("post", SAMPLES, Answer(406, JSON, error("not_acceptable", supported=[PAYLOAD]))),
        ("post", CHAT, Answer(200, "text/event-stream; charset=utf-8", b"data: [DONE]")),
        ("post", CHAT, Answer(502, JSON, error("engine_timeout"))),
        ("post", CHAT, Answer(418, "text/plain", b"what the engine says")),
        ("post", CHAT, Answer(400, JSON, b'{"object": "error"}')),
    ],
    ids=str,
)
def test_an_answer_that_is_described_passes(method: str, path: str, answer: Answer) -> None:
    check(answer, method, path)


@pytest.mark.parametrize(
    ("method", "path", "answer"),
    [
        ("get", "/health", Answer(418, JSON, b"{}")),
        ("get", "/health", Answer(200, "text/plain", b"ok")),
        ("get", "/health", Answer(200, JSON, b'{"status": "ill"}')),
        ("get", "/health", Answer(200, JSON, b'{"status": "ok", "more": 1}')),
        ("get", "/health", Answer(500, JSON, error("internal_error"))),
        ("head", "/health", Answer(200, JSON, b'{"status": "ok"}')),
        ("delete", SESSION, Answer(204, "", b"body")),
        ("delete", SESSION, Answer(404, JSON, error("not_found"))),
        ("put", SESSION, Answer(204, "", b'{"code": ""}')),
        ("post", SAMPLES, Answer(200, f"{PAYLOAD}; format=3", b"payload")),
        ("post", SAMPLES, Answer(404, JSON, error("unknown_session", supported=[PAYLOAD]))),
        ("post", CHAT, Answer(200, JSON, b"{}")),
        ("post", CHAT, Answer(400, JSON, error("invalid_max_seq_len"))),
        ("post", CHAT, Answer(400, JSON, error("engine_timeout"))),
        ("post", CHAT, Answer(500, JSON, error("prefix_mismatch"))),
        ("post", CHAT, Answer(503, "text/plain", b"what the engine says")),
    ],
    ids=str,
)
def test_an_answer_that_is_not_described_or_a_fault_of_ours_does_not(
    method: str, path: str, answer: Answer
) -> None:
    with pytest.raises(AssertionError):
        check(answer, method, path)


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        (True, {"type": "integer"}),
        (1.5, {"type": ["integer", "null"]}),
        ("x", {"const": "y"}),
        ("x", {"enum": ["y", "z"]}),
        ("xy", {"type": "string", "pattern": "^y"}),
        ([], {"type": "array", "minItems": 1}),
        ([1, "x"], {"type": "array", "items": {"type": "integer"}}),
        ({}, {"type": "object", "required": ["a"]}),
        ({"a": 1}, {"type": "object", "properties": {}, "additionalProperties": False}),
        ({"a": 1}, {"properties": {"a": {"type": "string"}}}),
        (1, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
    ],
    ids=str,
)
def test_a_value_that_is_not_as_its_schema_says_is_told(value: Any, schema: dict[str, Any]) -> None:
    assert len(faults(value, schema)) == 1


def test_a_keyword_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="maxItems"):
        faults([], {"type": "array", "maxItems": 1})


def test_a_reference_is_followed() -> None:
    assert "Health" in DESCRIPTION["components"]["schemas"]
    assert faults({"status": "ok"}, {"$ref": "#/components/schemas/Health"}) == []
    assert faults({"status": ""}, {"$ref": "#/components/schemas/Health"}) != []
