"""Collecting: BEHAVIOUR 10's worked examples through a trajectory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sample_wire import AssemblyError, PrefixCacheInfo, Status
from sample_wire.assembly import RoutingSpec
from sample_wire.session import LinearTrajectory

from ._words import (
    FULL,
    INCREMENTAL,
    Scripted,
    answer,
    chat,
    raw_base64,
    routed,
    say,
    state,
    take_turn,
    trajectory,
)

USER = say("user", "hi")


def scripted(
    turns: list[tuple[list[int], Any]],
    *,
    max_trim_tokens: int = 0,
    routing: RoutingSpec | None = None,
    times: list[tuple[float, float | None]] | None = None,
) -> LinearTrajectory:
    """A session of turns, each a prompt and the reply to it."""
    prompts = [prompt for prompt, _ in turns]
    session = trajectory(Scripted(prompts, max_trim_tokens), routing=routing)
    for index, (_, reply) in enumerate(turns):
        at = times[index] if times else (None, None)
        take_turn(session, chat(*session.messages, USER), reply, *at)
    return session


def merged_session(routing: RoutingSpec | None = FULL) -> LinearTrajectory:
    """The two turns of section 10.5."""
    first = answer(
        [10, 11],
        log_probs=[-0.125, -0.25],
        weight_version="w1",
        cached_tokens=0,
        prompt_tokens=3,
        routed_experts=raw_base64(routed(4)),
        spec_verify_ct=2,
    )
    second = answer(
        [30, 31],
        log_probs=[-0.5, -1],
        weight_version="w2",
        cached_tokens=5,
        prompt_tokens=7,
        routed_experts=raw_base64(routed(8)),
        spec_verify_ct=3,
    )
    return scripted([([1, 2, 3], first), ([1, 2, 3, 10, 11, 20, 21], second)], routing=routing)


def test_two_turns_merge_into_one_sample() -> None:
    (sample,) = merged_session().collect(routing=FULL).samples
    assert sample.tokens.tolist() == [1, 2, 3, 10, 11, 20, 21, 30, 31]
    assert sample.response_length == 6
    assert sample.loss_mask.tolist() == [1, 1, 0, 0, 1, 1]
    assert sample.rollout_log_probs.tolist() == [-0.125, -0.25, 0, 0, -0.5, -1]
    assert sample.weight_versions == ["w1", "w2"]
    assert sample.prefix_cache_info == PrefixCacheInfo(cached_tokens=5, total_prompt_tokens=10)
    assert np.array_equal(np.asarray(sample.rollout_routed_experts), routed(8))
    assert sample.status is Status.COMPLETED
    assert sample.response == "10 11" + "20 21" + "30 31"


def test_no_turn_gives_no_sample_and_says_so() -> None:
    result = trajectory().collect(5)
    assert (result.samples, result.empty_reason) == ([], "no_records")


def test_an_output_token_that_the_next_prompt_drops_is_trimmed() -> None:
    turns = [([1, 2], answer([10, 99])), ([1, 2, 10, 3], answer([20, 99]))]
    session = scripted(turns, max_trim_tokens=1)
    (sample,) = session.collect().samples
    assert sample.tokens.tolist() == [1, 2, 10, 3, 20, 99]
    assert sample.loss_mask.tolist() == [1, 0, 1, 1]


LIMITS = [
    pytest.param(9, 9, Status.COMPLETED, [1, 1, 0, 0, 1, 1], id="9_whole"),
    pytest.param(8, 8, Status.TRUNCATED, [1, 1, 0, 0, 1], id="8_cut"),
    pytest.param(7, 5, Status.COMPLETED, [1, 1], id="7_first_turn"),
    pytest.param(6, 5, Status.COMPLETED, [1, 1], id="6_first_turn"),
    pytest.param(5, 5, Status.COMPLETED, [1, 1], id="5_first_turn"),
    pytest.param(4, 4, Status.TRUNCATED, [1], id="4_cut_in_the_first"),
]


@pytest.mark.parametrize(("limit", "num_tokens", "status", "mask"), LIMITS)
def test_a_limit_cuts_at_the_right_place(
    limit: int, num_tokens: int, status: Status, mask: list[int]
) -> None:
    (sample,) = merged_session().collect(limit, routing=FULL).samples
    assert len(sample.tokens) == num_tokens
    assert sample.status is status
    assert sample.loss_mask.tolist() == mask
    assert np.array_equal(np.asarray(sample.rollout_routed_experts), routed(num_tokens - 1))


@pytest.mark.parametrize("limit", [3, 2, 0, -4])
def test_a_limit_below_the_first_prompt_leaves_nothing(limit: int) -> None:
    result = merged_session().collect(limit, routing=FULL)
    assert (result.samples, result.empty_reason) == ([], "all_truncated")


@pytest.mark.parametrize("limit", [None, 8, 0])
def test_collecting_changes_nothing(limit: int | None) -> None:
    session = merged_session()
    before = state(session)
    for _ in range(2):
        session.collect(limit, routing=FULL, keep_messages=True)
    assert state(session) == before


def test_the_last_turns_messages_are_kept_if_asked_for() -> None:
    session = merged_session()
    said = say("assistant", "said")
    (whole,) = session.collect(routing=FULL, keep_messages=True).samples
    (first,) = session.collect(5, routing=FULL, keep_messages=True).samples
    (without,) = session.collect(routing=FULL).samples
    assert whole.metadata["messages"] == [USER, said, USER, said]
    assert first.metadata["messages"] == [USER, said]
    assert "messages" not in without.metadata


@pytest.mark.parametrize(("speculative", "expected"), [(True, 5), (False, 0)])
def test_speculative_counters_are_kept_if_asked_for(speculative: bool, expected: int) -> None:
    (sample,) = merged_session().collect(routing=FULL, speculative=speculative).samples
    assert sample.spec_info.spec_verify_ct == expected


def test_times_of_the_turns_become_the_lifecycle() -> None:
    turns = [
        ([1], answer([10], e2e_latency=5)),
        ([1, 10, 2], answer([20], e2e_latency=10)),
        ([1, 10, 2, 20, 3], answer([30])),
    ]
    session = scripted(turns, times=[(100, None), (130, 104), (140, None)])
    (sample,) = session.collect().samples
    assert sample.metadata["lifecycle"] == [
        {"t0": 95, "t1": 100, "turn": 1},
        {"t0": 120, "t1": 130, "turn": 2, "req_ts": 104, "prev_t1": 100},
        {"t0": None, "t1": 140, "turn": 3, "prev_t1": 130},
    ]


@pytest.mark.parametrize(
    ("finish", "status"),
    [("length", Status.TRUNCATED), ("abort", Status.ABORTED), ("content_filter", Status.PENDING)],
)
def test_a_turn_that_did_not_complete_ends_the_sample_and_the_rest_is_told(
    finish: str, status: Status
) -> None:
    """C22, C25."""
    turns = [
        ([1], answer([10])),
        ([1, 10, 2], answer([20], finish=finish)),
        ([1, 10, 2, 20, 3], answer([30])),
    ]
    (sample,) = scripted(turns).collect().samples
    assert sample.tokens.tolist() == [1, 10, 2, 20]
    assert sample.status is status
    assert sample.metadata["dropped_turns"] == {"count": 1, "reason": "status"}


def test_a_prompt_that_adds_nothing_to_the_turn_before_is_refused() -> None:
    session = scripted([([1], answer([10])), ([1, 10], answer([20]))])
    with pytest.raises(AssemblyError) as error:
        session.collect()
    assert error.value.turn == 2


def test_a_turn_without_routing_after_one_that_has_it_ends_the_sample() -> None:
    """C19."""
    turns = [
        ([1, 2], answer([10], routed_experts=raw_base64(routed(2)))),
        ([1, 2, 10, 3], answer([20], finish="abort")),
    ]
    (sample,) = scripted(turns, routing=FULL).collect(routing=FULL).samples
    assert sample.tokens.tolist() == [1, 2, 10]
    assert len(sample.rollout_routed_experts) == 2
    assert sample.metadata["dropped_turns"] == {"count": 1, "reason": "routing_gap"}


def incremental_session(second_start: int = 4) -> LinearTrajectory:
    """Section 11's example: prompts of 3 and 6, outputs of 2, the second from row 4 on."""
    prompts = [[1, 2, 3], [1, 2, 3, 10, 11, 20]]
    session = trajectory(Scripted(prompts), routing=INCREMENTAL)
    for start, num_rows, output in ((0, 4, [10, 11]), (second_start, 7 - second_start, [30, 31])):
        body = chat(*session.messages, USER, routed_experts_start_len=start)
        reply = answer(output, routed_experts=raw_base64(routed(num_rows, start)))
        take_turn(session, body, reply)
    return session


