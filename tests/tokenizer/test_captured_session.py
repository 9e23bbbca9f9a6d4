"""A session of a real engine with caller-made ids: ours are the ones that it was given."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sample_wire.adapters.tokenizer import HFTokenizer

from ._folders import write_qwen36

CAPTURE = Path(__file__).parents[1] / "data" / "captures" / "sgl_tito_s31_t6.json"
NUM_TURNS = 6

# As the template of the captures writes.
TEMPLATE = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.role == 'tool' %}
        {{- '<tool_response>\\n' + message.content + '\\n</tool_response>' }}
    {%- else %}
        {{- message.content }}
    {%- endif %}
    {%- if tools and loop.first %}
        {{- '\\n\\nYou can call these functions. Reply with <tool_call>' }}
        {{- '{"name": ..., "arguments": ...}</tool_call>.\\n' }}
        {%- for tool in tools %}
            {{- tool | tojson + '\\n' }}
        {%- endfor %}
    {%- endif %}
    {%- for call in message.tool_calls %}
        {{- '<tool_call>\\n' + {'name': call.function.name, 'arguments': call.function.arguments}
            | tojson + '\\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""


@dataclass(frozen=True)
class Turn:
    messages: list[dict[str, Any]]
    tools: list[Any]
    prompt: list[int]
    output: list[int]
    reply: dict[str, Any]


def read_turn(turn: dict[str, Any]) -> Turn:
    request = turn["request"]["body"]
    (choice,) = turn["response"]["body"]["choices"]
    output = [logprob[1] for logprob in choice["meta_info"]["output_token_logprobs"]]
    return Turn(
        request["messages"], request["tools"], request["input_ids"], output, choice["message"]
    )


@pytest.fixture(scope="module")
def turns() -> list[Turn]:
    captured = json.loads(CAPTURE.read_text(encoding="utf-8"))["turns"]
    return [read_turn(turn) for turn in captured]


@pytest.fixture(scope="module")
def tokenizer(turns: list[Turn], tmp_path_factory: pytest.TempPathFactory) -> HFTokenizer:
    last = turns[-1]
    folder = tmp_path_factory.mktemp("qwen36")
    write_qwen36(folder, template=TEMPLATE, ids=last.prompt + last.output)
    return HFTokenizer(folder, family="qwen3")


def test_the_first_prompt_is_rendered_to_the_ids_that_the_engine_was_given(
    tokenizer: HFTokenizer, turns: list[Turn]
) -> None:
    first = turns[0]
    assert tokenizer.render(first.messages, first.tools, {}) == first.prompt


@pytest.mark.parametrize("at", range(1, NUM_TURNS))
def test_each_later_prompt_is_the_turn_before_and_the_ids_of_the_tools_answer(
    tokenizer: HFTokenizer, turns: list[Turn], at: int
) -> None:
    before, turn = turns[at - 1], turns[at]
    checkpoint = before.prompt + before.output
    stored = [*before.messages, before.reply]
    following = turn.messages[len(stored) :]
    num_kept, tail = tokenizer.append(checkpoint, stored, following, turn.tools, {})
    assert num_kept == len(checkpoint)
    assert checkpoint + tail == turn.prompt


def test_what_differs_from_the_messages_is_only_what_the_model_wrote(
    tokenizer: HFTokenizer, turns: list[Turn]
) -> None:
    """The model put stray spaces into its tool calls, and text after them."""
    turn = turns[0]
    ids = turn.prompt + turn.output
    found = tokenizer.mismatch([*turn.messages, turn.reply], turn.tools, {}, ids)
    assert [entry["type"] for entry in found] == ["special_token_count"]
