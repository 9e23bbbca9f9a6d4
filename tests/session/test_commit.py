"""Committing: the engine's reply is checked, and the state changes at once or not at all."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from sample_wire.errors import SessionError
from sample_wire.session import LinearTrajectory

from ._words import (
    FULL,
    INCREMENTAL,
    answer,
    chat,
    raw_base64,
    refusal,
    routed,
    say,
    sent,
    spoken,
    state,
    take_turn,
    trajectory,
)

USER = say("user", "hi")
# Of a first turn with two output tokens.
NUM_ROWS = 6


def without(reply: Any, *path: Any) -> Any:
    """A reply without the value at a path."""
    found = copy.deepcopy(reply)
    holder = found
    for key in path[:-1]:
        holder = holder[key]
    del holder[path[-1]]
    return found


def with_value(reply: Any, value: Any, *path: Any) -> Any:
    """A reply with a value at a path."""
    found = copy.deepcopy(reply)
    holder = found
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return found


GOOD = answer([50, 51])
META = ("choices", 0, "meta_info")
MESSAGE = ("choices", 0, "message")
BAD_REPLIES = {
    "no_json": (b"<html>", "not JSON"),
    "empty": (b"", "not JSON"),
    "cut_short": (sent(GOOD)[:-9], "not JSON"),
    "bad_utf8": (sent(GOOD).replace(b"said", b"sa\xffd"), "not JSON"),
    "list": ([], "no object with choices"),
    "null": (None, "no object with choices"),
    "choices_empty": (with_value(GOOD, [], "choices"), "no object with choices"),
    "choices_null": (with_value(GOOD, None, "choices"), "no object with choices"),
    "choices_text": (with_value(GOOD, "x", "choices"), "no object with choices"),
    "choice_null": (with_value(GOOD, [None], "choices"), "no object with choices"),
    "no_choices": (without(GOOD, "choices"), "no output_token_logprobs"),
    "no_meta_info": (without(GOOD, *META), "no output_token_logprobs"),
    "meta_info_null": (with_value(GOOD, None, *META), "no output_token_logprobs"),
    "meta_info_list": (with_value(GOOD, [], *META), "no output_token_logprobs"),
    "no_log_probs": (without(GOOD, *META, "output_token_logprobs"), "no output_token_logprobs"),
    "log_probs_null": (
        with_value(GOOD, None, *META, "output_token_logprobs"),
        "no output_token_logprobs",
    ),
    "no_message": (without(GOOD, *MESSAGE), "no content"),
    "message_null": (with_value(GOOD, None, *MESSAGE), "no content"),
    "message_text": (with_value(GOOD, "x", *MESSAGE), "no content"),
    "content_null": (with_value(GOOD, None, *MESSAGE, "content"), "no content"),
    "content_number": (with_value(GOOD, 5, *MESSAGE, "content"), "neither text nor a list"),
    "content_object": (with_value(GOOD, {}, *MESSAGE, "content"), "neither text nor a list"),
    "content_false": (with_value(GOOD, False, *MESSAGE, "content"), "neither text nor a list"),
    "role_number": (with_value(GOOD, 5, *MESSAGE, "role"), "role is no text"),
    "calls_object": (with_value(GOOD, {"a": 1}, *MESSAGE, "tool_calls"), "no list of objects"),
    "calls_numbers": (with_value(GOOD, [5], *MESSAGE, "tool_calls"), "no list of objects"),
    "id_negative": (answer([-10]), "below 0"),
    "no_completion_tokens": (without(GOOD, *META, "completion_tokens"), "is NoneType, there are 2"),
    "count": (with_value(GOOD, 3, *META, "completion_tokens"), "is 3, there are 2"),
    "count_text": (with_value(GOOD, "2", *META, "completion_tokens"), "is str, there are 2"),
    "count_true": (answer([5], completion_tokens=True), "is bool, there are 1"),
    "nan": (answer([50], log_probs=[float("nan")]), "log-prob 0 of 1"),
    "log_prob_missing": (answer([50], log_probs=[None]), "log-prob 0 of 1"),
    "entry": (with_value(GOOD, [1, 2], *META, "output_token_logprobs"), "no [logprob, id]"),
    "id_is_text": (answer(["x"]), "no list of integers"),  # type: ignore[list-item]  # wrong on purpose
    "weight_version": (answer([50], weight_version=7), "malformed"),
    "second_choice": (with_value(GOOD, [GOOD["choices"][0], 7], "choices"), "malformed"),
    "surrogate": (
        answer([50], message=say("assistant", "\ud800")),
        "cannot be written as JSON again",
    ),
}


@pytest.mark.parametrize(("reply", "rule"), BAD_REPLIES.values(), ids=BAD_REPLIES)
def test_a_reply_that_breaks_a_rule_is_a_502_that_changes_nothing(reply: Any, rule: str) -> None:
    session = trajectory()
    spoken(session, "u1")
    before = state(session)
    body = chat(*session.messages, USER)
    raw = reply if isinstance(reply, bytes) else sent(reply)
    with pytest.raises(SessionError, match=r"^bad engine reply: ") as error:
        session.commit(session.plan(body), body, raw, None, None)
    assert refusal(error) == (502, "bad_engine_reply")
    assert rule in str(error.value)
    assert state(session) == before


ECHOES = ['["\\ud800"]', "[1e999]", "[1,]", "[NaN]", "[" * 3000 + "]" * 3000]


@pytest.mark.parametrize("ids", ECHOES, ids=["surrogate", "overflow", "comma", "nan", "deep"])
def test_prompt_ids_that_are_no_list_of_integers_are_a_502(ids: str) -> None:
    session = trajectory()
    raw = sent(GOOD).replace(b'"index": 0', b'"index": 0, "prompt_token_ids": ' + ids.encode())
    with pytest.raises(SessionError) as error:
        session.commit(session.plan(chat(USER)), chat(USER), raw, None, None)
    assert refusal(error) == (502, "bad_engine_reply")


RULES_IN_ORDER = [
    (lambda reply: with_value(reply, "odd", "choices"), "choices"),
    (lambda reply: without(reply, *META, "output_token_logprobs"), "output_token_logprobs"),
    (lambda reply: with_value(reply, None, *MESSAGE, "content"), "content"),
    (lambda reply: with_value(reply, 9, *META, "completion_tokens"), "completion_tokens"),
]


@pytest.mark.parametrize("first", range(len(RULES_IN_ORDER)))
def test_the_first_violated_rule_is_told(first: int) -> None:
    reply = GOOD
    for break_rule, _ in reversed(RULES_IN_ORDER[first:]):
        reply = break_rule(reply)
    with pytest.raises(SessionError) as error:
        take_turn(trajectory(), chat(USER), reply)
    assert RULES_IN_ORDER[first][1] in str(error.value)


ROUTING_FAULTS = {
    "number": 7,
    "list": [[[1]]],
    "no_base64": "@@@@",
    "empty_for_rows": "",
    "one_row_less": raw_base64(routed(NUM_ROWS - 1)),
    "three_bytes": "AAAA",
    "other_object": {"data": 7},
    "object_without_dtype": {"data": "AAAA", "shape": [1, 1, 1]},
    "object_data_not_ascii": {"data": "\u00e9", "shape": [1, 1, 1], "dtype": "int32"},
}


@pytest.mark.parametrize("value", ROUTING_FAULTS.values(), ids=ROUTING_FAULTS)
def test_routing_that_cannot_be_read_is_a_502_that_changes_nothing(value: Any) -> None:
    session = trajectory(routing=FULL)
    before = state(session)
    with pytest.raises(SessionError) as error:
        take_turn(session, chat(USER), answer([50, 51], routed_experts=value))
    assert refusal(error) == (502, "bad_engine_reply")
    assert "turn 1: routed_experts" in str(error.value)
    assert state(session) == before


def test_empty_content_is_content() -> None:
    session = trajectory()
    take_turn(session, chat(USER), answer([50], message=say("assistant", "")))
    assert session.messages[1]["content"] == ""


def test_an_aborted_reply_without_tokens_or_weight_version_is_a_turn() -> None:
    """C24."""
    session = trajectory()
    take_turn(session, chat(USER), answer([], finish="abort"))
    (sample,) = session.collect().samples
    assert sample.status.value == "aborted"
    assert sample.weight_versions == []
    assert sample.response_length == 0


def test_a_log_prob_of_minus_infinity_is_kept_and_the_client_gets_null() -> None:
    """C11: the reply is no strict JSON, and yet a turn like any other."""
    session = trajectory(routing=FULL)
    reply = answer(
        [50, 51],
        log_probs=[-0.25, -float("inf")],
        routed_experts=raw_base64(routed(NUM_ROWS)),
    )
    take_turn(session, chat(say("user", "hi")), reply)
    assert session.turns[0].log_probs.tolist() == [-0.25, -float("inf")]
    assert session.records()[0]["response"] == reply
    client = session.client_reply(session.turns[0])
    assert client == without(reply, *META, "routed_experts")


def test_a_null_array_stays_in_a_reply_that_is_no_strict_json() -> None:
    session = trajectory()
    reply = answer([50], log_probs=[-float("inf")])
    reply["choices"][0]["meta_info"]["routed_experts"] = None
    take_turn(session, chat(USER), reply)
    assert session.records()[0]["response"] == reply


@pytest.mark.parametrize("message", [{"content": "x"}, {"role": None, "content": "x"}])
def test_a_message_that_names_no_role_is_the_assistants(message: Any) -> None:
    session = trajectory()
    take_turn(session, chat(USER), answer([50], message=message))
    assert session.messages[1] == say("assistant", "x")
    assert session.records()[0]["response"]["choices"][0]["message"] == message


def test_the_first_choice_counts_and_the_others_are_recorded() -> None:
    session = trajectory()
    reply = answer([50])
    other = answer([60, 61], routed_experts="odd")["choices"][0]
    reply["choices"].append(other)
    take_turn(session, chat(USER, n=2), reply)
    assert session.token_ids()[-1] == 50
    assert session.records()[0]["response"] == reply
    client = session.client_reply(session.turns[0])
    assert client["choices"][1] == without(answer([60, 61], x=1), "id")["choices"][0] | {
        "meta_info": answer([60, 61])["choices"][0]["meta_info"]
    }


def test_a_client_gets_all_but_the_arrays() -> None:
    session = trajectory(routing=FULL)
    text = raw_base64(routed(NUM_ROWS))
    reply = answer([50, 51], routed_experts=text, sglext={"routed_experts": text, "x": 1})
    take_turn(session, chat(USER), reply)
    expected = answer([50, 51], sglext={"x": 1})
    assert session.client_reply(session.turns[0]) == expected


@pytest.mark.parametrize("sglext", [[], "x", 7, None], ids=["list", "text", "number", "null"])
def test_an_sglext_that_is_no_object_is_refused_or_ignored(sglext: Any) -> None:
    session = trajectory()
    reply = answer([50]) | {"sglext": sglext}
    if sglext is None:
        take_turn(session, chat(USER), reply)
        assert session.client_reply(session.turns[0]) == reply
    else:
        with pytest.raises(SessionError, match="malformed"):
            take_turn(session, chat(USER), reply)


def test_meta_info_beside_the_choices_is_recorded_and_tells_no_turn() -> None:
    session = trajectory()
    reply = answer([50]) | {
        "meta_info": {"output_token_logprobs": [[-1, 9]], "completion_tokens": 1}
    }
    take_turn(session, chat(USER), reply)
    assert session.token_ids()[-1] == 50
    assert session.records()[0]["response"] == reply


def test_keys_of_wrapped_records_mean_nothing_in_a_reply() -> None:
    session = trajectory()
    reply = answer([50]) | {"body": {"x": 1}, "sse": []}
    take_turn(session, chat(USER), reply)
    assert session.records()[0]["response"] == reply


def test_a_turn_planned_before_another_was_committed_is_stale() -> None:
    session = trajectory()
    spoken(session, "u1")
    body = chat(*session.messages, USER)
    plan = session.plan(body)
    spoken(session, "u2")
    before = state(session)
    with pytest.raises(SessionError) as error:
        session.commit(plan, body, sent(GOOD), None, None)
    assert refusal(error) == (409, "stale_turn")
    assert state(session) == before


def test_a_rollback_and_a_commit_meanwhile_make_a_plan_stale_though_the_count_is_equal() -> None:
    session = trajectory()
    spoken(session, "u1", "u2")
    body = chat(*session.messages, USER)
    plan = session.plan(body)
    retry = chat(*session.messages[:3])
    take_turn(session, retry, answer([90]))
    assert len(session.turns) == 2
    with pytest.raises(SessionError) as error:
        session.commit(plan, body, sent(GOOD), None, None)
    assert refusal(error) == (409, "stale_turn")


def test_of_two_plans_for_one_state_the_first_commit_wins() -> None:
    session = trajectory()
    plans = [session.plan(chat(USER)) for _ in range(2)]
    session.commit(plans[1], chat(USER), sent(GOOD), None, None)
    with pytest.raises(SessionError) as error:
        session.commit(plans[0], chat(USER), sent(GOOD), None, None)
    assert error.value.code == "stale_turn"
    assert len(session.turns) == 1


def test_a_plan_is_still_good_after_a_bad_reply() -> None:
    session = trajectory()
    plan = session.plan(chat(USER))
    with pytest.raises(SessionError):
        session.commit(plan, chat(USER), b"{}", None, None)
    session.commit(plan, chat(USER), sent(GOOD), None, None)
    assert session.version == 1


def test_an_engine_that_never_answers_leaves_the_session_as_it_was() -> None:
    session = trajectory()
    spoken(session, "u1", "u2")
    before = state(session)
    session.plan(chat(*session.messages[:3]))
    assert state(session) == before


def test_routing_rows_that_cannot_be_placed_are_told_when_they_are_needed() -> None:
    session = trajectory(routing=INCREMENTAL)
    rows = raw_base64(routed(NUM_ROWS))
    reply = answer([50, 51], routed_experts=rows)
    take_turn(session, chat(USER), reply)
    assert session.records()[0]["response"] == reply
    with pytest.raises(ValueError, match="turn 1: additional R3"):
        session.collect(routing=INCREMENTAL)


def test_a_trajectory_shows_its_turns_in_order() -> None:
    session: LinearTrajectory = trajectory()
    spoken(session, "u1", "u2", "u3")
    assert [turn.number for turn in session.turns] == [1, 2, 3]
    assert [len(turn.output_ids(1)) for turn in session.turns] == [1, 1, 1]
