"""Going back by a turn, over HTTP.  Sections 5.2 and 7.1 under the decision on rollback."""

from __future__ import annotations

from typing import Any

import pytest

from ._errors import error_of, refusal
from ._serving import Handle, Message
from ._sglang import TOOL, USER, first_turn, second_turn, speaks
from ._stub import Answer, StubEngine
from .conftest import StartServer

OTHER_TOOL: Message = {"role": "tool", "content": "22", "tool_call_id": "call_1"}
STRANGER: Message = {"role": "user", "content": "7"}


def said_in(session: Handle, messages: list[Message]) -> Message:
    """What the engine says to these messages."""
    response = session.chat(messages)
    assert response.status_code == 200, response.text
    message: Message = response.json()["choices"][0]["message"]
    return message


@pytest.fixture
def two_turns(session: Handle, engine: StubEngine) -> tuple[Handle, list[Message]]:
    """A session of two turns, and its four messages."""
    engine.will(first_turn(), second_turn())
    first = said_in(session, [USER])
    second = said_in(session, [USER, first, TOOL])
    engine.reset()
    return session, [USER, first, TOOL, second]


@pytest.mark.parametrize(
    ("tool", "prompt"),
    [(TOOL, [1, 2, 3, 10, 11, 20, 21]), (OTHER_TOOL, [1, 2, 3, 10, 11, 22])],
    ids=["the same", "another"],
)
def test_a_tool_result_sent_again_makes_the_second_turn_anew(
    two_turns: tuple[Handle, list[Message]],
    engine: StubEngine,
    tool: Message,
    prompt: list[int],
) -> None:
    session, messages = two_turns
    engine.will(speaks([40]))
    said_in(session, [*messages[:2], tool])
    assert engine.seen[0].json["input_ids"] == prompt
    assert session.num_records() == 2
    assert session.collect().samples[0].tokens.tolist() == [*prompt, 40]


@pytest.mark.parametrize("length", [0, 1], ids=["a stranger", "the first message"])
def test_going_back_by_two_turns_is_400_and_changes_nothing(
    two_turns: tuple[Handle, list[Message]], engine: StubEngine, length: int
) -> None:
    session, messages = two_turns
    before = session.dump()
    response = session.chat(messages[:length] or [STRANGER])
    assert error_of(response) == (
        400,
        "rollback_too_deep",
        "rollback failed: discard_count=2 exceeds max_assistant_rollback_steps=1 "
        "(stored has 4 messages, request has 1 messages)",
    )
    assert session.dump() == before
    assert engine.seen == []


def test_an_exact_resend_is_a_third_turn(
    two_turns: tuple[Handle, list[Message]], engine: StubEngine
) -> None:
    session, messages = two_turns
    engine.will(speaks([40]))
    said_in(session, messages)
    assert engine.seen[0].json["input_ids"] == [1, 2, 3, 10, 11, 20, 21, 30, 31]
    assert session.num_records() == 3


@pytest.mark.parametrize("message", [USER, STRANGER], ids=["the same", "another"])
def test_a_first_turn_is_made_anew_from_scratch(
    session: Handle, engine: StubEngine, message: dict[str, Any]
) -> None:
    engine.will(first_turn(), speaks([40]))
    said_in(session, [USER])
    said_in(session, [message])
    rendered = [int(word) for word in message["content"].split()]
    assert engine.seen[1].json["input_ids"] == rendered
    assert session.dump()["metadata"]["accumulated_token_ids"] == [*rendered, 40]


@pytest.mark.parametrize(
    "failure",
    [Answer(500, b"{}"), Answer(200, b"{}"), Answer(hang_up=True)],
    ids=["an error", "a bad reply", "no reply"],
)
def test_a_failed_call_after_a_rollback_leaves_the_session_as_it_was(
    two_turns: tuple[Handle, list[Message]], engine: StubEngine, failure: Answer
) -> None:
    session, messages = two_turns
    before = session.dump()
    engine.will(failure)
    assert session.chat([*messages[:2], OTHER_TOOL]).status_code >= 500
    assert session.dump() == before


def test_a_refused_role_after_a_rollback_leaves_the_session_as_it_was(
    two_turns: tuple[Handle, list[Message]],
) -> None:
    session, messages = two_turns
    before = session.dump()
    developer = {"role": "developer", "content": "5"}
    assert refusal(session.chat([*messages[:2], developer])) == (400, "append_role")
    assert session.dump() == before


def test_a_retry_in_incremental_mode_asks_from_the_same_row_and_merges(
    incremental_session: Handle, engine: StubEngine
) -> None:
    session = incremental_session
    engine.will(first_turn(), second_turn(), second_turn())
    first = said_in(session, [USER])
    for _ in range(2):
        said_in(session, [USER, first, TOOL])
    assert [seen.json["routed_experts_start_len"] for seen in engine.seen] == [0, 4, 4]
    (sample,) = session.collect().samples
    assert sample.rollout_routed_experts is not None
    assert sample.rollout_routed_experts[:, 0, 0].tolist() == [100 * row for row in range(8)]


def test_the_matcher_of_the_settings_decides_what_is_a_replay(
    start: StartServer, engine: StubEngine
) -> None:
    session = start(matcher="role_content_only").create()
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    spoken = {"role": "assistant", "content": "10 11", "tool_calls": [call]}
    engine.will(first_turn(message=spoken), second_turn())
    said_in(session, [USER])
    said_in(session, [USER, {"role": "assistant", "content": "10 11"}, TOOL])
    assert session.num_records() == 2


def throwing(_stored: Message, _replayed: Message) -> bool:
    """A matcher with a fault."""
    raise RuntimeError("a fault in the matcher")


def test_a_matcher_that_throws_is_500_and_says_so(start: StartServer, engine: StubEngine) -> None:
    session = start(matcher=f"{__name__}.throwing").create()
    engine.will(first_turn())
    said_in(session, [USER])
    assert refusal(session.chat([USER])) == (500, "matcher_failed")
    assert session.num_records() == 1
