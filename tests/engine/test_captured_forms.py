"""Replies have the form of SGLang's: the same keys in the same order, the same types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from ._calls import IM_END, TOOLS, Caller, asked, prompt_of

CAPTURES: Final = Path(__file__).parents[1] / "data" / "captures"
PROMPT: Final = prompt_of(asked("Name two rivers."))
BIASED: Final = {"logit_bias": {str(IM_END): -100.0}}


def captured(name: str) -> list[dict[str, Any]]:
    """The turns or the exchanges of a capture."""
    (found,) = json.loads((CAPTURES / f"{name}.json").read_bytes()).values()
    turns: list[dict[str, Any]] = found
    return turns


EXCHANGES: Final = {one["note"]: one for one in captured("sgl_misc")}


def form(value: Any) -> Any:
    """What a reply looks like: keys in order, and types.  Of a list's items, the forms there are.

    What the forms say of a tool call's arguments or of text is that they are text.
    """
    if isinstance(value, Mapping):
        return [(key, form(one)) for key, one in value.items()]
    if isinstance(value, list):
        forms: list[Any] = []
        for one in map(form, value):
            if one not in forms:
                forms.append(one)
        return ["list of", *forms]
    return type(value).__name__


def test_the_form_tells_replies_apart() -> None:
    assert form({"a": 1, "b": [1, 2]}) == [("a", "int"), ("b", ["list of", "int"])]
    assert form({"a": 1, "b": 2}) != form({"b": 1, "a": 2})
    assert form([1]) != form([1.0])
    assert form({"a": None}) != form({"a": 1})


def as_asked(note: str, engine: Caller) -> tuple[Any, Any]:
    """The captured reply, and the embedded engine's to the same request with ids of its own."""
    exchange = EXCHANGES[note]
    sent = exchange["request"]["body"]
    mine = {**sent, "input_ids": PROMPT} if "input_ids" in sent else dict(sent)
    if "routed_experts_start_len" in sent:
        # As far from the prompt's end as it was.
        behind = sent["routed_experts_start_len"] - len(sent["input_ids"])
        mine["routed_experts_start_len"] = len(PROMPT) + behind
    if "messages" in sent:
        mine |= BIASED
    else:
        mine["sampling_params"] = {**sent["sampling_params"], **BIASED}
    response = engine.post(exchange["request"]["path"], mine)
    assert response.status_code == exchange["response"]["status"], response.text
    assert response.headers["content-type"] == exchange["response"]["content_type"]
    return exchange["response"]["body"], response.json()


@pytest.mark.parametrize(
    "note",
    [
        "generate, R3 + logprobs",
        "generate n=2",
        "generate max_new_tokens=0",
        "generate max_new_tokens=1 start_len=prompt_len",
        "generate start_len beyond prompt (error)",
        "chat without return_meta_info (sglext)",
        "chat stream + return_meta_info (error)",
        "chat without R3",
    ],
)
def test_a_single_exchange_has_the_captured_form(note: str, engine: Caller) -> None:
    engine.generate(PROMPT)  # in the captures the prompts were cached too
    engine.chat(asked("Name two rivers."), max_tokens=1)
    expected, found = as_asked(note, engine)
    assert form(found) == form(expected)


@pytest.mark.parametrize(
    "note", ["chat stream + return_meta_info (error)", "generate start_len beyond prompt (error)"]
)
def test_a_refusal_has_the_captured_text(note: str, engine: Caller) -> None:
    expected, found = as_asked(note, engine)
    size = len(EXCHANGES["generate, R3 + logprobs"]["request"]["body"]["input_ids"])
    text = json.dumps(expected).replace(f"={size + 1} ", f"={len(PROMPT) + 1} ")
    assert json.dumps(found) == text.replace(f"={size}.", f"={len(PROMPT)}.")


@pytest.mark.parametrize(
    ("name", "number"),
    [("sgl_chat_s11_t4", 1), ("sgl_tito_s31_t6", 0), ("sgl_tito_s31_t6", 4)],
    ids=["messages", "first turn by ids", "later turn by ids"],
)
def test_a_tool_call_has_the_captured_form(name: str, number: int, engine: Caller) -> None:
    turn = captured(name)[number]
    sent, expected = turn["request"]["body"], turn["response"]["body"]
    messages = asked(f"The weather of {name}, {number}?")
    prompt = prompt_of(messages, TOOLS)
    body = {**sent, "messages": messages, "tools": TOOLS}
    del body["logit_bias"]  # of another vocabulary
    if number:
        engine.generate(prompt)
    else:
        prompt = [7, *prompt]  # no other prompt starts so: nothing of it is cached
    if "input_ids" in sent:
        body |= {"input_ids": prompt, "routed_experts_start_len": 0}
    reply = engine.post("/v1/chat/completions", body).json()
    assert form(reply) == form(expected)
    assert reply["choices"][0]["meta_info"]["finish_reason"] == {
        "type": "tool_calls",
        "matched": None,
    }


@pytest.mark.parametrize("name", ["sgl_chat_s11_t4", "sgl_tito_s31_t6"])
def test_a_turn_at_its_limit_has_the_captured_form(name: str, engine: Caller) -> None:
    turn = captured(name)[-1]
    sent, expected = turn["request"]["body"], turn["response"]["body"]
    messages = asked("The weather?")
    prompt = prompt_of(messages, TOOLS)
    engine.generate(prompt)
    body = {**sent, "messages": messages, "tools": TOOLS, "tool_choice": "none", **BIASED}
    if "input_ids" in sent:
        body |= {"input_ids": prompt, "routed_experts_start_len": len(prompt)}
    reply = engine.post("/v1/chat/completions", body).json()
    assert form(reply) == form(expected)
