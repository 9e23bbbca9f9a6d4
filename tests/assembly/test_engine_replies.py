"""Engines' replies: what is read from each, in both spellings, as bytes and as objects."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from sample_wire import PrefixCacheInfo, Status

from ._records import (
    Record,
    both_forms,
    npy_base64,
    one,
    plain,
    refused,
    routed,
    rows_in,
    sglang,
    sglang_generate,
    spec,
    vllm,
    vllm_chat,
)

SHAPES = {"sglang": sglang, "generate": sglang_generate, "vllm": vllm, "vllm_chat": vllm_chat}
shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


@both_forms
@shapes
def test_each_reply_gives_ids_log_probs_and_status(shape: Any, sent: Any) -> None:
    found = one([sent(shape([1, 2], [3, 4], [-0.125, -1], finish="length"))])
    assert plain(found.tokens) == [1, 2, 3, 4]
    assert plain(found.rollout_log_probs) == [-0.125, -1.0]
    assert plain(found.loss_mask) == [1, 1]
    assert found.status is Status.TRUNCATED


@both_forms
@pytest.mark.parametrize("reason", [{"type": "length", "length": 2}, {"type": "length"}, "length"])
def test_sglang_spells_the_finish_reason_in_two_ways(reason: Any, sent: Any) -> None:
    record = sglang([1], [2])
    record["response"]["choices"][0]["meta_info"]["finish_reason"] = reason
    assert one([sent(record)]).status is Status.TRUNCATED


@both_forms
@pytest.mark.parametrize("reason", [None, {}, {"type": None}])
def test_the_choice_tells_the_finish_reason_where_meta_info_does_not(
    reason: Any, sent: Any
) -> None:
    record = sglang([1], [2])
    choice = record["response"]["choices"][0]
    choice["meta_info"]["finish_reason"] = reason
    assert one([sent(record)]).status is Status.PENDING
    choice["finish_reason"] = "stop"
    assert one([sent(record)]).status is Status.COMPLETED


@both_forms
def test_the_reason_in_meta_info_wins(sent: Any) -> None:
    record = sglang([1], [2], finish="abort")
    record["response"]["choices"][0]["finish_reason"] = "stop"
    assert one([sent(record)]).status is Status.ABORTED


@both_forms
@pytest.mark.parametrize("place", ["request", "token_ids", "reply", "choice"])
def test_the_prompts_ids_may_stand_in_four_places(place: str, sent: Any) -> None:
    record = sglang([1, 2], [3])
    ids = record["request"].pop("input_ids")
    holders: dict[str, tuple[dict[str, Any], str]] = {
        "request": (record["request"], "input_ids"),
        "token_ids": (record["request"], "token_ids"),
        "reply": (record["response"], "prompt_token_ids"),
        "choice": (record["response"]["choices"][0], "prompt_token_ids"),
    }
    holder, key = holders[place]
    holder[key] = ids
    assert plain(one([sent(record)]).tokens) == [1, 2, 3]


@both_forms
def test_the_ids_of_the_request_win(sent: Any) -> None:
    record = sglang([1, 2], [3])
    record["response"]["prompt_token_ids"] = [8, 9]
    assert plain(one([sent(record)]).tokens) == [1, 2, 3]


@both_forms
def test_ids_of_a_null_key_are_looked_for_elsewhere(sent: Any) -> None:
    record = sglang([1, 2], [3])
    record["request"] = {"input_ids": None, "token_ids": [4]}
    assert plain(one([sent(record)]).tokens) == [4, 3]


@both_forms
def test_an_empty_prompt_is_one(sent: Any) -> None:
    assert plain(one([sent(sglang([], [3]))]).tokens) == [3]
    record = vllm_chat([], [3])
    assert plain(one([sent(record)]).tokens) == [3]


@both_forms
def test_bodies_may_be_wrapped_with_method_and_status(sent: Any) -> None:
    record = sent(sglang([1], [2]))
    wrapped = {
        "request": {"method": "POST", "path": "/x", "body": record["request"]},
        "response": {"status": 200, "body": record["response"]},
    }
    assert plain(one([wrapped]).tokens) == [1, 2]


@both_forms
@pytest.mark.parametrize("shape", [vllm, vllm_chat])
@pytest.mark.parametrize("details", [{"cached_tokens": 4}, {"cached_tokens": None}, {}, None])
def test_vllm_tells_its_prefix_cache_in_usage(shape: Any, details: Any, sent: Any) -> None:
    record = shape([1, 2], [3])
    record["response"]["usage"]["prompt_tokens_details"] = details
    cached = (details or {}).get("cached_tokens") or 0
    assert one([sent(record)]).prefix_cache_info == PrefixCacheInfo(cached, 2)


@both_forms
def test_a_reply_without_usage_counts_nothing(sent: Any) -> None:
    record = vllm([1, 2], [3])
    del record["response"]["usage"]
    assert one([sent(record)]).prefix_cache_info == PrefixCacheInfo()


@both_forms
def test_minus_infinity_is_a_log_prob(sent: Any) -> None:
    found = one([sent(sglang([1], [2, 3], [-float("inf"), -0.0]))])
    assert found.rollout_log_probs is not None
    assert found.rollout_log_probs.tobytes() == np.array([-np.inf, -0.0]).tobytes()


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_minus_infinity_may_be_a_token_that_is_no_json(shape: Any) -> None:
    record = shape([1], [2], [-float("inf")])
    record["response"] = json.dumps(record["response"]).encode()
    assert b"-Infinity" in record["response"]
    assert plain(one([record]).rollout_log_probs) == [-float("inf")]


@both_forms
def test_log_probs_keep_every_bit(sent: Any) -> None:
    values = [-12.924283981323242, -5e-324, -1.7976931348623157e308, -0.1, 0.0, -3]
    found = one([sent(sglang([1], [2] * 6, values))])
    assert plain(found.rollout_log_probs) == values


@both_forms
@shapes
def test_ids_may_have_up_to_64_bits(shape: Any, sent: Any) -> None:
    ids = [0, 2**31, 2**32 + 1, 2**63 - 1]
    assert plain(one([sent(shape(ids, ids))]).tokens) == ids * 2


@both_forms
def test_unknown_keys_are_passed_over(sent: Any) -> None:
    record = sglang([1], [2], num_retractions=0, weight_versions=[{"version": "7"}], dp_rank=None)
    record["response"] |= {"usage": {"odd": [1]}, "sglext": {}, "metadata": {"a": {"b": [None]}}}
    assert plain(one([sent(record)]).tokens) == [1, 2]


@both_forms
@shapes
def test_of_several_choices_only_the_first_is_used(shape: Any, sent: Any) -> None:
    record = shape([1], [2])
    if "choices" in record["response"]:
        record["response"]["choices"].append({"token_ids": [9], "meta_info": {"odd": 1}})
    else:
        record["response"] = [record["response"], {"odd": 1}]
    assert plain(one([sent(record)]).tokens) == [1, 2]


def event(index: int, ids: list[int], **keys: Any) -> dict[str, Any]:
    """A chunk of vLLM's token-in stream."""
    content = [{"logprob": -float(item)} for item in ids]
    choice = {"index": index, "token_ids": ids, "logprobs": {"content": content}}
    return {"choices": [choice | {"finish_reason": None, "routed_experts": None} | keys]}


