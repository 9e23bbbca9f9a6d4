"""Rolling back: which turns a request builds on, BEHAVIOUR 7.1 under decision 4."""

from __future__ import annotations

from typing import Any

import pytest

from sample_wire.errors import SessionError
from sample_wire.session import LinearTrajectory

from ._words import (
    Words,
    answer,
    chat,
    refusal,
    say,
    spoken,
    state,
    take_turn,
    trajectory,
)

U1, A1, T1, A2 = (
    say("user", "u1"),
    say("assistant", "a1"),
    say("tool", "t1"),
    say("assistant", "a2"),
)


def one_turn(**options: Any) -> LinearTrajectory:
    """Stored [U1, a1]."""
    session = trajectory(**options)
    take_turn(session, chat(U1), answer([51, 1], message=A1))
    return session


def two_turns(**options: Any) -> LinearTrajectory:
    """Stored [U1, a1, T1, a2]."""
    session = one_turn(**options)
    take_turn(session, chat(U1, A1, T1), answer([52, 1], message=A2))
    return session


@pytest.mark.parametrize(
    ("request_", "num_base", "num_new"),
    [
        pytest.param([U1, A1, T1], 1, 1, id="regenerate"),
        pytest.param([U1, A1, say("tool", "other")], 1, 1, id="other_tool_answer"),
        pytest.param([U1, A1], 1, 0, id="ends_at_a_checkpoint"),
        pytest.param([U1, A1, T1, say("assistant", "rewritten"), U1], 1, 3, id="rewritten_answer"),
        pytest.param([U1, A1, T1, A2], 2, 0, id="exact_resend"),
        pytest.param([U1, A1, T1, A2, U1], 2, 1, id="extension"),
    ],
)
def test_a_request_builds_on_the_last_checkpoint_it_agrees_with(
    request_: Any, num_base: int, num_new: int
) -> None:
    session = two_turns()
    plan = session.plan(chat(*request_))
    assert plan.num_base_turns == num_base
    assert plan.base is session.turns[num_base - 1]
    assert len(plan.new_messages) == num_new


@pytest.mark.parametrize("request_", [[say("user", "x")], [U1]], ids=["other", "shorter"])
def test_a_single_turn_may_be_rolled_back_to_nothing(request_: Any) -> None:
    session = one_turn()
    plan = take_turn(session, chat(*request_), answer([53, 1], message=A2))
    assert plan.base is None
    assert plan.num_base_turns == plan.start_row == plan.num_kept == 0
    assert session.messages == (*request_, A2)
    assert len(session.turns) == 1
    assert session.token_ids().tolist() == [*plan.prompt_ids.tolist(), 53, 1]


@pytest.mark.parametrize("request_", [[say("user", "x")], [U1]], ids=["other", "shorter"])
def test_rolling_back_two_turns_is_refused_and_changes_nothing(request_: Any) -> None:
    session = two_turns()
    before = state(session)
    with pytest.raises(SessionError) as error:
        session.plan(chat(*request_))
    assert refusal(error) == (400, "rollback_too_deep")
    assert state(session) == before


def test_the_refusal_tells_the_counts() -> None:
    session = trajectory()
    spoken(session, "u1", "u2", "u3")
    request = chat(*session.messages[:2], say("user", "other"))
    with pytest.raises(SessionError) as error:
        session.plan(request)
    assert str(error.value) == (
        "rollback failed: discard_count=2 exceeds max_assistant_rollback_steps=1 "
        "(stored has 6 messages, request has 3 messages)"
    )


def test_a_rolled_back_turn_leaves_no_trace_once_the_new_one_is_committed() -> None:
    session = two_turns()
    plan = take_turn(session, chat(U1, A1, T1), answer([60, 1], message=say("assistant", "b2")))
    assert session.messages == (U1, A1, T1, say("assistant", "b2"))
    assert [
        record["response"]["choices"][0]["message"]["content"] for record in session.records()
    ] == ["a1", "b2"]
    assert session.token_ids().tolist() == [*plan.prompt_ids.tolist(), 60, 1]
    assert session.version == 3


def test_turns_that_were_rolled_back_are_counted_in_the_metadata() -> None:
    session = two_turns()
    assert "rolled_back_turns" not in session.metadata(None)
    take_turn(session, chat(U1, A1, T1), answer([60, 1], message=say("assistant", "b2")))
    assert session.metadata(None)["rolled_back_turns"] == 1
    take_turn(session, chat(U1, A1, T1), answer([61, 1], message=say("assistant", "c2")))
    assert session.metadata(None)["rolled_back_turns"] == 2


def test_an_exact_resend_makes_a_third_turn() -> None:
    session = two_turns()
    plan = take_turn(session, chat(U1, A1, T1, A2), answer([61, 1], message=say("assistant", "a3")))
    assert len(session.turns) == 3
    assert session.messages == (U1, A1, T1, A2, say("assistant", "a3"))
    assert plan.new_messages == ()


def test_planning_a_rollback_does_not_roll_back() -> None:
    session = two_turns()
    before = state(session)
    session.plan(chat(U1, A1, T1))
    assert state(session) == before


def test_a_role_refused_after_a_rollback_leaves_the_session_as_it_was() -> None:
    session = two_turns()
    before = state(session)
    with pytest.raises(SessionError) as error:
        session.plan(chat(U1, A1, say("developer", "do")))
    assert refusal(error) == (400, "append_role")
    assert state(session) == before


def test_a_rollback_too_deep_is_told_before_a_refused_role() -> None:
    with pytest.raises(SessionError) as error:
        two_turns().plan(chat(U1, say("developer", "do")))
    assert error.value.code == "rollback_too_deep"


def test_assistant_messages_of_a_request_are_no_checkpoints() -> None:
    session = trajectory()
    shots = [say("user", "q"), say("assistant", "shot"), say("user", "q2")]
    take_turn(session, chat(*shots), answer([51, 1], message=A1))
    plan = session.plan(chat(*shots[:2], say("user", "other")))
    assert plan.base is None
    assert len(plan.new_messages) == 3


def test_a_loosely_matched_replay_does_not_rewrite_what_is_stored() -> None:
    session = one_turn(selector="role_content_only")
    replayed = A1 | {"reasoning_content": "made up", "tool_calls": [{"id": "x"}]}
    take_turn(session, chat(U1, replayed, T1), answer([52, 1], message=A2))
    assert session.messages == (U1, A1, T1, A2)
    assert session.records()[1]["request"]["messages"] == [U1, replayed, T1]


@pytest.mark.parametrize(
    "role",
    ["developer", "function", None, 7, ["tool"]],
    ids=["developer", "function", "none", "number", "list"],
)
def test_an_appended_role_that_the_family_does_not_allow_is_refused(role: Any) -> None:
    with pytest.raises(SessionError) as error:
        one_turn().plan(chat(U1, A1, {"role": role, "content": "x"}))
    assert refusal(error) == (400, "append_role")
    assert str(error.value).endswith(
        "; the selected TITO fixed template does not support appending this role"
    )


def test_every_appended_message_is_checked_by_the_familys_own_roles() -> None:
    session = one_turn(tokenizer=Words(roles=frozenset({"tool"})))
    session.plan(chat(U1, A1, T1, T1))
    with pytest.raises(SessionError) as error:
        session.plan(chat(U1, A1, T1, U1))
    assert error.value.code == "append_role"


def test_the_first_prompt_may_have_any_role() -> None:
    plan = trajectory(Words(roles=frozenset({"tool"}))).plan(chat(say("developer", "x"), U1))
    assert plan.base is None
