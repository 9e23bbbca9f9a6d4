"""Hermes tool calls: read into OpenAI's form, or left in the text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sample_wire.session.tool_calls import parse_hermes

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'


def functions(text: str) -> list[tuple[str, str]]:
    """Name and arguments of each call."""
    return [
        (call["function"]["name"], call["function"]["arguments"])
        for call in parse_hermes(text).tool_calls
    ]


def test_a_text_without_calls_is_the_content_as_it_is() -> None:
    assert parse_hermes("  The sum is 3.\n") == ("  The sum is 3.\n", [])


def test_a_call_has_the_form_of_an_openai_tool_call() -> None:
    content, (call,) = parse_hermes(CALL)
    assert content == ""
    assert call == {
        "id": call["id"],
        "type": "function",
        "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'},
    }


def test_ids_of_calls_are_never_the_same() -> None:
    calls = [call for _ in range(2) for call in parse_hermes(CALL + CALL).tool_calls]
    assert len({call["id"] for call in calls}) == 4


def test_calls_come_in_the_order_of_the_text() -> None:
    assert functions(CALL + '\n<tool_call>{"name": "stop"}</tool_call>') == [
        ("add", '{"a": 1, "b": 2}'),
        ("stop", "{}"),
    ]


def test_the_text_around_the_calls_is_the_content() -> None:
    assert parse_hermes(f"I add.\n{CALL}\nAnd wait.\n").content == "I add.\n\nAnd wait."


@pytest.mark.parametrize(
    "arguments",
    [
        '{ "a":1 }',
        '{"big": 123456789012345678901234567890, "tiny": 1e-999}',
        '{"text": "\\u00e4 \u00e4 \\" <b>"}',
        '{"a": 1, "a": 2}',
        '{\n  "nested": {"list": [1, {"x": null}]}\n}',
    ],
    ids=["spaces", "numbers", "escapes", "repeated key", "lines"],
)
def test_arguments_are_the_text_that_the_model_wrote(arguments: str) -> None:
    written = f'<tool_call>{{"arguments": {arguments}, "name": "f", "more": 1}}</tool_call>'
    assert functions(written) == [("f", arguments)]


@pytest.mark.parametrize(
    "inside",
    [
        "",
        "add(1, 2)",
        '{"name": "add", "arguments": {"a": 1}',
        '{"arguments": {}}',
        '{"name": 3}',
        '{"name": null}',
        '{"name": "add", "arguments": "{}"}',
        '{"name": "add", "arguments": [1]}',
        '{"name": "add", "arguments": null}',
        '{"name": "add", "arguments": {"a": nan}}',
        '["add"]',
        '{"name": "add"} {"name": "add"}',
        '{"name": "\ud800"}',
        '{"name": "deep", "arguments": {"a": ' + "[" * 100_000 + "]" * 100_000 + "}}",
        '{"name": "add"}<tool_call>',
    ],
    ids=[
        "empty",
        "no JSON",
        "cut off",
        "no name",
        "a number as name",
        "null as name",
        "arguments as text",
        "a list of arguments",
        "null arguments",
        "a constant that is not JSON",
        "a list",
        "two objects",
        "a lone surrogate",
        "too deep",
        "a call in a call",
    ],
)
def test_a_text_with_a_broken_call_is_all_content(inside: str) -> None:
    text = f"{CALL} then <tool_call>{inside}</tool_call>"
    assert parse_hermes(text) == (text, [])


@pytest.mark.parametrize("text", [CALL[:-1], CALL + "<tool_call>", "<tool_call>"])
def test_a_call_that_is_not_closed_is_content(text: str) -> None:
    assert parse_hermes(text) == (text, [])


def test_a_closing_marker_alone_is_content() -> None:
    assert parse_hermes("a </tool_call> b") == ("a </tool_call> b", [])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(codec="utf-8"), min_size=1),
            st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), JSON, max_size=3),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_what_was_called_is_what_is_read(calls: list[tuple[str, dict[str, Any]]]) -> None:
    written = [json.dumps({"name": name, "arguments": given}) for name, given in calls]
    # A marker inside a string ends the call, as it does for the engines' own parsers.
    assume(not any("tool_call>" in one for one in written))
    read = functions("".join(f"<tool_call>\n{one}\n</tool_call>\n" for one in written))
    assert [(name, json.loads(text)) for name, text in read] == calls


@given(st.lists(st.sampled_from([*'{}":,[] ', "<tool_call>", "</tool_call>", '"name"', "a"])))
def test_any_text_is_parsed_without_an_error(pieces: list[str]) -> None:
    text = "".join(pieces)
    content, calls = parse_hermes(text)
    assert calls or content == text


def test_a_call_that_nests_too_deep_to_come_back_is_text() -> None:
    def called(depth: int) -> str:
        inside = '{"a":' * depth + "1" + "}" * depth
        return f'<tool_call>{{"name":"f","arguments":{inside}}}</tool_call>'

    assert len(parse_hermes(called(119)).tool_calls) == 1
    assert parse_hermes(called(120)) == (called(120), [])
