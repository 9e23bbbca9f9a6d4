"""Messages as clients send them, and the ones that no template should see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from sample_wire._json import MAX_JSON_VALUES
from sample_wire.adapters.tokenizer import ByteChatML, HFTokenizer
from sample_wire.errors import SessionError

Adapter = ByteChatML | HFTokenizer


@pytest.fixture(scope="module", params=["chatml", "glm"])
def tokenizer(request: pytest.FixtureRequest, glm: HFTokenizer) -> Adapter:
    adapters: Mapping[str, Adapter] = {"chatml": ByteChatML(), "glm": glm}
    return adapters[request.param]


def shown(tokenizer: Adapter, message: Mapping[str, Any], tools: Any = None) -> str:
    return tokenizer.decode(tokenizer.render([message], tools, tokenizer.template_kwargs(None)))


def called(arguments: Any) -> dict[str, Any]:
    function = {"name": "look_up"} | ({} if arguments is ... else {"arguments": arguments})
    return {"role": "assistant", "content": None, "tool_calls": [{"function": function}]}


def refused(tokenizer: Adapter, messages: Any, tools: Any = None) -> str:
    """The text of the 400 for messages, rendered or appended."""
    kwargs = tokenizer.template_kwargs(None)
    with pytest.raises(SessionError) as caught:
        tokenizer.render(messages, tools, kwargs)
    assert (caught.value.code, caught.value.http_status_hint) == ("bad_messages", 400)
    return str(caught.value)


@pytest.mark.parametrize("content", [None, "", []], ids=repr)
@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
def test_null_and_empty_content_are_the_empty_text(
    tokenizer: Adapter, role: str, content: object
) -> None:
    message = {"role": role, "content": content}
    assert shown(tokenizer, message) == shown(tokenizer, {"role": role, "content": ""})
    assert "None" not in shown(tokenizer, message)


def test_absent_content_is_the_empty_text(tokenizer: Adapter) -> None:
    absent = shown(tokenizer, {"role": "assistant"})
    assert absent == shown(tokenizer, {"role": "assistant", "content": ""})


def test_text_parts_are_joined(tokenizer: Adapter) -> None:
    parts = [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]
    joined = shown(tokenizer, {"role": "user", "content": "hello"})
    assert shown(tokenizer, {"role": "user", "content": parts}) == joined


@pytest.mark.parametrize(
    "arguments", ['{"city": "Paris"}', {"city": "Paris"}, '{ "city":"Paris"}'], ids=repr
)
def test_arguments_are_rendered_as_an_object_however_they_are_spelled(
    tokenizer: Adapter, arguments: object
) -> None:
    assert shown(tokenizer, called(arguments)) == shown(tokenizer, called('{"city": "Paris"}'))
    assert "Paris" in shown(tokenizer, called(arguments))


@pytest.mark.parametrize("arguments", [..., None, ""], ids=repr)
def test_no_arguments_are_an_empty_object(tokenizer: Adapter, arguments: object) -> None:
    assert shown(tokenizer, called(arguments)) == shown(tokenizer, called("{}"))


@pytest.mark.parametrize("calls", [None, []], ids=repr)
def test_null_and_empty_tool_calls_are_none(tokenizer: Adapter, calls: object) -> None:
    message = {"role": "assistant", "content": "hello"}
    assert shown(tokenizer, message | {"tool_calls": calls}) == shown(tokenizer, message)


@pytest.mark.parametrize("tools", [None, []], ids=repr)
def test_null_and_empty_tools_are_none(tokenizer: Adapter, tools: object) -> None:
    assert "unctions" not in shown(tokenizer, {"role": "user", "content": "hello"}, tools)


def test_the_callers_messages_are_left_as_they_are(tokenizer: Adapter) -> None:
    message = called('{"city": "Paris"}')
    shown(tokenizer, message)
    assert message == called('{"city": "Paris"}')


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([], "must not be empty"),
        (["hello"], "messages[0] must be an object, not str"),
        ([{"role": "user", "content": "x"}, None], "messages[1] must be an object, not NoneType"),
        ([{"content": "hello"}], "messages[0] must have a role"),
        ([{"role": None, "content": "hello"}], "messages[0] must have a role"),
        ([{"role": "user", "content": 5}], "messages[0]: content must be text, not int"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "content is not text"),
        ([{"role": "user", "content": [{"type": "text"}]}], "content is not text"),
        ([{"role": "user", "content": ["hello"]}], "content is not text"),
        ([{"role": "assistant", "tool_calls": 5}], "tool_calls must be a list, not int"),
    ],
    ids=[
        "none",
        "text",
        "null",
        "no role",
        "null role",
        "number",
        "image",
        "no text",
        "bare",
        "calls",
    ],
)
def test_messages_of_a_wrong_form_are_refused(tokenizer: Adapter, messages: Any, says: str) -> None:
    assert says in refused(tokenizer, messages)


@pytest.mark.parametrize("tools", ["text", {"a": 1}, [5], [None], 5], ids=repr)
def test_tools_that_are_no_list_of_objects_are_refused(tokenizer: Adapter, tools: Any) -> None:
    assert "tools must be" in refused(tokenizer, [{"role": "user", "content": "x"}], tools)


def test_appended_messages_of_a_wrong_form_are_refused(tokenizer: Adapter) -> None:
    stored = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    bad: Any = [{"role": "user", "content": 5}]
    with pytest.raises(SessionError, match="content must be text"):
        tokenizer.append([5], stored, bad, None, tokenizer.template_kwargs(None))


def test_text_that_is_not_valid_unicode_is_refused(tokenizer: Adapter) -> None:
    with pytest.raises(SessionError, match="not valid Unicode") as caught:
        shown(tokenizer, {"role": "user", "content": "\ud800"})
    assert caught.value.http_status_hint == 400


@pytest.mark.parametrize("arguments", ["{", "[" * 100_000], ids=["cut", "too deep"])
def test_arguments_that_are_no_json_are_left_to_the_template(arguments: str) -> None:
    assert json_text(arguments) in shown(ByteChatML(), called(arguments))


def test_arguments_that_are_nested_too_deeply_are_refused(tokenizer: Adapter) -> None:
    nested: Any = {}
    for _ in range(100_000):
        nested = {"a": nested}
    with pytest.raises(SessionError) as caught:
        shown(tokenizer, called({"a": nested}))
    assert caught.value.http_status_hint == 400


def json_text(text: str) -> str:
    return f'"arguments": "{text}"'


def test_arguments_that_a_template_cannot_take_are_refused(glm: HFTokenizer) -> None:
    with pytest.raises(SessionError, match="the chat template refuses") as caught:
        shown(glm, called("{"))
    assert (caught.value.code, caught.value.http_status_hint) == ("render_failed", 400)


def test_arguments_have_at_most_so_many_values(tokenizer: Adapter) -> None:
    text = "[" + "0," * MAX_JSON_VALUES + "0]"
    fault = "the arguments of a tool call have more than 262144 values"
    assert refused(tokenizer, [called(text)]) == fault
