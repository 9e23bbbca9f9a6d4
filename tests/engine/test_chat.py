"""POST /v1/chat/completions: prompts, tool calls, and what is told of them."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from sample_wire.demo.engine import structural_tag
from sample_wire.demo.engine.requests import BadRequestError, ChatRequest, chat_job, parsed

from ._calls import IM_END, SETTINGS, TOKENIZER, TOOLS, Caller, asked, prompt_of, rows_of

MESSAGES: Final = asked("Will it rain?")
PROMPT: Final = prompt_of(MESSAGES)
TOOL_PROMPT: Final = prompt_of(MESSAGES, TOOLS)


def only(reply: Any) -> Any:
    (choice,) = reply["choices"]
    return choice


def ids_of(reply: Any) -> list[int]:
    return [entry[1] for entry in only(reply)["meta_info"]["output_token_logprobs"]]


def test_messages_are_rendered_where_no_ids_are_given(engine: Caller) -> None:
    reply = engine.chat(MESSAGES, max_tokens=1, return_prompt_token_ids=True)
    assert only(reply)["prompt_token_ids"] == PROMPT
    assert reply["usage"]["prompt_tokens"] == len(PROMPT)


def test_tools_are_rendered_into_the_prompt(engine: Caller) -> None:
    reply = engine.chat(MESSAGES, tools=TOOLS, max_tokens=1, return_prompt_token_ids=True)
    assert only(reply)["prompt_token_ids"] == TOOL_PROMPT


def test_ids_are_taken_as_they_are(engine: Caller) -> None:
    other = prompt_of(asked("Something else."))
    reply = engine.chat(MESSAGES, input_ids=other, max_tokens=1, return_prompt_token_ids=True)
    assert only(reply)["prompt_token_ids"] == other


def test_an_answer_ends_with_the_turn(engine: Caller) -> None:
    choice = only(engine.chat(MESSAGES, logit_bias={str(IM_END): 3.0}))
    assert (choice["finish_reason"], choice["matched_stop"]) == ("stop", IM_END)
    assert choice["meta_info"]["finish_reason"] == {"type": "stop", "matched": IM_END}
    entries = choice["meta_info"]["output_token_logprobs"]
    assert entries[-1][1:] == [IM_END, "<|im_end|>"]
    assert choice["message"]["content"] == "".join(entry[2] for entry in entries[:-1])
    assert "tool_calls" not in choice["message"]


@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0])
def test_an_answer_ends_by_itself_at_any_temperature(engine: Caller, temperature: float) -> None:
    reply = engine.chat(MESSAGES, temperature=temperature)
    assert only(reply)["finish_reason"] == "stop"
    assert reply["usage"]["completion_tokens"] < 3 * SETTINGS.mean_answer_tokens


def test_the_log_probs_are_told_in_both_places(engine: Caller) -> None:
    choice = only(engine.chat(MESSAGES, max_tokens=9))
    told = choice["logprobs"]["content"]
    assert [[one["logprob"], one["token"]] for one in told] == [
        [entry[0], entry[2]] for entry in choice["meta_info"]["output_token_logprobs"]
    ]
    assert all(bytes(one["bytes"]).decode() == one["token"] for one in told)


def test_without_log_probs_none_are_told(engine: Caller) -> None:
    choice = only(engine.chat(MESSAGES, max_tokens=2, logprobs=None))
    assert choice["logprobs"] is None
    assert "output_token_logprobs" not in choice["meta_info"]


@pytest.mark.parametrize(
    "limits",
    [
        {"max_tokens": 3},
        {"max_completion_tokens": 3},
        {"max_tokens": 9, "max_completion_tokens": 3},
    ],
    ids=lambda limits: " and ".join(limits),
)
def test_the_limit_ends_the_output(engine: Caller, limits: dict[str, int]) -> None:
    choice = only(engine.chat(MESSAGES, **limits, ignore_eos=True))
    assert choice["finish_reason"] == "length"
    assert choice["meta_info"]["finish_reason"] == {"type": "length", "length": 3}


def test_the_rows_are_told_beside_the_choices_where_no_meta_info_is(engine: Caller) -> None:
    reply = engine.chat(MESSAGES, max_tokens=3)
    beside = engine.chat(MESSAGES, max_tokens=3, return_meta_info=False)
    assert "meta_info" not in only(beside)
    assert beside["sglext"]["routed_experts"] == only(reply)["meta_info"]["routed_experts"]
    assert len(rows_of(beside["sglext"]["routed_experts"])) == len(PROMPT) + 2


def test_no_rows_are_told_unless_asked_for(engine: Caller) -> None:
    reply = engine.chat(MESSAGES, max_tokens=3, return_routed_experts=False)
    assert "routed_experts" not in only(reply)["meta_info"]
    assert "sglext" not in reply


def test_a_tool_call_is_written_in_the_hermes_form(engine: Caller) -> None:
    reply = engine.chat(MESSAGES, tools=TOOLS)
    choice = only(reply)
    (call,) = choice["message"]["tool_calls"]
    function = call["function"]
    content = choice["message"]["content"]
    text = (
        (f"{content}\n" if content else "")
        + f'<tool_call>\n{{"name": "{function["name"]}", "arguments": {function["arguments"]}}}\n'
        + "</tool_call><|im_end|>"
    )
    assert ids_of(reply) == TOKENIZER.encode(text)
    assert choice["finish_reason"] == "tool_calls"


def test_forced_tokens_have_log_prob_zero_and_chosen_ones_do_not(engine: Caller) -> None:
    entries = only(engine.chat(MESSAGES, tools=TOOLS))["meta_info"]["output_token_logprobs"]
    start = [entry[2] for entry in entries].index("<tool_call>")
    opening = '<tool_call>\n{"name": "'
    forced = entries[start : start + len(TOKENIZER.encode(opening))]
    assert "".join(entry[2] for entry in forced) == opening
    assert {entry[0] for entry in forced[1:]} == {0.0}
    assert [entry[0] for entry in entries[-5:]] == [0.0] * 5
    # The function, its first argument: there was a choice.
    assert sum(entry[0] < 0 for entry in entries[start:]) >= 2


def test_a_message_sent_back_renders_to_the_same_ids(engine: Caller) -> None:
    reply = engine.chat(MESSAGES, tools=TOOLS)
    again = prompt_of([*MESSAGES, only(reply)["message"]], TOOLS)
    assert again[: len(TOOL_PROMPT) + len(ids_of(reply))] == TOOL_PROMPT + ids_of(reply)


def test_a_call_that_is_cut_stays_text(engine: Caller) -> None:
    whole = engine.chat(MESSAGES, tools=TOOLS)
    choice = only(engine.chat(MESSAGES, tools=TOOLS, max_tokens=len(ids_of(whole)) - 4))
    assert choice["finish_reason"] == "length"
    assert "tool_calls" not in choice["message"]
    assert "<tool_call>" in choice["message"]["content"]


def test_a_call_that_is_whole_at_the_limit_is_told_as_a_length(engine: Caller) -> None:
    whole = engine.chat(MESSAGES, tools=TOOLS)
    choice = only(engine.chat(MESSAGES, tools=TOOLS, max_tokens=len(ids_of(whole)) - 1))
    assert choice["finish_reason"] == choice["meta_info"]["finish_reason"]["type"] == "length"
    assert len(choice["message"]["tool_calls"]) == 1


@pytest.mark.parametrize("options", [{}, {"temperature": 0.5, "top_p": 0.9, "seed": 4}], ids=str)
@pytest.mark.parametrize("required", [False, True], ids=["auto", "required"])
def test_generate_with_the_same_grammar_gives_the_same_turns(
    engine: Caller, options: dict[str, Any], required: bool
) -> None:
    messages = asked("Question 1")
    prompt = prompt_of(messages, TOOLS)
    params = {**options, "structural_tag": structural_tag(TOOLS, required=required)}
    params["sampling_seed"] = params.pop("seed", None)
    num_calls = 0
    while num_calls <= SETTINGS.max_tool_calls:
        by_ids = engine.generate(prompt, params={**params, "max_new_tokens": 600})["meta_info"]
        chosen = "required" if required else "auto"
        choice = only(engine.chat(messages, tools=TOOLS, tool_choice=chosen, **options))
        by_chat = choice["meta_info"]
        for key in ("routed_experts", "completion_tokens", "prompt_tokens"):
            assert by_ids[key] == by_chat[key]
        entries = by_chat["output_token_logprobs"]
        assert [one[:2] for one in by_ids["output_token_logprobs"]] == [one[:2] for one in entries]
        said = choice["message"]
        if "tool_calls" not in said:
            break
        assert by_ids["finish_reason"] == {"type": "stop", "matched": IM_END}
        num_calls += 1
        answer = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "12"}
        messages = [*messages, said, answer]
        checkpoint = prompt + [one[1] for one in entries]
        num_kept, tail = TOKENIZER.append(checkpoint, [], [answer], TOOLS, {})
        prompt = checkpoint[:num_kept] + tail
    assert num_calls >= SETTINGS.min_tool_calls


def test_tool_choice_none_calls_nothing(engine: Caller) -> None:
    choice = only(engine.chat(MESSAGES, tools=TOOLS, tool_choice="none", max_tokens=50))
    assert "tool_calls" not in choice["message"]


def test_a_named_function_is_the_one_that_is_called(engine: Caller) -> None:
    for tool in TOOLS:
        name = tool["function"]["name"]
        chosen = {"type": "function", "function": {"name": name}}
        (call,) = only(engine.chat(MESSAGES, tools=TOOLS, tool_choice=chosen))["message"][
            "tool_calls"
        ]
        assert call["function"]["name"] == name


def talked(engine: Caller, text: str, **options: Any) -> list[Any]:
    """The choices of a conversation whose tools answer, up to the first one without a call."""
    messages, choices = asked(text), list[Any]()
    while len(choices) <= SETTINGS.max_tool_calls:
        choices.append(only(engine.chat(messages, tools=TOOLS, **options)))
        said = choices[-1]["message"]
        if "tool_calls" not in said:
            break
        answer = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "12"}
        messages = [*messages, said, answer]
    return choices


def test_a_conversation_calls_tools_and_then_answers(engine: Caller) -> None:
    *calls, answer = talked(engine, "Question 0")
    assert SETTINGS.min_tool_calls <= len(calls) <= SETTINGS.max_tool_calls
    assert all(one["finish_reason"] == "tool_calls" for one in calls)
    assert answer["finish_reason"] == "stop"


def test_a_required_call_is_made_beyond_that_number(engine: Caller) -> None:
    choices = talked(engine, "Question 0", tool_choice="required")
    assert len(choices) == SETTINGS.max_tool_calls + 1
    assert all("tool_calls" in one["message"] for one in choices)


def test_the_arguments_are_of_the_schema(engine: Caller) -> None:
    chosen = {"type": "function", "function": {"name": "weather"}}
    for seed in range(10):
        reply = engine.chat(MESSAGES, tools=TOOLS, tool_choice=chosen, seed=seed)
        (call,) = only(reply)["message"]["tool_calls"]
        arguments = json.loads(call["function"]["arguments"])
        assert [*arguments] == ["city", "days"]
        assert arguments["city"] in ("Paris", "S\u00e3o Paulo")
        assert arguments["days"] in range(1, 15)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"messages": []}, "messages must not be empty"),
        ({"messages": [{"content": "x"}]}, "must have a role"),
        ({"messages": "x"}, "messages"),
        ({"stream": True}, "does not stream"),
        ({"temperature": -1}, "temperature"),
        ({"max_tokens": 9000}, "has room for 8192"),
        ({"tools": [{"type": "function"}]}, "function"),
        (
            {
                "tools": TOOLS,
                "tool_choice": {"type": "function", "function": {"name": "no_such"}},
            },
            "not among the tools",
        ),
        (
            {
                "tools": [
                    {"type": "function", "function": {"name": "f", "parameters": {"$ref": "#"}}}
                ]
            },
            "$ref is not known",
        ),
        ({"routed_experts_start_len": len(PROMPT) + 1}, "Please use a smaller"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_answered_is_refused(
    engine: Caller, change: dict[str, Any], told: str
) -> None:
    assert told in engine.refusal("/v1/chat/completions", {"messages": MESSAGES, **change})


def deep_tools(depth: int) -> bytes:
    """A request with a tool whose schema is that deep."""
    parameters = '{"type": "array", "items": ' * depth + "{}" + "}" * depth
    tool = f'{{"type": "function", "function": {{"name": "f", "parameters": {parameters}}}}}'
    return f'{{"messages": [{{"role": "user", "content": "x"}}], "tools": [{tool}]}}'.encode()


@pytest.mark.parametrize("depth", [100, 400, 900, 5000])
def test_tools_that_are_nested_too_deep_are_refused(engine: Caller, depth: int) -> None:
    response = engine.http.post("/v1/chat/completions", content=deep_tools(depth))
    assert response.status_code == 400


def test_tools_at_the_depth_of_pythons_stack_are_refused() -> None:
    # Some of these can be read and not be written.
    for depth in range(700, 1000):
        with pytest.raises(BadRequestError):
            chat_job(parsed(deep_tools(depth), ChatRequest), SETTINGS)


@pytest.mark.parametrize("field", ["content", "stop"])
def test_text_that_is_no_unicode_is_refused(engine: Caller, field: str) -> None:
    fields = {"content": '"x"', "stop": '"x"'} | {field: '"\\ud800"'}
    message = f'{{"role": "user", "content": {fields["content"]}}}'
    body = f'{{"messages": [{message}], "stop": {fields["stop"]}}}'
    response = engine.http.post("/v1/chat/completions", content=body.encode())
    assert response.status_code == 400
