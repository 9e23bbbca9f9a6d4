"""What a tree keeps and shows: every turn, siblings, the newest conversation, 1024 nodes."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import pytest

from sample_wire.errors import SessionError
from sample_wire.session import TurnPlan, upstream_body
from sample_wire.session.tree import MAX_NODES

from ._trees import A1, A2, A3, SYSTEM, T1, T2, U1, WHOLE, grow, line, parents, paths
from ._words import (
    FULL,
    INCREMENTAL,
    Words,
    answer,
    chat,
    raw_base64,
    refusal,
    routed,
    say,
    sent,
    state,
    take_turn,
    tree,
)


def test_a_plan_changes_nothing() -> None:
    session = line(tree())
    before = state(session)
    plans = [session.plan(chat(*WHOLE[:count])) for count in (1, 2, 4, 7)]
    assert state(session) == before
    assert [plan.version for plan in plans] == [3] * 4


@pytest.mark.parametrize("reply", [b"<html>", b"{}", b""])
def test_a_bad_reply_is_a_502_that_leaves_the_view_as_it_was(reply: bytes) -> None:
    session = line(tree())
    before = state(session)
    body = chat(SYSTEM, U1, A1, T1)
    with pytest.raises(SessionError) as error:
        session.commit(session.plan(body), body, reply, None, None)
    assert refusal(error) == (502, "bad_engine_reply")
    assert state(session) == before


def test_turns_that_were_planned_on_one_node_are_siblings_whichever_ends_first() -> None:
    session = tree()
    grow(session, U1, says=A1)
    bodies = [chat(U1, A1, say("user", text)) for text in ("x", "y", "x")]
    plans = [session.plan(body) for body in bodies]
    for number in (1, 2, 0):
        session.commit(plans[number], bodies[number], sent(answer([60 + number])), None, None)
    assert parents(session) == [None, 0, 0, 0]
    assert session.token_ids()[-1] == 60
    assert paths(session) == [[0, 1], [0, 2], [0, 3]]


def test_a_turn_planned_before_another_root_was_committed_is_a_root_too() -> None:
    session = tree()
    plan = session.plan(chat(U1))
    grow(session, U1, says=A1)
    session.commit(plan, chat(U1), sent(answer([60])), None, None)
    assert parents(session) == [None, None]


def test_the_newest_turns_conversation_is_what_the_session_shows() -> None:
    session = line(tree())
    assert session.messages == tuple(WHOLE)
    grow(session, SYSTEM, U1, A1, T1, says=say("assistant", "again"), output=(70, 71))
    assert session.messages == (SYSTEM, U1, A1, T1, say("assistant", "again"))
    assert session.token_ids().tolist()[-2:] == [70, 71]
    assert [len(record["request"]["messages"]) for record in session.records()] == [2, 4]
    assert session.metadata(None)["accumulated_token_ids"] == session.token_ids().tolist()


def test_the_records_are_those_that_were_sent() -> None:
    session = tree()
    body = chat(U1, model="m")
    upstream = upstream_body(session.plan(body), body, incremental=False)
    session.commit(session.plan(body), upstream, sent(answer([50])), 2.5, 1.5)
    assert session.records() == [
        {
            "timestamp": 2.5,
            "request_timestamp": 1.5,
            "method": "POST",
            "path": "/v1/chat/completions",
            "status_code": 200,
            "request": upstream,
            "response": answer([50]),
        }
    ]


def test_records_that_are_being_taken_are_those_of_their_moment() -> None:
    session = line(tree())
    records = session.iter_records()
    grow(session, say("user", "other"))
    assert len(list(records)) == 3


def test_the_tree_is_told_in_the_order_of_commits() -> None:
    session = tree()
    grow(session, U1, says=A1, output=(50, 51))
    grow(session, U1, A1, T1, says=A2, finish="length")
    grow(session, U1, A1, T1, says=A3)
    told = session.metadata([])["tree"]
    num_prompt = told["nodes"][0]["completion_span"][0]
    assert told["nodes"][0] == {
        "id": 0,
        "parent": None,
        "seq": 0,
        "truncated": False,
        "committed_at": 0.0,
        "completion_span": [num_prompt, num_prompt + 2],
        "num_tokens": num_prompt + 2,
        "response_id": "r0",
    }
    assert [node["truncated"] for node in told["nodes"]] == [False, True, False]
    assert [node["parent"] for node in told["nodes"]] == [None, 0, 0]
    assert [node["committed_at"] for node in told["nodes"]] == [0.0, 1.0, 2.0]
    assert [node["response_id"] for node in told["nodes"]] == ["r0", "r1", "r2"]
    assert told["leaves"] == [
        {"node_id": 1, "path_node_ids": [0, 1]},
        {"node_id": 2, "path_node_ids": [0, 2]},
    ]


@pytest.mark.parametrize("name", [None, 7, ["r"]])
def test_a_reply_without_a_name_has_an_empty_one(name: Any) -> None:
    session = tree()
    reply = answer([50]) | {"id": name}
    if name is None:
        del reply["id"]
    take_turn(session, chat(U1), reply)
    assert session.metadata(None)["tree"]["nodes"][0]["response_id"] == ""


def test_metadata_is_told_in_its_order() -> None:
    session = line(tree())
    keys = ["tito_session_mismatch", "accumulated_token_ids", "max_trim_tokens", "tree"]
    assert list(session.metadata([])) == keys
    assert list(session.metadata(None)) == keys[1:]


def test_an_empty_tree_tells_that_it_is() -> None:
    session = tree()
    assert session.metadata([]) == {
        "accumulated_token_ids": [],
        "max_trim_tokens": 0,
        "tree": {"nodes": [], "leaves": []},
    }
    assert (session.version, session.messages, session.records()) == (0, (), [])
    assert session.ends() == (0,)
    assert session.snapshot().token_ids == []


def test_every_leaf_is_an_end_whose_snapshot_never_changes() -> None:
    session = line(tree())
    grow(session, SYSTEM, U1, A1, T1, says=A2, output=(70,), tools=None)
    assert session.ends() == (3, 4)
    before = session.snapshot(3)
    grow(session, *WHOLE, T1)
    after = session.snapshot(3)
    assert session.ends() == (4, 5)
    assert (before.messages, before.token_ids) == (after.messages, after.token_ids)
    assert before.messages == tuple(WHOLE)
    assert session.snapshot().version == 5


def test_a_client_gets_its_own_turns_reply_without_routing() -> None:
    session = tree(routing=FULL)
    first, second = session.plan(chat(U1)), session.plan(chat(U1))
    rows = raw_base64(routed(len(first.prompt_ids)))
    turns = [
        session.commit(plan, chat(U1), sent(answer([number], routed_experts=rows)), None, None)
        for plan, number in ((first, 60), (second, 70))
    ]
    replies = [session.client_reply(turn) for turn in turns]
    for reply, number in zip(replies, (60, 70), strict=True):
        assert reply == answer([number])


def test_branches_ask_for_the_rows_that_their_node_does_not_have() -> None:
    session = tree(routing=INCREMENTAL)
    for messages in ([U1], [U1, say("assistant", "said"), T1], [U1, say("assistant", "said"), T2]):
        body = chat(*messages, return_routed_experts=True)
        plan = session.plan(body)
        upstream = upstream_body(plan, body, incremental=True)
        held = 0 if plan.base is None else plan.base.num_tokens - 1
        assert upstream["routed_experts_start_len"] == held == plan.start_row
        rows = routed(len(plan.prompt_ids) - held, held)
        reply = answer([50], routed_experts=raw_base64(rows))
        session.commit(plan, upstream, sent(reply), None, None)
    assert parents(session) == [None, 0, 0]
    assert session.records()[1]["request"] == upstream


def test_a_message_that_its_sender_changes_later_stays_as_it_was() -> None:
    session = tree()
    message = copy.deepcopy(U1)
    grow(session, message)
    message["content"] = "changed"
    assert session.messages[0] == U1


def full() -> Any:
    """A session with one place left, and a plan that holds it."""
    session = tree()
    for _ in range(MAX_NODES - 1):
        grow(session, U1)
    return session, session.plan(chat(U1))


def test_a_turn_that_has_no_place_is_refused_before_the_engine_is_asked() -> None:
    session, plan = full()
    refused: list[tuple[int, str]] = []
    with pytest.raises(SessionError, match="at most 1024 turns") as error:
        session.plan(chat(say("user", "other")))
    refused.append(refusal(error))
    session.commit(plan, chat(U1), sent(answer([50])), None, None)
    with pytest.raises(SessionError) as error:
        session.plan(chat(U1))
    refused.append(refusal(error))
    assert refused == [(409, "too_many_turns")] * 2
    assert session.version == MAX_NODES


def test_a_plan_that_came_to_nothing_gives_its_place_back() -> None:
    session, plan = full()
    dropped = weakref.ref(plan)
    del plan
    gc.collect()
    assert dropped() is None
    assert isinstance(session.plan(chat(U1)), TurnPlan)


def test_a_tree_is_freed_with_its_last_reference() -> None:
    words = Words()
    session = line(tree(words))
    freed = weakref.ref(words)
    gc.disable()
    try:
        del session, words
        assert freed() is None
    finally:
        gc.enable()
