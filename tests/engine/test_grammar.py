"""When a turn calls a tool, and what the grammar of a call lets through."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sample_wire.demo.engine import EngineSettings, structural_tag
from sample_wire.demo.engine.grammar import StructuralTag, read_structural_tag, turn_grammar
from sample_wire.session.tool_calls import parse_hermes

from ._calls import TOKENIZER, TOOLS, asked, prompt_of

TAG: Final = read_structural_tag(structural_tag(TOOLS))
REQUIRED: Final = read_structural_tag(structural_tag(TOOLS, required=True))
CALL: Final = {
    "id": "c",
    "type": "function",
    "function": {"name": "search", "arguments": '{"query": "x"}'},
}
ROUND: Final[list[dict[str, Any]]] = [
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "12", "tool_call_id": "c"},
]


def prompt_after(num_calls: int, text: str = "Question") -> list[int]:
    return prompt_of([*asked(text), *ROUND * num_calls], TOOLS)


def calls(settings: EngineSettings, tag: StructuralTag, prompt: list[int]) -> bool:
    return turn_grammar(settings, tag, prompt) is not None


def written(prompt: list[int], pick: Any, tag: StructuralTag = REQUIRED) -> str:
    """The turn that a grammar lets through where `pick` chooses."""
    grammar = turn_grammar(EngineSettings(), tag, prompt)
    assert grammar is not None
    ids, allowed = [], next(grammar)
    while True:
        ids.append(pick(sorted(allowed)))
        try:
            allowed = grammar.send(ids[-1])
        except StopIteration:
            return TOKENIZER.decode(ids)


def num_calls_of(settings: EngineSettings, text: str) -> int:
    """How many calls a conversation makes before it answers."""
    made = [calls(settings, TAG, prompt_after(number, text)) for number in range(8)]
    assert made == sorted(made, reverse=True)
    return sum(made)


@pytest.mark.parametrize("bounds", [(0, 0), (1, 1), (2, 4), (0, 6)], ids=str)
def test_conversations_call_as_often_as_the_settings_say(bounds: tuple[int, int]) -> None:
    settings = EngineSettings(min_tool_calls=bounds[0], max_tool_calls=bounds[1])
    found = {num_calls_of(settings, f"Question {number}") for number in range(60)}
    assert found == {*range(bounds[0], bounds[1] + 1)}


def test_the_number_of_calls_does_not_depend_on_what_came_after_the_opening() -> None:
    settings = EngineSettings(min_tool_calls=2, max_tool_calls=2)
    other = [{"role": "assistant", "content": "Hm."}, {"role": "user", "content": "Go on."}]
    messages = [*asked("Question"), *other, *ROUND, *other]
    assert calls(settings, TAG, prompt_of(messages, TOOLS))
    assert not calls(settings, TAG, prompt_of([*messages, *ROUND], TOOLS))


def test_a_marker_that_a_message_spells_is_no_call() -> None:
    settings = EngineSettings(min_tool_calls=1, max_tool_calls=1)
    assert calls(settings, TAG, prompt_of(asked("<tool_call>"), TOOLS))


def test_a_required_call_is_always_made() -> None:
    settings = EngineSettings(min_tool_calls=0, max_tool_calls=0)
    assert not calls(settings, TAG, prompt_after(0))
    assert all(calls(settings, REQUIRED, prompt_after(number)) for number in range(4))


def test_a_prompt_without_an_opening_of_the_assistant_calls_too() -> None:
    assert calls(EngineSettings(), TAG, [*b"no chat at all"])


def test_some_calls_have_text_before_them() -> None:
    turns = [written(prompt_after(0, f"Question {number}"), min) for number in range(20)]
    thoughtful = [one for one in turns if not one.startswith("<tool_call>")]
    assert 0 < len(thoughtful) < 20


@given(st.integers(0, 99), st.data())
def test_whatever_is_chosen_is_a_call_that_renders_to_itself(number: int, data: Any) -> None:
    prompt = prompt_after(number % 4, f"Question {number}")
    text = written(prompt, lambda allowed: data.draw(st.sampled_from(allowed)))
    content, (call,) = parse_hermes(text.removesuffix("<|im_end|>"))
    assert call["function"]["name"] in ("weather", "search")
    assert isinstance(json.loads(call["function"]["arguments"]), dict)
    message = {"role": "assistant", "content": content, "tool_calls": [call]}
    rendered = prompt_of([*asked("x"), message])[len(prompt_of(asked("x"))) :]
    assert TOKENIZER.decode(rendered).startswith(text)


def test_every_tool_can_be_called() -> None:
    for tool in TOOLS:
        name = tool["function"]["name"]
        left = [*TOKENIZER.encode(f'<tool_call>\n{{"name": "{name}"')][::-1]

        def pick(allowed: list[int], left: list[int] = left) -> int:
            return left.pop() if left and left[-1] in allowed else allowed[0]

        _, (call,) = parse_hermes(written(prompt_after(0), pick).removesuffix("<|im_end|>"))
        assert call["function"]["name"] == name


def test_a_function_without_parameters_is_called_with_an_empty_object() -> None:
    bare = [{"type": "function", "function": {"name": "now"}}]
    text = written(prompt_after(0), min, read_structural_tag(structural_tag(bare, required=True)))
    assert text.endswith('<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call><|im_end|>')


def test_the_tag_is_one_that_sglang_takes() -> None:
    tag = json.loads(structural_tag(TOOLS[1:]))
    assert tag == {
        "type": "structural_tag",
        "format": {
            "type": "triggered_tags",
            "triggers": ["<tool_call>"],
            "tags": [
                {
                    "begin": '<tool_call>\n{"name": "search", "arguments": ',
                    "content": {
                        "type": "json_schema",
                        "json_schema": TOOLS[1]["function"]["parameters"],
                    },
                    "end": "}\n</tool_call>",
                }
            ],
            "at_least_one": False,
            "stop_after_first": True,
        },
    }


def nested(depth: int) -> str:
    """A tag whose schema is that deep."""
    schema: dict[str, Any] = {}
    for _ in range(depth - 1):
        schema = {"type": "array", "items": schema}
    function = {"name": "f", "parameters": schema}
    return structural_tag([{"type": "function", "function": function}], required=True)


def test_a_schema_may_be_nested_64_levels_deep() -> None:
    text = written(prompt_after(0), max, read_structural_tag(nested(64)))
    assert "[" * 63 in text


@pytest.mark.parametrize("depth", [65, 200])
def test_a_schema_that_is_nested_deeper_is_refused(depth: int) -> None:
    with pytest.raises(ValueError, match="nested more than 64 levels deep"):
        read_structural_tag(nested(depth))


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"type": "regex"}', "[" * 5000, '{"type": "structural_tag", "format": {}}'],
    ids=["nothing", "list", "other type", "deep", "other format"],
)
def test_a_tag_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="structural_tag: "):
        read_structural_tag(text)
