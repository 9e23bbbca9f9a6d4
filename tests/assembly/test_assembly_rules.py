"""Rules of the fold: status, prompts that part, split, text, arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sample_wire import Status
from sample_wire.assembly import RoutingSpec

from ._records import (
    assembled,
    one,
    plain,
    raw_base64,
    refused,
    routed,
    rows_in,
    sglang,
    spec,
    spelled,
    vllm,
)


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("stop", Status.COMPLETED),
        ("tool_calls", Status.COMPLETED),
        ("length", Status.TRUNCATED),
        ("abort", Status.ABORTED),
        ("content_filter", Status.PENDING),
        ("", Status.PENDING),
        ("STOP", Status.PENDING),
        (None, Status.PENDING),
    ],
)
def test_the_finish_reason_gives_the_status_and_an_unknown_one_is_pending(
    reason: str | None, status: Status
) -> None:
    assert one([sglang([1], [2], finish=reason)]).status is status
    assert one([vllm([1], [2], finish=reason)]).status is status


@pytest.mark.parametrize("reason", ["length", "abort", "content_filter", None])
def test_a_turn_that_did_not_complete_ends_the_sample(reason: str | None) -> None:
    records = [
        sglang([1], [2]),
        sglang([1, 2, 3], [4], finish=reason),
        sglang([1, 2, 3, 4, 5], [6]),
        sglang([1, 2, 3, 4, 5, 6, 7], [8]),
    ]
    found = one(records)
    assert plain(found.tokens) == [1, 2, 3, 4]
    assert found.metadata == {"dropped_turns": {"count": 2, "reason": "status"}}


def test_tool_calls_go_on() -> None:
    records = [sglang([1], [2], finish="tool_calls"), sglang([1, 2, 3], [4])]
    assert len(one(records).tokens) == 4


def test_a_prompt_without_a_new_token_is_refused() -> None:
    error = refused([sglang([1, 2], [3]), sglang([1, 2, 3], [4])])
    assert error.turn == 2
    assert "its prompt adds no token to turn 1" in str(error)


def test_a_prompt_without_a_new_token_that_is_dropped_anyway_does_no_harm() -> None:
    records = [sglang([1, 2], [3], finish="length"), sglang([1, 2, 3], [4])]
    assert plain(one(records).tokens) == [1, 2, 3]


@pytest.mark.parametrize(
    ("prompt", "position"),
    [([1, 2, 9, 4, 5], 2), ([9], 0), ([1, 2], 2), ([1, 2, 3, 4, 9, 6], 4)],
    ids=["middle", "at once", "shorter", "last token"],
)
def test_a_prompt_that_parts_is_refused_with_turn_and_position(
    prompt: list[int], position: int
) -> None:
    error = refused([sglang([1, 2, 3], [4, 5]), sglang(prompt, [7])])
    assert (error.turn, error.field) == (2, "input_ids")
    assert f"at position {position}:" in str(error)


def test_a_prompt_never_drops_tokens_of_the_prompt_before() -> None:
    records = [sglang([1, 2, 3], [4]), sglang([1, 2, 9], [7])]
    assert refused(records, max_trim_tokens=5).turn == 2


def test_a_prompt_that_parts_late_is_refused_even_where_its_turn_would_be_dropped() -> None:
    records = [sglang([1], [2], finish="length"), sglang([7], [8])]
    assert refused(records).turn == 2


def test_split_starts_a_new_sample_at_each_prompt_that_parts() -> None:
    records = [
        sglang([1], [2]),
        sglang([1, 2, 3], [4]),
        sglang([7, 8], [9], finish="length"),
        sglang([5], [6]),
    ]
    result = assembled(records, on_discontinuity="split")
    assert [plain(sample.tokens) for sample in result.samples] == [
        [1, 2, 3, 4],
        [7, 8, 9],
        [5, 6],
    ]
    assert [sample.status for sample in result.samples] == [
        Status.COMPLETED,
        Status.TRUNCATED,
        Status.COMPLETED,
    ]
    assert all(sample.metadata == {} for sample in result.samples)


def test_split_compares_the_accumulated_ids_with_the_last_run_only() -> None:
    records = [sglang([1], [2]), sglang([7, 8], [9])]
    options: dict[str, Any] = {"on_discontinuity": "split"}
    assert len(assembled(records, accumulated_token_ids=[7, 8, 9], **options).samples) == 2
    assert refused(records, accumulated_token_ids=[1, 2], **options).turn == 2


def test_split_cuts_each_run_and_leaves_out_what_is_empty() -> None:
    records = [sglang([1, 2, 3], [4]), sglang([7], [8, 9])]
    options: dict[str, Any] = {"on_discontinuity": "split"}
    result = assembled(records, max_seq_len=2, **options)
    assert [plain(sample.tokens) for sample in result.samples] == [[7, 8]]
    assert assembled(records, max_seq_len=1, **options).empty_reason == "all_truncated"


def test_split_takes_a_restart_of_incremental_rows() -> None:
    records = [
        sglang([1, 2, 3], [4], start=0, routed_experts=raw_base64(routed(3))),
        sglang([7, 8], [9], start=0, routed_experts=raw_base64(routed(2) + 5)),
    ]
    result = assembled(records, routing=spec(incremental=True), on_discontinuity="split")
    first, second = map(rows_in, result.samples)
    assert np.array_equal(first, routed(3))
    assert np.array_equal(second, routed(2) + 5)


def test_no_decoder_leaves_the_response_empty() -> None:
    assert one([sglang([1], [2])]).response == ""


def test_each_output_and_each_observation_is_decoded_by_itself() -> None:
    records = [sglang([1], [2, 3]), sglang([1, 2, 3, 4, 5], []), sglang([1, 2, 3, 4, 5, 6], [7])]
    assert one(records, decode_text=spelled).response == "<2,3><4,5><6><7>"


def test_the_decoder_takes_plain_integers_and_is_not_called_for_none() -> None:
    calls: list[list[int]] = []

    def decode(ids: list[int]) -> str:
        assert ids
        assert all(type(item) is int for item in ids)
        calls.append(ids)
        return "x"

    records = [sglang([1], []), sglang([1, 2], [3])]
    assert one(records, decode_text=decode).response == "xx"
    assert sorted(calls) == [[2], [3]]


@pytest.mark.parametrize(
    "ids",
    [[1, None], [1.0, 2.0], ["1", "2"], [True, 2], [[1, 2]], "12", 12, [1, 10**30], {1: 2}],
    ids=repr,
)
def test_accumulated_ids_that_are_no_list_of_integers_are_refused(ids: Any) -> None:
    refused([sglang([1], [2])], accumulated_token_ids=ids)


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_accumulated_ids_may_be_any_array_of_integers(kind: Any) -> None:
    assert plain(one([sglang([1], [2])], accumulated_token_ids=kind([1, 2])).tokens) == [1, 2]


@pytest.mark.parametrize(
    "options",
    [
        {"num_layers": 0},
        {"num_layers": 2.0},
        {"num_layers": True},
        {"top_k": 0},
        {"top_k": "3"},
        {"num_experts": 2},
    ],
    ids=str,
)
def test_a_routing_spec_that_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"RoutingSpec.{next(iter(options))}"):
        RoutingSpec(**({"num_layers": 2, "top_k": 3} | options))


@pytest.mark.parametrize("value", ["", "Split", None, True])
def test_an_unknown_way_to_treat_discontinuities_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="on_discontinuity"):
        assembled([sglang([1], [2])], on_discontinuity=value)


@pytest.mark.parametrize("value", [True, False, 2.0, "2", [2]])
def test_a_limit_that_is_no_integer_is_a_type_error(value: Any) -> None:
    with pytest.raises(TypeError, match="max_seq_len"):
        assembled([sglang([1], [2])], max_seq_len=value)


@pytest.mark.parametrize("value", [300.0, "300", True])
def test_a_number_of_experts_that_is_no_integer_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="num_experts"):
        RoutingSpec(num_layers=2, top_k=1, num_experts=value)
