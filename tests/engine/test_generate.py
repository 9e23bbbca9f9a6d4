"""POST /generate: what is generated, how it ends, and what is told of it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sample_wire.demo.engine import structural_tag

from ._calls import IM_END, SETTINGS, TOKENIZER, TOOLS, Caller, asked, prompt_of, rows_of
from .slow_model import slow_run

PROMPT: Final = prompt_of(asked("Name two rivers."))
FREE: Final = {"ignore_eos": True, "max_new_tokens": 12}


def entries(reply: Any) -> list[Any]:
    found: list[Any] = reply["meta_info"]["output_token_logprobs"]
    return found


def test_log_probs_are_those_of_the_slow_model(engine: Caller) -> None:
    reply = engine.generate(PROMPT, params=FREE)
    ids = reply["output_ids"]
    logits = slow_run(SETTINGS, PROMPT + ids).logits_TV[len(PROMPT) - 1 : -1]
    expected = [row[one] - np.logaddexp.reduce(row) for row, one in zip(logits, ids, strict=True)]
    found = [entry[0] for entry in entries(reply)]
    np.testing.assert_allclose(found, expected, atol=1e-3)
    assert [entry[1:] for entry in entries(reply)] == [[one, None] for one in ids]


def test_there_is_a_row_for_every_token_but_the_last(engine: Caller) -> None:
    rows = rows_of(engine.generate(PROMPT, params=FREE)["meta_info"]["routed_experts"])
    assert len(rows) == len(PROMPT) + 12 - 1
    assert rows.min() >= 0
    assert rows.max() < SETTINGS.num_experts
    ordered = np.sort(rows, axis=2)
    assert np.all(ordered[..., 1:] > ordered[..., :-1])


@given(st.integers(0, len(PROMPT)), st.integers(0, 3))
def test_rows_from_a_start_on_are_the_last_of_all_rows(
    engine: Caller, start: int, num_new: int
) -> None:
    params = {"ignore_eos": True, "max_new_tokens": num_new}
    whole = engine.generate(PROMPT, params=params)["meta_info"]["routed_experts"]
    part = engine.generate(PROMPT, params=params, routed_experts_start_len=start)
    rows = rows_of(part["meta_info"]["routed_experts"])
    assert rows.tolist() == rows_of(whole)[start:].tolist()


def test_no_rows_are_an_empty_text(engine: Caller) -> None:
    start = {"routed_experts_start_len": len(PROMPT)}
    reply = engine.generate(PROMPT, params={"max_new_tokens": 1}, **start)
    assert reply["meta_info"]["routed_experts"] == ""


def test_without_new_tokens_the_last_row_of_the_prompt_is_missing(engine: Caller) -> None:
    reply = engine.generate(PROMPT[-8:], params={"max_new_tokens": 0})
    meta = reply["meta_info"]
    assert (reply["text"], reply["output_ids"]) == ("", [])
    assert meta["finish_reason"] == {"type": "length", "length": 0}
    assert (meta["prompt_tokens"], len(rows_of(meta["routed_experts"]))) == (8, 7)


def test_the_limit_ends_the_output(engine: Caller) -> None:
    reply = engine.generate(PROMPT, params=FREE)
    assert len(reply["output_ids"]) == 12
    assert reply["meta_info"]["finish_reason"] == {"type": "length", "length": 12}


def test_without_a_limit_the_default_of_sglang_holds(engine: Caller) -> None:
    assert len(engine.generate(PROMPT, params={"ignore_eos": True})["output_ids"]) == 128


def test_the_end_of_the_turn_is_the_last_entry_and_not_in_the_text(engine: Caller) -> None:
    bias = {"logit_bias": {str(IM_END): 3.0}}
    reply = engine.generate(PROMPT, params={**bias, "min_new_tokens": 3, "max_new_tokens": 999})
    *spoken, last = reply["output_ids"]
    assert last == entries(reply)[-1][1] == IM_END
    assert reply["meta_info"]["finish_reason"] == {"type": "stop", "matched": IM_END}
    assert reply["text"] == TOKENIZER.decode(spoken)
    assert len(spoken) >= 3


def test_the_end_of_the_turn_is_shown_where_that_is_asked_for(engine: Caller) -> None:
    params = {"no_stop_trim": True, "skip_special_tokens": False, "max_new_tokens": 999}
    assert engine.generate(PROMPT, params=params)["text"].endswith("<|im_end|>")


def test_an_id_to_stop_at_is_not_in_the_text(engine: Caller) -> None:
    third = engine.generate(PROMPT, params=FREE)["output_ids"][2]
    reply = engine.generate(PROMPT, params={**FREE, "stop_token_ids": [third]})
    ids = reply["output_ids"]
    assert ids.index(third) == len(ids) - 1
    assert reply["text"] == TOKENIZER.decode(ids[:-1])
    assert reply["meta_info"]["finish_reason"] == {"type": "stop", "matched": third}


@pytest.mark.parametrize("spell", [str, lambda text: ["never written", text]], ids=["one", "list"])
def test_a_text_to_stop_at_is_not_in_the_text(engine: Caller, spell: Any) -> None:
    whole = engine.generate(PROMPT, params=FREE)["text"]
    stop = whole[4:7]
    reply = engine.generate(PROMPT, params={**FREE, "stop": spell(stop)})
    assert reply["text"] == whole[: whole.index(stop)]
    assert len(reply["output_ids"]) == len(reply["text"]) + len(stop)
    assert reply["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}


def test_a_marker_can_be_the_text_to_stop_at(engine: Caller) -> None:
    params = {"structural_tag": structural_tag(TOOLS), "stop": "</tool_call>"}
    reply = engine.generate(prompt_of(asked("Rain?"), TOOLS), params=params)
    assert reply["meta_info"]["finish_reason"] == {"type": "stop", "matched": "</tool_call>"}
    assert reply["output_ids"][-1] == TOKENIZER.encode("</tool_call>")[0]
    assert reply["text"].endswith("}\n")


def test_several_outputs_are_a_list_and_differ(engine: Caller) -> None:
    one, other = engine.generate(PROMPT, params={**FREE, "n": 2})
    assert one["output_ids"] != other["output_ids"]
    assert one["output_ids"] == engine.generate(PROMPT, params=FREE)["output_ids"]
    assert len(rows_of(other["meta_info"]["routed_experts"])) == len(PROMPT) + 11


def test_equal_requests_get_equal_answers(engine: Caller) -> None:
    one, other = (engine.generate(PROMPT, params=FREE) for _ in range(2))
    assert entries(one) == entries(other)
    assert one["meta_info"]["routed_experts"] == other["meta_info"]["routed_experts"]


def test_another_seed_gets_another_answer(engine: Caller) -> None:
    one, other = (
        engine.generate(PROMPT, params={**FREE, "sampling_seed": seed}) for seed in (1, 2)
    )
    assert one["output_ids"] != other["output_ids"]


@settings(max_examples=max(settings().max_examples // 5, 1))
@given(st.integers(1, 999))
def test_what_lies_in_the_cache_changes_nothing(engine: Caller, seed: int) -> None:
    prompt = prompt_of(asked(f"Name {seed} rivers."))
    params = {"max_new_tokens": 30, "sampling_seed": seed, "ignore_eos": True}
    cold = engine.generate(prompt, params=params)
    warm = engine.generate(prompt, params=params)
    assert warm["meta_info"]["cached_tokens"] == len(prompt) - 1
    assert entries(cold) == entries(warm)
    assert cold["meta_info"]["routed_experts"] == warm["meta_info"]["routed_experts"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"input_ids": None}, "input_ids are needed"),
        ({"input_ids": []}, "one id or more"),
        ({"input_ids": [260]}, "below 260"),
        ({"input_ids": [-1]}, "input_ids"),
        ({"input_ids": ["a"]}, "input_ids"),
        ({"stream": True}, "does not stream"),
        ({"sampling_params": {"max_new_tokens": 9000}}, "has room for 8192"),
        ({"sampling_params": {"no_such": 1}}, "no_such"),
        ({"sampling_params": {"structural_tag": "{"}}, "structural_tag"),
        ({"sampling_params": {"structural_tag": '{"type": "structural_tag"}'}}, "structural_tag"),
        ({"routed_experts_start_len": -1}, "routed_experts_start_len"),
        ({"routed_experts_start_len": len(PROMPT) + 1}, "Please use a smaller"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_what_cannot_be_generated_is_refused(
    engine: Caller, change: dict[str, Any], told: str
) -> None:
    assert told in engine.refusal("/generate", {"input_ids": PROMPT, **change})


def test_a_body_that_is_no_json_is_refused(engine: Caller) -> None:
    response = engine.http.post("/generate", content=b'{"input_ids": [1')
    assert response.status_code == 400
    assert "message" in response.json()["error"]