def streamed(*events: Any, prompt: Any = (1, 2)) -> Record:
    """A record whose reply came in events."""
    return {"request": {"token_ids": [*prompt]}, "response": {"sse": [*events]}}


def test_the_events_of_a_stream_add_up_to_a_reply() -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 3}}
    record = streamed(
        event(0, [3]),
        event(0, [4, 5], finish_reason="length", routed_experts=npy_base64(routed(4))),
        usage,
        "[DONE]",
    )
    found = one([record], routing=spec())
    assert plain(found.tokens) == [1, 2, 3, 4, 5]
    assert plain(found.rollout_log_probs) == [-3, -4, -5]
    assert (found.status, found.prefix_cache_info.total_prompt_tokens) == (Status.TRUNCATED, 2)
    assert np.array_equal(rows_in(found), routed(4))


def test_of_a_stream_of_several_choices_only_the_first_is_used() -> None:
    events = [event(0, [3]), event(1, [8]), event(0, [4]), event(1, [9], finish_reason="abort")]
    found = one([streamed(*events)])
    assert plain(found.tokens) == [1, 2, 3, 4]
    assert found.status is Status.PENDING


def test_a_generate_stream_repeats_everything_in_its_last_event() -> None:
    first = sglang_generate([1], [2], finish=None)["response"]
    last = sglang_generate([1], [2, 3])["response"]
    record = {"request": {"input_ids": [1]}, "response": {"sse": [first, last, "[DONE]"]}}
    assert plain(one([record]).tokens) == [1, 2, 3]


@pytest.mark.parametrize("events", [[], ["[DONE]"], [{"choices": []}], [event(1, [8])]], ids=str)
def test_a_stream_without_any_output_event_is_refused(events: list[Any]) -> None:
    assert refused([streamed(*events)]).turn == 1


def test_a_streamed_chat_is_refused_by_name() -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "a"}}]}
    error = refused([streamed(chunk)])
    assert error.turn == 1
    assert "a streamed chat does not tell its output ids" in str(error)


def test_a_stream_that_counts_otherwise_is_refused() -> None:
    usage = {"choices": [], "usage": {"completion_tokens": 3}}
    assert refused([streamed(event(0, [3]), usage)]).turn == 1


@both_forms
def test_the_output_ids_of_generate_may_be_absent(sent: Any) -> None:
    record = sglang_generate([1], [2])
    del record["response"]["output_ids"]
    assert plain(one([sent(record)]).tokens) == [1, 2]
