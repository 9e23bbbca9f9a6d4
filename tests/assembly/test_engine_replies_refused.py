"""Malformed records are refused with the turn; nothing else leaves, and the reader goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sample_wire import AssemblyError
from sample_wire.assembly import TurnReader

from ._records import (
    Record,
    both_forms,
    refused,
    sglang,
    sglang_generate,
    vllm,
    vllm_chat,
)

SHAPES = {"sglang": sglang, "generate": sglang_generate, "vllm": vllm, "vllm_chat": vllm_chat}
shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
FIRST = sglang([1], [2])


def fault_of(record: Any, **options: Any) -> AssemblyError:
    """The refusal of a record that comes as the second turn."""
    error = refused([FIRST, record], **options)
    assert error.turn == 2
    assert str(error).startswith("turn 2: ")
    return error


@both_forms
@shapes
@pytest.mark.parametrize(
    "value",
    [None, float("nan"), float("inf"), "x", "-0.5", True, [], {}, 10**400],
    ids=str,
)
def test_a_log_prob_that_is_missing_or_no_number_is_refused(
    shape: Any, value: Any, sent: Any
) -> None:
    fault_of(sent(shape([1, 2, 3], [4, 5], [-0.5, value])))


@both_forms
@shapes
@pytest.mark.parametrize("value", [1.0, True, "5", None, [5], {}, 1.5, 10**30, -(10**30)], ids=str)
def test_an_output_id_that_is_no_integer_is_refused(shape: Any, value: Any, sent: Any) -> None:
    fault_of(sent(shape([1, 2, 3], [4, value])))


@both_forms
@shapes
@pytest.mark.parametrize("value", [1.0, True, "5", None, [5], {}, 1.5, 10**30], ids=str)
def test_a_prompt_id_that_is_no_integer_is_refused(shape: Any, value: Any, sent: Any) -> None:
    fault_of(sent(shape([1, 2, value], [4])))


@both_forms
@pytest.mark.parametrize("ids", ["12", 5, {}, {"0": 1}, True, [[1, 2]]], ids=str)
@pytest.mark.parametrize("key", ["input_ids", "token_ids"])
def test_prompt_ids_that_are_no_list_are_refused(key: str, ids: Any, sent: Any) -> None:
    record = sglang([1, 2, 3], [4])
    record["request"] = {key: ids}
    fault_of(sent(record))


@both_forms
@shapes
def test_a_record_without_prompt_ids_is_refused(shape: Any, sent: Any) -> None:
    record = shape([1, 2, 3], [4])
    record["request"] = {"messages": [{"role": "user", "content": "asked"}]}
    record["response"].pop("prompt_token_ids", None)
    error = fault_of(sent(record))
    assert error.field == "input_ids"
    assert "no prompt ids" in str(error)


def meta_of(record: Record) -> dict[str, Any]:
    """The meta_info of a SGLang record."""
    reply = record["response"]
    found: dict[str, Any] = reply.get("meta_info") or reply["choices"][0]["meta_info"]
    return found


@both_forms
@pytest.mark.parametrize("shape", [sglang, sglang_generate])
@pytest.mark.parametrize("key", ["output_token_logprobs", "completion_tokens"])
def test_meta_info_without_a_key_that_is_needed_is_refused(shape: Any, key: str, sent: Any) -> None:
    record = shape([1, 2, 3], [4])
    del meta_of(record)[key]
    error = fault_of(sent(record))
    assert error.field == key
    assert f"no {key}" in str(error)


@both_forms
@shapes
def test_a_reply_that_does_not_tell_its_ids_is_refused(shape: Any, sent: Any) -> None:
    record = shape([1, 2, 3], [4])
    reply = record["response"]
    reply.pop("meta_info", None)
    for choice in reply.get("choices", []):
        choice.pop("meta_info", None)
        choice.pop("token_ids", None)
    assert fault_of(sent(record)).field == "meta_info"
    reply["choices"] = []
    fault_of(sent(record))
    reply["choices"] = None
    fault_of(sent(record))


@both_forms
@pytest.mark.parametrize("logprobs", [None, {}, {"content": None}])
def test_a_vllm_reply_without_log_probs_is_refused(logprobs: Any, sent: Any) -> None:
    record = vllm([1, 2, 3], [4])
    record["response"]["choices"][0]["logprobs"] = logprobs
    error = fault_of(sent(record))
    assert error.field == "logprobs"


@both_forms
def test_log_probs_that_name_other_ids_are_refused(sent: Any) -> None:
    record = vllm([1, 2, 3], [4, 5])
    entries = record["response"]["choices"][0]["logprobs"]["content"]
    for entry, token in zip(entries, ["token_id:4", "token_id:99"], strict=True):
        entry["token"] = token
    assert "log-prob 1 of 2 is that of another id" in str(fault_of(sent(record)))


@both_forms
def test_a_count_of_usage_that_is_not_that_of_the_ids_is_refused(sent: Any) -> None:
    record = vllm([1, 2, 3], [4])
    record["response"]["usage"]["completion_tokens"] = 2
    error = fault_of(sent(record))
    assert (error.field, error.expected, error.got) == ("completion_tokens", "2", "1")


@both_forms
@pytest.mark.parametrize("ids", [[5], [4, 4], []])
def test_output_ids_that_are_not_those_of_the_log_probs_are_refused(
    ids: list[int], sent: Any
) -> None:
    record = sglang_generate([1, 2, 3], [4])
    record["response"]["output_ids"] = ids
    assert "output_ids" in str(fault_of(sent(record)))


@both_forms
@pytest.mark.parametrize("entry", [None, -0.5, [], [-0.5], "ab", {}, [[-0.5, 4]]], ids=str)
def test_an_entry_that_is_no_pair_is_refused(entry: Any, sent: Any) -> None:
    record = sglang([1, 2, 3], [4])
    meta_of(record)["output_token_logprobs"] = [entry]
    fault_of(sent(record))


COUNTERS = (
    "completion_tokens",
    "prompt_tokens",
    "cached_tokens",
    "spec_accept_token_num",
    "spec_draft_token_num",
    "spec_verify_ct",
)


@both_forms
@pytest.mark.parametrize("key", COUNTERS)
@pytest.mark.parametrize("value", [-1, 2**63, 1.0, "1", True, [1]], ids=str)
def test_a_counter_that_is_no_counter_is_refused(key: str, value: Any, sent: Any) -> None:
    fault_of(sent(sglang([1, 2, 3], [4], **{key: value})), speculative=True)


@both_forms
@pytest.mark.parametrize("place", ["prompt_tokens", "completion_tokens", "cached_tokens"])
@pytest.mark.parametrize("value", [-1, 2**63, 1.0, "1", True], ids=str)
def test_a_counter_of_usage_that_is_no_counter_is_refused(
    place: str, value: Any, sent: Any
) -> None:
    record = vllm([1, 2, 3], [4])
    usage = record["response"]["usage"]
    (usage["prompt_tokens_details"] if place == "cached_tokens" else usage)[place] = value
    fault_of(sent(record))


@both_forms
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_latency_that_is_no_time_is_refused(value: float, sent: Any) -> None:
    error = fault_of(sent(sglang([1, 2, 3], [4], e2e_latency=value)))
    assert error.field == "e2e_latency"


@both_forms
@pytest.mark.parametrize("shape", [sglang, vllm])
def test_counters_whose_sum_no_payload_can_carry_are_refused(shape: Any, sent: Any) -> None:
    records = [
        sent(shape([1], [2], cached_tokens=2**63 - 1)),
        sent(shape([1, 2, 3], [4], cached_tokens=1)),
    ]
    refused(records)


WRONG: tuple[Any, ...] = (5, "x", True, [], {}, [[]], 1.5)
PLACES: dict[str, tuple[str | int, ...]] = {
    "choices": ("choices",),
    "choice": ("choices", 0),
    "message": ("choices", 0, "message"),
    "meta_info": ("choices", 0, "meta_info"),
    "finish_reason": ("choices", 0, "finish_reason"),
    "usage": ("usage",),
    "sglext": ("sglext",),
    "log-probs": ("choices", 0, "meta_info", "output_token_logprobs"),
    "weight_version": ("choices", 0, "meta_info", "weight_version"),
    "reason": ("choices", 0, "meta_info", "finish_reason"),
    "reason type": ("choices", 0, "meta_info", "finish_reason", "type"),
    "latency": ("choices", 0, "meta_info", "e2e_latency"),
    "layers": ("choices", 0, "meta_info", "indexer_topk_num_layers"),
    "prompt ids": ("prompt_token_ids",),
    "output ids": ("output_ids",),
}
# What is wrong elsewhere and right here.
RIGHT: dict[str, list[Any]] = {
    "message": [{}],
    "usage": [{}],
    "sglext": [{}],
    "finish_reason": ["x"],
    "reason": ["x", {}],
    "reason type": ["x"],
    "weight_version": ["x"],
    "latency": [5, 1.5],
    "layers": [5],
    "prompt ids": [[]],
}


def is_right(place: str, value: Any) -> bool:
    """Whether the value is one for its place."""
    return any(type(value) is type(right) and value == right for right in RIGHT.get(place, []))


@both_forms
@pytest.mark.parametrize(
    ("place", "value"),
    [(place, value) for place in PLACES for value in WRONG if not is_right(place, value)],
    ids=str,
)
def test_a_value_of_a_wrong_type_is_refused_wherever_it_stands(
    place: str, value: Any, sent: Any
) -> None:
    record = sglang([1, 2, 3], [4])
    *path, last = PLACES[place]
    holder: Any = record["response"]
    for key in path:
        holder = holder[key]
    holder[last] = value
    fault_of(sent(record))


@pytest.mark.parametrize(
    "record",
    [None, 5, "x", [], {}, {"request": {}}, {"response": {}}, {"request": None, "response": {}}],
    ids=str,
)
def test_what_is_no_record_is_refused(record: Any) -> None:
    fault_of(record)


@pytest.mark.parametrize("request_body", [None, 5, "x", [], b"{}", [{}]], ids=str)
def test_a_request_that_is_no_object_is_refused(request_body: Any) -> None:
    fault_of(sglang([1, 2, 3], [4]) | {"request": request_body})
    fault_of(sglang([1, 2, 3], [4]) | {"request": {"body": request_body}})


@pytest.mark.parametrize("reply", [None, 5, "x", [], True, 1.5, [[]], [5], {"body": None}], ids=str)
def test_a_reply_that_is_no_object_is_refused(reply: Any) -> None:
    fault_of(sglang([1, 2, 3], [4]) | {"response": reply})


DEEP = 100_000
BAD_BYTES = {
    "empty": b"",
    "html": b"<html><body>502 Bad Gateway</body></html>",
    "text": b"upstream connect error",
    "cut": b'{"choices": [{"meta_info": {"output_token_logprobs": [[-0.5, 4',
    "two": b"{}{}",
    "null": b"null",
    "a number": b"5",
    "a list": b"[]",
    "a list of numbers": b"[5]",
    "not utf-8": b'{"choices": "\xff\xfe"}',
    "utf-16": '{"choices": []}'.encode("utf-16"),
    "nul": b"\x00" * 8,
    "deep list": b"[" * DEEP,
    "deep object": b'{"a":' * DEEP,
    "deep whole": b'{"choices":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "deep unknown key": b'{"odd":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "deep after nan": b'{"odd":NaN,"choices":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "a giant number": b'{"usage": {"prompt_tokens": 1' + b"0" * 5000 + b"}}",
    "a giant exponent": b'{"usage": {"prompt_tokens": 1e999}}',
}


@pytest.mark.parametrize("text", BAD_BYTES.values(), ids=BAD_BYTES)
def test_bytes_that_are_no_reply_are_refused(text: bytes) -> None:
    fault_of(sglang([1, 2, 3], [4]) | {"response": text})


def test_a_deep_object_is_refused() -> None:
    deep: Any = []
    for _ in range(DEEP):
        deep = [deep]
    for key in ("choices", "meta_info", "output_ids"):
        fault_of(sglang([1, 2, 3], [4]) | {"response": {key: deep}})
    fault_of(sglang([1, 2, 3], [4], routed_experts=deep))
    fault_of(sglang([1, 2, 3], [4]) | {"request": {"input_ids": deep}})


@pytest.mark.parametrize(
    "events",
    [
        None,
        5,
        "x",
        [5],
        [{"choices": 5}],
        [{"choices": [5]}],
        [{"choices": [{"token_ids": 5}]}],
        [{"choices": [{"token_ids": ["5"], "logprobs": {"content": [{}]}}]}],
        [{"choices": [{"token_ids": [5]}]}],
        [{"choices": [{"token_ids": [5], "logprobs": []}]}],
        [{"choices": [{"token_ids": [5], "logprobs": {"content": 5}}]}],
        [{"choices": [{"token_ids": [5], "logprobs": {"content": [{"logprob": None}]}}]}],
        [{"choices": [{"index": "0"}]}],
        [{"choices": [{"token_ids": {"5": 1}, "logprobs": {"content": [{"logprob": -1.0}]}}]}],
        [{"meta_info": None}],
        [{"meta_info": 5}],
    ],
    ids=str,
)
def test_events_that_are_no_stream_are_refused(events: Any) -> None:
    record = {"request": {"input_ids": [1, 2, 3]}, "response": {"sse": events}}
    fault_of(record)


@both_forms
def test_the_number_in_an_error_counts_turns_from_one(sent: Any) -> None:
    records: list[Any] = [FIRST, sglang([1, 2, 3], [4]), sent({"request": {}, "response": {}})]
    error = refused(records)
    assert error.turn == 3
    assert str(error).startswith("turn 3: ")


def test_a_reader_refuses_a_bad_record_and_reads_the_next_as_if_it_had_not_been() -> None:
    reader = TurnReader(routing=None, decode_text=None)
    first = reader.read(FIRST, None)
    with pytest.raises(AssemblyError):
        reader.read(sglang([1, 2, 9], [4], [None]), first)
    second = reader.read(sglang([1, 2, 3], [4]), first)
    assert second.tokens.to_array("int64").tolist() == [1, 2, 3, 4]
    assert first.tokens.to_array("int64").tolist() == [1, 2]


def test_an_error_text_never_holds_the_reply() -> None:
    secret = "secret" * 10
    for place in PLACES.values():
        record = sglang([1, 2, 3], [4])
        *path, last = place
        holder: Any = record["response"]
        for key in path:
            holder = holder[key]
        holder[last] = [secret]
        for response in (record["response"], json.dumps(record["response"]).encode()):
            error = refused([record | {"response": response}])
            assert "secret" not in str(error)
