"""What a trajectory shows: records, metadata and snapshots."""

from __future__ import annotations

from typing import Any

import pytest

from ._words import Words, answer, chat, say, spoken, take_turn, trajectory

USER = say("user", "hi")
GOOD = answer([50, 51])


def test_a_record_has_its_keys_in_order() -> None:
    session = trajectory()
    plan = take_turn(session, chat(USER, model="m"), GOOD, 130.5, 104)
    (record,) = session.records()
    assert list(record.items()) == [
        ("timestamp", 130.5),
        ("request_timestamp", 104),
        ("method", "POST"),
        ("path", "/v1/chat/completions"),
        ("status_code", 200),
        ("request", chat(USER, model="m", input_ids=plan.prompt_ids.tolist())),
        ("response", GOOD),
    ]


def test_records_are_those_of_the_moment_they_were_asked_for() -> None:
    session = trajectory()
    spoken(session, "u1")
    found = session.iter_records()
    spoken(session, "u2")
    assert len(list(found)) == 1
    assert len(session.records()) == 2


def test_an_empty_sessions_metadata() -> None:
    assert trajectory().metadata([]) == {"accumulated_token_ids": [], "max_trim_tokens": 0}
    assert trajectory().records() == []
    assert trajectory().token_ids().tolist() == []


@pytest.mark.parametrize(
    ("mismatch", "keys"),
    [
        ([], ["tito_session_mismatch", "accumulated_token_ids", "max_trim_tokens"]),
        (None, ["accumulated_token_ids", "max_trim_tokens"]),
    ],
    ids=["reported", "check_failed"],
)
def test_metadata_has_its_keys_in_order(mismatch: Any, keys: list[str]) -> None:
    session = trajectory(Words(max_trim_tokens=1))
    spoken(session, "u1", "u2")
    found = session.metadata(mismatch)
    assert list(found) == keys
    assert found["accumulated_token_ids"] == session.token_ids().tolist()
    assert all(type(number) is int for number in found["accumulated_token_ids"])
    assert found["max_trim_tokens"] == 1
    assert found.get("tito_session_mismatch") == mismatch


def test_a_snapshot_is_not_changed_by_later_turns() -> None:
    session = trajectory(Words(launch_kwargs={"thinking": False}))
    body = chat(USER, tools=[{"name": "f"}], chat_template_kwargs={"x": 1})
    take_turn(session, body, GOOD)
    snapshot = session.snapshot()
    messages, ids = session.messages, session.token_ids().tolist()
    take_turn(session, chat(*messages, USER), GOOD)
    assert (snapshot.version, snapshot.messages, snapshot.token_ids) == (1, messages, ids)
    assert snapshot.tools == [{"name": "f"}]
    assert snapshot.kwargs == {"thinking": False, "x": 1}


def test_a_snapshot_of_an_empty_session_is_empty() -> None:
    snapshot = trajectory().snapshot()
    assert (snapshot.version, snapshot.messages, snapshot.token_ids) == (0, (), [])
    assert (snapshot.tools, snapshot.kwargs) == (None, {})


def test_a_mismatch_report_can_be_made_of_a_snapshot() -> None:
    words = Words()
    session = trajectory(words)
    reply = answer([*words.ids("a b"), 1], message=say("assistant", "a b"))
    take_turn(session, chat(USER), reply)
    snapshot = session.snapshot()
    report = words.mismatch(snapshot.messages, snapshot.tools, snapshot.kwargs, snapshot.token_ids)
    assert report == []
