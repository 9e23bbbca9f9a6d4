"""Chat requests: parsing, what is forced and dropped, and that records give them back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sample_wire._json import MAX_JSON_VALUES
from sample_wire.errors import SessionError
from sample_wire.session import ChatRequest, normalise, parse_body
from sample_wire.session.requests import MAX_KEYS, HeldMessages, HeldRequest

from ._words import Words, answer, chat, refusal, say, take_turn, trajectory

FORCED = {"logprobs": True, "return_meta_info": True, "no_stop_trim": False}


def normalised(
    body: dict[str, Any],
    *,
    routing: bool = False,
    indexer: bool = False,
    launch: dict[str, Any] | None = None,
) -> ChatRequest:
    """normalise with a tokenizer of these launch options."""
    tokenizer = Words(launch_kwargs=launch)
    return normalise(body, tokenizer=tokenizer, routing=routing, indexer=indexer)


def test_an_empty_body_is_an_empty_object() -> None:
    assert parse_body(b"") == {}


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"nope",
        b'{"a":NaN}',
        b'{"a":"\xff"}',
        b'{"a":"\\ud800"}',
        b'{"a":1e999}',
        b"[" * 99999,
    ],
    ids=["open", "word", "nan", "utf8", "surrogate", "overflow", "deep"],
)
def test_a_body_that_is_no_json_is_a_400(text: bytes) -> None:
    with pytest.raises(SessionError, match=r"^invalid JSON body: ") as error:
        parse_body(text)
    assert refusal(error) == (400, "invalid_json")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'{"a":"\\ud800"}', "a string holds a lone surrogate"),
        (b'{"a":"\\udc00 and more text"}', "a string holds a lone surrogate"),
        (b'{"a":' + b"[" * 128 + b"]" * 128 + b"}", "it nests deeper than 128"),
        (b'{"a":', "Input data was truncated"),
        (b'{"a":NaN}', "JSON is malformed"),
    ],
    ids=["surrogate", "surrogate in text", "deep", "cut", "nan"],
)
def test_the_refusal_of_a_body_says_what_is_wrong_with_it(text: bytes, said: str) -> None:
    with pytest.raises(SessionError, match=f"^invalid JSON body: {said}"):
        parse_body(text)


def test_a_body_may_nest_as_deep_as_the_wire_lets_it() -> None:
    text = b'{"a":' + b"[" * 127 + b"]" * 127 + b"}"
    assert list(parse_body(text)) == ["a"]


def test_a_body_has_at_most_so_many_values() -> None:
    text = b'{"a":[%b0]}'
    assert len(parse_body(text % (b"0," * (MAX_JSON_VALUES - 2)))["a"]) == MAX_JSON_VALUES - 1
    with pytest.raises(SessionError, match="more than 262144 values") as error:
        parse_body(text % (b"0," * (MAX_JSON_VALUES - 1)))
    assert refusal(error) == (400, "invalid_json")


def test_a_body_has_at_most_so_many_keys() -> None:
    keys = [f"k{number}" for number in range(MAX_KEYS + 1)]
    assert len(parse_body(json.dumps(dict.fromkeys(keys[1:])).encode())) == MAX_KEYS
    with pytest.raises(SessionError, match="more than 1024 keys") as error:
        parse_body(json.dumps(dict.fromkeys(keys)).encode())
    assert refusal(error) == (400, "bad_request")


def test_commas_and_brackets_in_its_texts_are_no_values_of_a_body() -> None:
    assert len(parse_body(b'{"a":"%b"}' % (b"[{," * MAX_JSON_VALUES))["a"]) == 3 * MAX_JSON_VALUES


def test_routing_cannot_be_asked_for_where_its_shape_is_not_known() -> None:
    with pytest.raises(SessionError, match="return_routed_experts") as error:
        normalised({"return_routed_experts": True})
    assert refusal(error) == (400, "routing_off")


@pytest.mark.parametrize("text", [b"[]", b"null", b'"x"', b"3"])
def test_a_body_that_is_no_object_is_a_400(text: bytes) -> None:
    with pytest.raises(SessionError) as error:
        parse_body(text)
    assert refusal(error) == (400, "bad_request")


def test_numbers_beyond_64_bits_are_kept() -> None:
    assert parse_body(b'{"seed":100000000000000000000001}') == {"seed": 100000000000000000000001}


def test_what_the_engine_must_know_is_forced() -> None:
    body = {"logprobs": False, "return_meta_info": False, "no_stop_trim": True}
    assert normalised(body).body == FORCED


def test_unknown_keys_pass_and_the_clients_body_is_not_changed() -> None:
    body = {"model": "m", "n": 2, "zzz": {"a": [1]}, "stream": True, "temperature": 0.5}
    before = dict(body)
    assert normalised(body).body == {
        "model": "m",
        "n": 2,
        "zzz": {"a": [1]},
        "temperature": 0.5,
        **FORCED,
    }
    assert body == before


@pytest.mark.parametrize(
    ("value", "expected"),
    [(True, True), (False, False), (None, False), (0, False), ("yes", True)],
    ids=["true", "false", "null", "zero", "text"],
)
def test_the_stream_flag_is_remembered_and_dropped(value: Any, expected: bool) -> None:
    request = normalised({"stream": value, "stream_options": {"include_usage": True}})
    assert request.wants_stream is expected
    assert request.body == FORCED


def test_replay_asks_the_engine_for_its_arrays() -> None:
    body = {"return_routed_experts": False}
    asked = normalised(body, routing=True, indexer=True).body
    assert asked["return_routed_experts"] is True
    assert asked["return_indexer_topk"] is True


def test_without_replay_a_clients_own_wish_is_left() -> None:
    body = {"return_routed_experts": False, "return_indexer_topk": True}
    assert normalised(body).body == body | FORCED
    assert normalised({}).body == FORCED


def test_a_clients_start_row_is_dropped() -> None:
    assert normalised({"routed_experts_start_len": 3}).body == FORCED


@pytest.mark.parametrize("given", [None, {}], ids=["null", "empty"])
@pytest.mark.parametrize("launch", [{}, {"thinking": False}], ids=["plain", "launched"])
def test_absent_template_options_leave_those_of_the_launch(given: Any, launch: Any) -> None:
    body = normalised({"chat_template_kwargs": given}, launch=launch).body
    assert body.get("chat_template_kwargs", {}) == launch
    assert ("chat_template_kwargs" in body) is bool(launch)


def test_template_options_of_a_request_overlay_those_of_the_launch() -> None:
    body = {"chat_template_kwargs": {"thinking": True, "x": 1}}
    launch = {"thinking": False, "y": 2}
    found = normalised(body, launch=launch).body["chat_template_kwargs"]
    assert found == {"thinking": True, "x": 1, "y": 2}


@pytest.mark.parametrize("given", [[], "x", 0, False, True], ids=repr)
def test_template_options_that_are_no_object_are_a_400(given: Any) -> None:
    with pytest.raises(SessionError) as error:
        normalised({"chat_template_kwargs": given})
    assert refusal(error) == (400, "template_kwargs")


def test_reasoning_keys_at_the_top_do_not_reach_the_renderer() -> None:
    body = chat(say("user", "x"), reasoning_effort="high", reasoning={"effort": "high"})
    plain = trajectory(Words()).plan(chat(say("user", "x"))).prompt_ids.tolist()
    assert trajectory(Words()).plan(body).prompt_ids.tolist() == plain


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="none"),
        pytest.param({"seed": 10**30, "temperature": 1, "top_p": 1.0, "x": True}, id="numbers"),
        pytest.param({"user": '\u00e9\U0001f600\n"', "a": None, "b": [], "c": {}}, id="texts"),
        pytest.param({"tools": [{"z": 1, "a": {"b": -0.0}}], "tool_choice": "auto"}, id="tools"),
        pytest.param({"body": {"x": 1}, "sse": [1]}, id="keys_of_a_wrapped_record"),
    ],
)
def test_a_record_gives_the_request_back(options: dict[str, Any]) -> None:
    session = trajectory(Words())
    body = {"model": "m", **chat(say("user", "x", name="n", extra=[1, None]), **options)}
    plan = take_turn(session, body, answer([5]))
    (record,) = session.records()
    assert repr(record["request"]) == repr(body | {"input_ids": plan.prompt_ids.tolist()})


def test_messages_that_change_their_spelling_are_given_back_as_each_turn_had_them() -> None:
    session = trajectory(Words())
    requests = []
    for turn in range(6):
        messages = [
            dict(message, name=f"n{turn}") if index % 3 == turn % 3 else dict(message)
            for index, message in enumerate(session.messages)
        ]
        body = chat(
            *messages, say("user", f"u{turn}"), tools=[turn // 2], n=[1, True, 1.0][turn % 3]
        )
        requests.append(body)
        take_turn(session, body, answer([turn], message=say("assistant", f"a{turn}")))
    found = [record["request"] for record in session.records()]
    for request in found:
        del request["input_ids"]
    assert repr(found) == repr(requests)


def test_changing_a_request_afterwards_changes_nothing_stored() -> None:
    session = trajectory(Words())
    body = chat(say("user", ["x"]))
    take_turn(session, body, answer([5]))
    body["messages"][0]["content"].append("y")
    assert session.messages[0]["content"] == ["x"]
    assert session.records()[0]["request"]["messages"] == [say("user", ["x"])]


def test_held_messages_are_a_sequence_of_those_of_the_request() -> None:
    messages = [say("user", "a"), say("assistant", "b")]
    held = HeldMessages(HeldRequest.of(chat(*messages), None))
    assert len(held) == 2
    assert held[1] == messages[1]
    assert [*held] == messages