def test_incremental_rows_join_to_those_of_the_full_form() -> None:
    (sample,) = incremental_session().collect(routing=INCREMENTAL).samples
    assert np.array_equal(np.asarray(sample.rollout_routed_experts), routed(7))
    (cut,) = incremental_session().collect(5, routing=INCREMENTAL).samples
    assert np.array_equal(np.asarray(cut.rollout_routed_experts), routed(4))


def test_incremental_records_have_each_turns_own_rows() -> None:
    records = incremental_session().records()
    sent = [r["response"]["choices"][0]["meta_info"]["routed_experts"] for r in records]
    assert sent == [raw_base64(routed(4)), raw_base64(routed(3, 4))]
    assert [r["request"]["routed_experts_start_len"] for r in records] == [0, 4]


@pytest.mark.parametrize(
    ("start", "what"), [(5, "gap of 1 row"), (3, "overlap of 1 row")], ids=["gap", "overlap"]
)
def test_misplaced_incremental_rows_are_told_at_collection(start: int, what: str) -> None:
    """C18."""
    session = incremental_session(start)
    with pytest.raises(AssemblyError, match=what) as error:
        session.collect(routing=INCREMENTAL)
    assert error.value.turn == 2
    assert session.records()[1]["response"]["choices"][0]["meta_info"]["routed_experts"] == (
        raw_base64(routed(7 - start, start))
    )
