"""The worked examples of the session layer's rules, with the values that the rules give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sample_wire import Sample, Status
from sample_wire.assembly import TurnReader, assemble_turns

from ._records import (
    Record,
    assembled,
    both_forms,
    one,
    plain,
    raw_base64,
    refused,
    routed,
    rows_in,
    sglang,
    spec,
    spelled,
)

TRIMMED = [sglang([1, 2], [10, 99], [-1, -2]), sglang([1, 2, 10, 3], [20, 99], [-3, -4])]
TRIMMED_IDS = [1, 2, 10, 3, 20, 99]


def test_a_trailing_token_that_the_next_prompt_dropped_is_trimmed() -> None:
    found = one(TRIMMED, accumulated_token_ids=TRIMMED_IDS, max_trim_tokens=1)
    assert plain(found.tokens) == TRIMMED_IDS
    assert plain(found.loss_mask) == [1, 0, 1, 1]
    assert plain(found.rollout_log_probs) == [-1, 0, -3, -4]
    assert found.response_length == 4


def test_no_trim_is_allowed_unless_asked_for() -> None:
    error = refused(TRIMMED, accumulated_token_ids=TRIMMED_IDS)
    assert (error.turn, error.field) == (2, "input_ids")
    assert "at position 3: trim_count 1 exceeds 0" in str(error)


@pytest.mark.parametrize("more", [1, 2])
def test_accumulated_ids_that_go_on_after_the_last_turn_are_refused(more: int) -> None:
    ids = TRIMMED_IDS + [5] * more
    error = refused(TRIMMED, accumulated_token_ids=ids, max_trim_tokens=1)
    assert error.turn == 2
    assert f"cursor 6 != len(accumulated_token_ids) {6 + more}" in str(error)


@pytest.mark.parametrize("allowed", [1, 2, 100])
def test_the_last_turn_is_never_trimmed(allowed: int) -> None:
    error = refused(TRIMMED, accumulated_token_ids=TRIMMED_IDS[:-1], max_trim_tokens=allowed)
    assert (error.turn, error.field) == (2, "accumulated_token_ids")
    assert "trim_count 1 exceeds 0" in str(error)


def test_a_turn_that_dropped_more_than_is_allowed_is_named() -> None:
    records = [sglang([1], [2, 3, 4]), sglang([1, 2, 5], [6])]
    assert refused(records, max_trim_tokens=1).turn == 2
    assert plain(one(records, max_trim_tokens=2).loss_mask) == [1, 0, 1]


def test_accumulated_ids_are_not_compared_with_the_prompt() -> None:
    found = one([sglang([1, 2], [3])], accumulated_token_ids=[8, 9, 3])
    assert plain(found.tokens) == [1, 2, 3]


def test_a_trim_cuts_routing_and_indexer_rows_with_the_tokens() -> None:
    record = sglang(
        [1, 2],
        [10, 99],
        routed_experts=raw_base64(routed(3)),
        indexer_topk=raw_base64(routed(3, 1, 2)),
        indexer_topk_num_layers=1,
        finish="length",
    )
    records = [record, sglang([1, 2, 10, 3], [20])]
    found = one(records, max_trim_tokens=1, routing=spec())
    assert plain(found.tokens) == [1, 2, 10]
    assert np.array_equal(rows_in(found), routed(2))
    assert np.array_equal(plain(found.rollout_indexer_topk), routed(2, 1, 2))


def test_a_trimmed_turns_text_is_decoded_anew() -> None:
    found = one(TRIMMED, max_trim_tokens=1, decode_text=spelled)
    assert found.response == "<10><3><20,99>"


def test_accumulated_ids_may_trim_what_the_prompt_kept() -> None:
    records = [sglang([1, 2], [10, 99]), sglang([1, 2, 10, 99, 3], [20])]
    ids = [1, 2, 10, 77, 3, 20]
    found = one(records, accumulated_token_ids=ids, max_trim_tokens=1, decode_text=spelled)
    assert plain(found.loss_mask) == [1, 0, 0, 1]
    assert found.response == "<10><99,3><20>"


def test_accumulated_ids_that_keep_what_the_prompt_dropped_are_refused() -> None:
    records = [sglang([1, 2], [10, 99]), sglang([1, 2, 10, 3, 4], [20])]
    ids = [1, 2, 10, 99, 4, 20]
    assert refused(records, accumulated_token_ids=ids, max_trim_tokens=1).turn == 2


TWO_TURNS = [
    sglang(
        [1, 2, 3],
        [10, 11],
        [-0.125, -0.25],
        routed_experts=raw_base64(routed(4)),
        weight_version="w1",
        cached_tokens=0,
        prompt_tokens=3,
    ),
    sglang(
        [1, 2, 3, 10, 11, 20, 21],
        [30, 31],
        [-0.5, -1],
        routed_experts=raw_base64(routed(8)),
        weight_version="w2",
        cached_tokens=5,
        prompt_tokens=7,
    ),
]


@both_forms
def test_two_turns_merge_into_one_sample(sent: Any) -> None:
    found = one([*map(sent, TWO_TURNS)], routing=spec(), decode_text=spelled)
    assert plain(found.tokens) == [1, 2, 3, 10, 11, 20, 21, 30, 31]
    assert found.response == "<10,11><20,21><30,31>"
    assert found.response_length == 6
    assert plain(found.loss_mask) == [1, 1, 0, 0, 1, 1]
    assert plain(found.rollout_log_probs) == [-0.125, -0.25, 0, 0, -0.5, -1]
    assert found.weight_versions == ["w1", "w2"]
    assert found.prefix_cache_info.cached_tokens == 5
    assert found.prefix_cache_info.total_prompt_tokens == 10
    assert np.array_equal(rows_in(found), routed(8))
    assert found.status is Status.COMPLETED
    assert found.metadata == {}


def test_one_turn_is_its_own_sample() -> None:
    found = one(TWO_TURNS[:1], routing=spec(), decode_text=spelled)
    assert plain(found.tokens) == [1, 2, 3, 10, 11]
    assert (found.response, found.response_length) == ("<10,11>", 2)
    assert np.array_equal(rows_in(found), routed(4))


def test_no_record_gives_no_sample_and_the_reason() -> None:
    result = assembled([])
    assert (result.samples, result.empty_reason) == ([], "no_records")


def cut_turns() -> list[Record]:
    """A turn of 5 tokens and one of 9, of which the last 2 are output."""
    return [
        sglang([1, 2, 3], [10, 11], routed_experts=raw_base64(routed(4))),
        sglang([1, 2, 3, 10, 11, 20, 21], [30, 31], routed_experts=raw_base64(routed(8))),
    ]


def test_a_limit_that_all_tokens_meet_cuts_nothing() -> None:
    found = one(cut_turns(), routing=spec(), max_seq_len=9)
    assert (len(found.tokens), found.status) == (9, Status.COMPLETED)
    assert "dropped_turns" not in found.metadata


def test_the_turn_that_passes_the_limit_is_cut_and_truncated() -> None:
    found = one(cut_turns(), routing=spec(), max_seq_len=8, decode_text=spelled)
    assert plain(found.tokens) == [1, 2, 3, 10, 11, 20, 21, 30]
    assert plain(found.loss_mask) == [1, 1, 0, 0, 1]
    assert np.array_equal(rows_in(found), routed(7))
    assert (found.status, found.response) == (Status.TRUNCATED, "<10,11><20,21><30>")
    assert "dropped_turns" not in found.metadata


@pytest.mark.parametrize("limit", [7, 6, 5])
def test_a_turn_whose_output_would_be_empty_is_dropped(limit: int) -> None:
    found = one(cut_turns(), routing=spec(), max_seq_len=limit)
    assert (len(found.tokens), found.status) == (5, Status.COMPLETED)
    assert found.metadata == {"dropped_turns": {"count": 1, "reason": "max_seq_len"}}


def test_the_first_turn_is_cut_like_any_other() -> None:
    found = one(cut_turns(), routing=spec(), max_seq_len=4)
    assert (plain(found.tokens), found.status) == ([1, 2, 3, 10], Status.TRUNCATED)
    assert np.array_equal(rows_in(found), routed(3))
    assert found.metadata == {"dropped_turns": {"count": 1, "reason": "max_seq_len"}}


@pytest.mark.parametrize("limit", [3, 2, 0, -1])
def test_a_limit_within_the_first_prompt_leaves_nothing(limit: int) -> None:
    result = assembled(cut_turns(), routing=spec(), max_seq_len=limit)
    assert (result.samples, result.empty_reason) == ([], "all_truncated")


def incremental_turns(start: int = 4) -> list[Record]:
    """Turn 1 sends rows [0, 4), turn 2 those from `start` on."""
    return [
        sglang([1, 2, 3], [4, 5], start=0, routed_experts=raw_base64(routed(4))),
        sglang(
            [1, 2, 3, 4, 5, 6],
            [7, 8],
            start=start,
            routed_experts=raw_base64(routed(7 - start, start=start)),
        ),
    ]


INCREMENTAL = spec(incremental=True)


@both_forms
def test_incremental_rows_are_those_of_full_ones(sent: Any) -> None:
    found = one([*map(sent, incremental_turns())], routing=INCREMENTAL)
    assert len(found.tokens) == 8
    assert rows_in(found).tobytes() == routed(7).tobytes()


def test_a_limit_takes_only_the_first_records_rows() -> None:
    found = one(incremental_turns(), routing=INCREMENTAL, max_seq_len=5)
    assert np.array_equal(rows_in(found), routed(4))


def test_a_cut_turn_takes_the_rows_that_its_tokens_need() -> None:
    found = one(incremental_turns(), routing=INCREMENTAL, max_seq_len=7)
    assert np.array_equal(rows_in(found), routed(6))


def test_rows_that_start_after_those_held_are_refused() -> None:
    error = refused(incremental_turns(5), routing=INCREMENTAL)
    assert (error.turn, error.field) == (2, "routed_experts")
    assert "additional R3: starts at row 5; expected 4: gap of 1 row" in str(error)


def test_a_trimmed_turn_before_an_earlier_start_is_refused() -> None:
    records = [
        sglang([1, 2, 3], [4, 5, 6], start=0, routed_experts=raw_base64(routed(5))),
        sglang([1, 2, 3, 4, 7], [8], start=4, routed_experts=raw_base64(routed(1, start=4))),
    ]
    error = refused(records, routing=INCREMENTAL, max_trim_tokens=2)
    assert error.turn == 2
    assert "additional R3: starts at row 4; expected 5: overlap of 1 row" in str(error)


def test_a_truncated_middle_turn_bounds_the_rows_that_are_needed() -> None:
    records = incremental_turns()
    records[1]["response"]["choices"][0]["meta_info"]["finish_reason"] = {"type": "length"}
    records.append(sglang([1, 2, 3, 4, 5, 6, 7, 8, 9], [10]))
    found = one(records, routing=INCREMENTAL)
    assert np.array_equal(rows_in(found), routed(7))
    assert found.metadata == {"dropped_turns": {"count": 1, "reason": "status"}}


def test_a_missing_payload_within_the_needed_rows_is_refused() -> None:
    records = incremental_turns()
    del records[0]["response"]["choices"][0]["meta_info"]["routed_experts"]
    assert refused(records, routing=INCREMENTAL).turn == 1


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_record_without_a_start_is_refused(position: int) -> None:
    records = incremental_turns()
    records.append(
        sglang(
            [1, 2, 3, 4, 5, 6, 7, 8, 9],
            [10],
            start=7,
            routed_experts=raw_base64(routed(2, start=7)),
        )
    )
    del records[position]["request"]["routed_experts_start_len"]
    error = refused(records, routing=INCREMENTAL)
    assert (error.turn, error.field) == (position + 1, "routed_experts")


def test_no_routing_in_any_record_leaves_it_none() -> None:
    records = [sglang([1], [2]), sglang([1, 2, 3], [4])]
    assert one(records, routing=INCREMENTAL).rollout_routed_experts is None


@both_forms
def test_an_empty_patch_alone_has_the_configured_width(sent: Any) -> None:
    records = [sent(sglang([1], [], start=0, routed_experts=""))]
    assert rows_in(one(records, routing=INCREMENTAL)).shape == (0, 2, 3)


def test_an_empty_patch_needs_no_new_rows() -> None:
    records = [
        sglang([1, 2], [], start=0, routed_experts=raw_base64(routed(1))),
        sglang([1, 2, 3], [], start=1, routed_experts=raw_base64(routed(1, start=1))),
    ]
    assert np.array_equal(rows_in(one(records, routing=INCREMENTAL)), routed(2))
    records[1]["response"]["choices"][0]["meta_info"]["routed_experts"] = ""
    assert refused(records, routing=INCREMENTAL).turn == 2


def test_branches_of_one_turn_are_two_linear_sessions() -> None:
    root, branch = incremental_turns()
    other = sglang([1, 2, 3, 4, 5, 9], [10], start=4, routed_experts=raw_base64(routed(2) + 7))
    reader = TurnReader(routing=INCREMENTAL, decode_text=None)
    first = reader.read(root, None)
    paths = [[first, reader.read(record, first)] for record in (branch, other)]
    options: dict[str, Any] = {
        "accumulated_token_ids": None,
        "max_trim_tokens": 0,
        "decode_text": None,
        "routing": INCREMENTAL,
    }
    found: list[Sample] = [assemble_turns(path, **options).samples[0] for path in paths]
    assert plain(found[0].tokens) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert plain(found[1].tokens) == [1, 2, 3, 4, 5, 9, 10]
    assert np.array_equal(rows_in(found[0]), routed(7))
    assert np.array_equal(rows_in(found[1]), np.concatenate([routed(4), routed(2) + 7]))
