"""Rules of what a sample says beside its tokens: counters, versions, lifecycle, messages."""

from __future__ import annotations

from typing import Any

import pytest

from sample_wire import PrefixCacheInfo, SpecInfo
from sample_wire.assembly import oldest_weight_version

from ._records import (
    Record,
    one,
    refused,
    sglang,
    sglang_generate,
    vllm,
)


def test_prefix_cache_counters_are_summed_and_missing_ones_count_nothing() -> None:
    records = [
        sglang([1], [2], cached_tokens=3),
        sglang([1, 2, 3], [4], prompt_tokens=5),
        sglang([1, 2, 3, 4, 5], [6], cached_tokens=1, prompt_tokens=2),
    ]
    assert one(records).prefix_cache_info == PrefixCacheInfo(4, 7)


def test_counters_of_turns_that_are_left_out_do_not_count() -> None:
    records = [
        sglang([1], [2], finish="length", cached_tokens=3, weight_version="a"),
        sglang([1, 2, 3], [4], cached_tokens=4, weight_version="b"),
    ]
    found = one(records)
    assert found.prefix_cache_info == PrefixCacheInfo(3, 0)
    assert found.weight_versions == ["a"]


@pytest.mark.parametrize(
    ("speculative", "expected"), [(True, SpecInfo(3, 7, 2, 3)), (False, SpecInfo())]
)
def test_speculative_counters_are_summed_where_they_are_wanted(
    speculative: bool, expected: SpecInfo
) -> None:
    records = [
        sglang(
            [1],
            [2, 3],
            spec_accept_token_num=1,
            spec_draft_token_num=4,
            spec_verify_ct=2,
        ),
        sglang([1, 2, 3, 4], [5], spec_accept_token_num=2, spec_draft_token_num=3),
    ]
    assert one(records, speculative=speculative).spec_info == expected


def test_weight_versions_are_kept_in_turn_order_as_sent() -> None:
    records = [
        sglang([1], [2], weight_version="10"),
        sglang([1, 2, 3], [4]),
        sglang([1, 2, 3, 4, 5], [6], weight_version=""),
        sglang([1, 2, 3, 4, 5, 6, 7], [8], weight_version="10"),
    ]
    assert one(records).weight_versions == ["10", "", "10"]


@pytest.mark.parametrize(
    ("versions", "oldest"),
    [
        (["10", "9", "v1", "11"], "9"),
        (["v1", ""], None),
        ([], None),
        (["007", "8"], "007"),
        (["0", "00"], "0"),
        (["-1", "1.5", " 2", "\u0663", "\u00b2"], None),
        (["1" * 5000, "2" * 4999], "2" * 4999),
    ],
)
def test_the_oldest_version_is_the_least_of_those_that_are_all_digits(
    versions: list[str], oldest: str | None
) -> None:
    assert oldest_weight_version(versions) == oldest


def timed(record: Record, at: Any, arrived: Any = None) -> Record:
    """The record with its times of commit and arrival."""
    return record | {"timestamp": at, "request_timestamp": arrived}


def test_the_lifecycle_says_when_each_turn_ran() -> None:
    records = [
        timed(sglang([1], [2]), 100),
        timed(sglang([1, 2, 3], [4], e2e_latency=10), 130, 104),
    ]
    assert one(records).metadata["lifecycle"] == [
        {"t0": None, "t1": 100, "turn": 1},
        {"t0": 120, "t1": 130, "turn": 2, "req_ts": 104, "prev_t1": 100},
    ]


def test_the_lifecycle_of_one_turn_is_a_list_too() -> None:
    assert one([timed(sglang([1], [2]), 100)]).metadata["lifecycle"] == [
        {"t0": None, "t1": 100, "turn": 1}
    ]


def test_a_record_without_a_timestamp_has_no_lifecycle() -> None:
    records = [timed(sglang([1], [2]), 100), sglang([1, 2, 3], [4])]
    assert len(one(records).metadata["lifecycle"]) == 1
    assert "lifecycle" not in one([sglang([1], [2], e2e_latency=1.0)]).metadata


@pytest.mark.parametrize("value", ["100", True, float("nan"), float("inf"), [1], {}])
@pytest.mark.parametrize("key", ["timestamp", "request_timestamp"])
def test_a_time_that_is_no_number_of_seconds_is_refused(key: str, value: Any) -> None:
    error = refused([sglang([1], [2]) | {key: value}])
    assert (error.turn, error.field) == (1, key)


def test_messages_are_those_of_the_last_turn_and_its_answer() -> None:
    asked = [{"role": "user", "content": "a"}]
    more = [*asked, {"role": "tool", "content": "b"}]
    records = [
        sglang([1], [2], messages=asked),
        sglang([1, 2, 3], [4], messages=more),
    ]
    said = {"role": "assistant", "content": "said"}
    assert one(records, keep_messages=True).metadata == {"messages": [*more, said]}
    assert "messages" not in one(records).metadata


def test_the_answer_of_a_generate_reply_is_its_text() -> None:
    said = {"role": "assistant", "content": "said"}
    record = sglang_generate([1], [2])
    assert one([record], keep_messages=True).metadata == {"messages": [said]}
    record["response"]["text"] = ""
    assert one([record], keep_messages=True).metadata == {"messages": [said | {"content": ""}]}
    del record["response"]["text"]
    assert one([record], keep_messages=True).metadata == {"messages": []}


def test_messages_without_an_answer_are_those_of_the_request() -> None:
    record = vllm([1], [2])
    assert one([record], keep_messages=True).metadata == {"messages": []}


@pytest.mark.parametrize("messages", [5, "text", {"role": "user"}])
def test_messages_that_are_no_list_are_refused(messages: Any) -> None:
    record = sglang([1], [2])
    record["request"]["messages"] = messages
    assert refused([record], keep_messages=True).turn == 1
