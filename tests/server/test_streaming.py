"""Streams that are none: the whole reply as one server-sent event.  Section 5.5."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from ._errors import refusal
from ._serving import Handle
from ._sglang import FIRST_OUTPUT, TOOL, USER, answer, completion, first_turn
from ._stub import Answer, StubEngine


def events_of(response: httpx2.Response) -> list[str]:
    """The data of the events, which must be all that there is."""
    assert response.content.endswith(b"\n\n")
    lines = response.content.decode().removesuffix("\n\n").split("\n\n")
    assert all(line.startswith("data: ") for line in lines)
    return [line.removeprefix("data: ") for line in lines]


def chunk_of(session: Handle, engine: StubEngine, reply: dict[str, Any]) -> dict[str, Any]:
    """The one chunk that a streaming client gets for this reply."""
    engine.will(answer(reply))
    chunk, end = events_of(session.chat([USER], stream=True))
    assert end == "[DONE]"
    found: dict[str, Any] = json.loads(chunk)
    return found


def test_a_stream_is_exactly_one_chunk_and_the_end_mark(
    session: Handle, engine: StubEngine
) -> None:
    assert chunk_of(session, engine, completion(3, *FIRST_OUTPUT)) == {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": "stub",
        "choices": [
            {
                "index": 0,
                "delta": {"role": "assistant", "content": "10 11"},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }


def test_tool_calls_are_numbered_by_their_place(session: Handle, engine: StubEngine) -> None:
    calls = [{"id": "a", "index": 9, "function": {"name": "f"}}, {"id": "b"}]
    said = {"role": "assistant", "content": "", "tool_calls": calls}
    chunk = chunk_of(session, engine, completion(3, *FIRST_OUTPUT, message=said))
    assert chunk["choices"][0]["delta"]["tool_calls"] == [
        {"id": "a", "index": 0, "function": {"name": "f"}},
        {"id": "b", "index": 1},
    ]


@pytest.mark.parametrize("calls", [None, []], ids=str)
def test_without_tool_calls_the_delta_has_none(
    session: Handle, engine: StubEngine, calls: Any
) -> None:
    said = {"role": "assistant", "content": "hi", "tool_calls": calls}
    chunk = chunk_of(session, engine, completion(3, *FIRST_OUTPUT, message=said))
    assert chunk["choices"][0]["delta"] == {"role": "assistant", "content": "hi"}


@pytest.mark.parametrize(("reasoning", "told"), [(None, False), ("", True), ("hm", True)])
def test_reasoning_is_told_unless_it_is_null(
    session: Handle, engine: StubEngine, reasoning: str | None, told: bool
) -> None:
    said = {"role": "assistant", "content": "hi", "reasoning_content": reasoning}
    delta = chunk_of(session, engine, completion(3, *FIRST_OUTPUT, message=said))["choices"][0]
    expected = {"role": "assistant", "content": "hi"}
    assert delta["delta"] == expected | ({"reasoning_content": reasoning} if told else {})


def test_a_message_without_a_role_is_the_assistants(session: Handle, engine: StubEngine) -> None:
    reply = completion(3, *FIRST_OUTPUT, message={"content": "hi"})
    chunk = chunk_of(session, engine, reply)
    assert chunk["choices"][0]["delta"] == {"role": "assistant", "content": "hi"}


@pytest.mark.parametrize("absent", [True, False], ids=["absent", "null"])
def test_usage_is_left_out_where_there_is_none(
    session: Handle, engine: StubEngine, absent: bool
) -> None:
    reply = completion(3, *FIRST_OUTPUT)
    if absent:
        del reply["usage"]
    else:
        reply["usage"] = None
    assert "usage" not in chunk_of(session, engine, reply)


def test_meta_info_is_never_in_a_stream(routed_session: Handle, engine: StubEngine) -> None:
    engine.will(first_turn())
    response = routed_session.chat([USER], stream=True)
    assert b"meta_info" not in response.content
    assert b"routed_experts" not in response.content


def test_a_stream_has_headers_of_its_own_and_none_of_the_engines(
    session: Handle, engine: StubEngine
) -> None:
    engine.will(answer(completion(3, *FIRST_OUTPUT), ("x-engine", "yes")))
    headers = session.chat([USER], stream=True).headers
    assert {key: value for key, value in headers.items() if key not in ("server", "date")} == {
        "content-type": "text/event-stream; charset=utf-8",
        "cache-control": "no-cache",
        "x-accel-buffering": "no",
        "content-length": headers["content-length"],
        "x-request-id": headers["x-request-id"],
    }


@pytest.mark.parametrize("stream", [1, "yes", [0], {"a": 0}], ids=str)
def test_whatever_counts_as_true_asks_for_a_stream(
    session: Handle, engine: StubEngine, stream: Any
) -> None:
    engine.will(first_turn())
    response = session.chat([USER], stream=stream)
    assert response.headers["content-type"].startswith("text/event-stream")


@pytest.mark.parametrize("stream", [False, None, 0, ""], ids=repr)
def test_whatever_counts_as_false_does_not(
    session: Handle, engine: StubEngine, stream: Any
) -> None:
    engine.will(first_turn())
    assert session.chat([USER], stream=stream).json()["object"] == "chat.completion"


def test_errors_keep_their_status_and_are_json(session: Handle, engine: StubEngine) -> None:
    engine.will(Answer(429, b'{"message":"slow down"}'), Answer(200, b"{}"), Answer(hang_up=True))
    response = session.chat([USER], stream=True)
    assert (response.status_code, response.json()) == (429, {"message": "slow down"})
    assert refusal(session.chat([USER], stream=True)) == (502, "bad_engine_reply")
    assert refusal(session.chat([USER], stream=True)) == (502, "engine_unreachable")
    assert refusal(session.chat([], stream=True)) == (400, "bad_request")


def test_a_streamed_turn_is_recorded_as_any_other(
    routed_session: Handle, engine: StubEngine
) -> None:
    other = routed_session.site.create()
    engine.will(first_turn(), first_turn())
    routed_session.chat([USER], stream=True, stream_options={"include_usage": True})
    other.chat([USER])
    first, second = (one.dump()["records"][0] for one in (routed_session, other))
    assert first["request"] == second["request"]
    assert first["response"] == second["response"]
    assert engine.seen[0].body == engine.seen[1].body


def test_a_conversation_goes_on_after_a_streamed_turn(session: Handle, engine: StubEngine) -> None:
    chunk = chunk_of(session, engine, completion(3, *FIRST_OUTPUT))
    engine.will(first_turn())
    assert session.chat([USER, chunk["choices"][0]["delta"], TOOL]).status_code == 200
    assert engine.seen[1].json["input_ids"] == [1, 2, 3, 10, 11, 20, 21]
