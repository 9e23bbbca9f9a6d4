"""Message matchers: BEHAVIOUR's rules on when a replayed message is the stored one."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sample_wire._json import MAX_JSON_VALUES
from sample_wire.errors import SessionError
from sample_wire.session import matcher, prefix_length

from ._words import refusal, say


def call(arguments: Any, **keys: Any) -> dict[str, Any]:
    """An assistant message with one tool call."""
    function = {"name": "f", "arguments": arguments}
    return say("assistant", "", tool_calls=[{"id": "c1", "function": function, **keys}])


def always_true(_stored: Any, _replayed: Any) -> bool:
    return True


def gives_one(_stored: Any, _replayed: Any) -> Any:
    return 1


def raises_key_error(_stored: Any, _replayed: Any) -> bool:
    raise KeyError("secret")


async def asynchronous(_stored: Any, _replayed: Any) -> bool:
    return True


class AsynchronousCall:
    async def __call__(self, _stored: Any, _replayed: Any) -> bool:
        return True


asynchronous_object = AsynchronousCall()
not_callable = 7
HERE = __name__


@pytest.mark.parametrize("name", ["strict", "loose_tool_call", "role_content_only"])
@pytest.mark.parametrize(
    ("stored", "replayed", "expected"),
    [
        pytest.param(say("user", "x"), say("user", "x"), True, id="equal"),
        pytest.param(say("user", "x"), say("user", "x "), False, id="trailing_space"),
        pytest.param(say("user", "x"), say("tool", "x"), False, id="role"),
        pytest.param(say("user", None), say("user", ""), True, id="none_is_empty"),
        pytest.param({"role": "user"}, say("user", []), True, id="missing_is_empty_list"),
        pytest.param(say("user", 0), say("user", None), False, id="zero_is_not_empty"),
        pytest.param(say("user", {}), say("user", None), False, id="object_is_not_empty"),
        pytest.param(say("user", [1]), say("user", [True]), False, id="true_is_not_one"),
        pytest.param(
            say("user", [{"a": 1, "b": 2}]), say("user", [{"b": 2, "a": 1}]), True, id="key_order"
        ),
        pytest.param(say("user", "x", name="n"), say("user", "x"), True, id="name_is_ignored"),
        pytest.param(
            say("tool", "x", tool_call_id="1"), say("tool", "x"), True, id="call_id_is_ignored"
        ),
        pytest.param(
            say("user", "x", refusal="r"), say("user", "x"), True, id="refusal_is_ignored"
        ),
    ],
)
def test_role_and_content_decide_in_every_matcher(
    name: str, stored: Any, replayed: Any, expected: bool
) -> None:
    assert matcher(name)(stored, replayed) is expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("strict", False), ("loose_tool_call", False), ("role_content_only", True)],
    ids=["strict", "loose", "role_content"],
)
@pytest.mark.parametrize("key", ["reasoning_content", "tool_calls"])
def test_reasoning_and_tool_calls_count_but_for_role_content_only(
    key: str, name: str, expected: bool
) -> None:
    stored = say("assistant", "x", **{key: [{"id": "1"}] if key == "tool_calls" else "why"})
    assert matcher(name)(stored, say("assistant", "x")) is expected


@pytest.mark.parametrize("name", ["strict", "loose_tool_call"])
@pytest.mark.parametrize(
    ("stored", "replayed", "expected"),
    [
        pytest.param(call("{}", index=0), call("{}"), True, id="index_is_ignored"),
        pytest.param(call("{}", type="function"), call("{}"), False, id="other_keys_count"),
        pytest.param(
            say("assistant", tool_calls=[]), say("assistant", tool_calls=None), True, id="no_calls"
        ),
        pytest.param(call('{"a":1}'), call('{"a":2}'), False, id="argument_value"),
        pytest.param(
            say("assistant", tool_calls="odd"), say("assistant", tool_calls="odd"), True, id="text"
        ),
        pytest.param(
            say("assistant", tool_calls="odd"),
            say("assistant", tool_calls=["x"]),
            False,
            id="kinds",
        ),
        pytest.param(
            say("assistant", tool_calls=["x"]),
            say("assistant", tool_calls=["y"]),
            False,
            id="words",
        ),
        pytest.param(
            say("assistant", tool_calls=[{"function": "f"}]),
            say("assistant", tool_calls=[{"function": "g"}]),
            False,
            id="function_is_no_object",
        ),
        pytest.param(
            say("assistant", tool_calls=[{"id": "1"}]),
            say("assistant", tool_calls=[{"id": "1"}, {"id": "2"}]),
            False,
            id="one_more_call",
        ),
    ],
)
def test_tool_calls_are_equal_but_for_their_index(
    name: str, stored: Any, replayed: Any, expected: bool
) -> None:
    assert matcher(name)(stored, replayed) is expected


@pytest.mark.parametrize(
    ("stored", "replayed", "loose"),
    [
        pytest.param('{"a":1}', '{ "a": 1 }', True, id="spacing"),
        pytest.param('{"a":1,"b":[2]}', '{"b":[2],"a":1}', True, id="key_order"),
        pytest.param('{"a":{"b":1,"c":2}}', '{"a":{"c":2,"b":1}}', True, id="inner_key_order"),
        pytest.param('{"a":1.50}', '{"a":15e-1}', True, id="exact_decimal"),
        pytest.param('{"a":1}', '{"a":1.0}', True, id="integer_and_decimal"),
        pytest.param(
            '{"a":0.1}', '{"a":0.1000000000000000055511151231257827}', False, id="same_double"
        ),
        pytest.param('{"a":true}', '{"a":1}', False, id="true_is_not_one"),
        pytest.param('{"a":false}', '{"a":0}', False, id="false_is_not_zero"),
        pytest.param('{"a":[1,2]}', '{"a":[2,1]}', False, id="array_order"),
        pytest.param(None, "{}", True, id="none_and_object"),
        pytest.param("", " { } ", True, id="empty_and_object"),
        pytest.param(None, "", True, id="none_and_empty"),
        pytest.param({}, "", True, id="an_object_itself"),
        pytest.param({"a": 0.5}, '{"a": 0.50}', True, id="an_object_and_its_text"),
        pytest.param('{"a":1,"a":1}', '{"a":1}', False, id="repeated_key"),
        pytest.param('{"a":NaN}', '{"a": NaN}', False, id="nan"),
        pytest.param("[1]", "[1.0]", False, id="no_object"),
        pytest.param("not json", "not  json", False, id="no_json"),
        pytest.param(None, "null", False, id="null_text"),
        pytest.param('{"a":1e99999999999999999999}', '{"a": 1e9}', False, id="huge_exponent"),
        pytest.param('{"a":' + "[" * 5000 + "]" * 5000 + "}", "{}", False, id="deep"),
    ],
)
def test_loose_compares_arguments_as_json_objects_where_strict_does_not(
    stored: Any, replayed: Any, loose: bool
) -> None:
    assert matcher("loose_tool_call")(call(stored), call(replayed)) is loose
    assert matcher("strict")(call(stored), call(replayed)) is False


def test_loose_compares_arguments_with_many_values_as_they_are() -> None:
    many = '{"a": [' + "0," * MAX_JSON_VALUES + "0]}"
    assert matcher("loose_tool_call")(call(many), call(many))
    assert not matcher("loose_tool_call")(call(many), call(many + " "))


def test_loose_takes_equal_arguments_that_are_no_object() -> None:
    assert matcher("loose_tool_call")(call("[1"), call("[1"))


def test_loose_minds_the_name_of_the_function_and_the_rest_of_the_call() -> None:
    other_name = call("{}")
    other_name["tool_calls"][0]["function"]["name"] = "g"
    loose = matcher("loose_tool_call")
    assert not loose(call(""), other_name)
    assert not loose(call(""), call("{}", id="c2"))


def test_missing_arguments_are_no_empty_object() -> None:
    stored, replayed = call("{}"), call("{}")
    del replayed["tool_calls"][0]["function"]["arguments"]
    assert not matcher("loose_tool_call")(stored, replayed)
    del stored["tool_calls"][0]["function"]["arguments"]
    stored["tool_calls"][0]["index"] = 0
    assert matcher("loose_tool_call")(stored, replayed)


@pytest.mark.parametrize(
    "selector",
    [
        "Strict",
        "STRICT",
        "",
        "nothing",
        "no.such.module",
        "math.no_such_name",
        ".relative",
        f"{HERE}.asynchronous",
        f"{HERE}.asynchronous_object",
        f"{HERE}.not_callable",
    ],
)
def test_a_bad_selector_is_refused_at_the_start(selector: str) -> None:
    with pytest.raises(ValueError, match="message matcher"):
        matcher(selector)


def test_a_dotted_path_names_a_function_of_the_operator() -> None:
    assert matcher(f"{HERE}.always_true") is always_true


@pytest.mark.parametrize("name", ["gives_one", "raises_key_error"])
def test_a_matcher_that_fails_is_a_500_that_tells_no_content(name: str) -> None:
    with pytest.raises(SessionError) as error:
        prefix_length(matcher(f"{HERE}.{name}"), [say("user", "x")], [say("user", "x")])
    assert refusal(error) == (500, "matcher_failed")
    assert "secret" not in str(error.value)


def test_a_message_too_deep_to_compare_is_a_failed_matcher() -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(SessionError) as error:
        prefix_length(matcher("strict"), [say("user", deep)], [say("user", [deep])])
    assert refusal(error) == (500, "matcher_failed")


@pytest.mark.parametrize(
    ("replayed", "expected"),
    [
        pytest.param("abc", 3, id="all"),
        pytest.param("abcd", 3, id="longer"),
        pytest.param("ab", 2, id="shorter"),
        pytest.param("axc", 1, id="differs"),
        pytest.param("", 0, id="empty"),
    ],
)
def test_the_prefix_ends_at_the_first_message_that_differs(replayed: str, expected: int) -> None:
    stored = [say("user", letter) for letter in "abc"]
    messages = [say("user", letter) for letter in replayed]
    assert prefix_length(matcher("strict"), stored, messages) == expected


json_values = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 0.0, -0.0, 1.0, "", "x"])
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=6,
)


def kinds(value: Any) -> Any:
    """A value in which equal means equal as JSON, numbers told apart by type and sign."""
    if isinstance(value, list):
        return [kinds(item) for item in value]
    if isinstance(value, dict):
        return {key: kinds(item) for key, item in value.items()}
    sign = math.copysign(1, value) if isinstance(value, float) else 0
    return (type(value).__name__, value, sign)


@given(json_values, json_values)
def test_strict_is_type_strict_equality_of_contents(one: Any, other: Any) -> None:
    empty: tuple[Any, ...] = (None, "", [])
    expected = kinds(one) == kinds(other) or (one in empty and other in empty)
    assert matcher("strict")(say("user", one), say("user", other)) is expected


@given(json_values)
def test_every_matcher_takes_a_message_for_itself(value: Any) -> None:
    message = say("assistant", value, tool_calls=[value], reasoning_content=value)
    for name in ("strict", "loose_tool_call", "role_content_only"):
        assert matcher(name)(message, message) is True
