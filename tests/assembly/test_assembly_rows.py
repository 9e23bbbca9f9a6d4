"""Rules of the row arrays: full-prefix and incremental routing, and indexer arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sample_wire import AssemblyError, Status
from sample_wire.assembly import TurnReader

from ._records import (
    Record,
    assembled,
    both_forms,
    one,
    plain,
    raw_base64,
    refused,
    routed,
    routing_object,
    rows_in,
    sglang,
    spec,
)


def test_the_last_turns_rows_win_where_a_prefix_is_sent_differently() -> None:
    changed = routed(5)
    changed[1] += 1
    records = [
        sglang([1, 2], [3], routed_experts=raw_base64(routed(2))),
        sglang([1, 2, 3, 4], [5, 6], routed_experts=raw_base64(changed)),
    ]
    assert np.array_equal(rows_in(one(records, routing=spec())), changed)


def test_a_sample_that_ends_before_a_differing_turn_keeps_its_own_rows() -> None:
    records = [
        sglang([1, 2], [3], routed_experts=raw_base64(routed(2)), finish="length"),
        sglang([1, 2, 3, 4], [5], routed_experts=raw_base64(routed(4) + 1)),
    ]
    assert np.array_equal(rows_in(one(records, routing=spec())), routed(2))


def test_routing_that_starts_with_a_later_turn_is_kept() -> None:
    records = [
        sglang([1], [2]),
        sglang([1, 2, 3], [4], routed_experts=raw_base64(routed(3))),
    ]
    assert np.array_equal(rows_in(one(records, routing=spec())), routed(3))


def test_a_full_prefix_that_starts_later_is_refused_where_it_is_needed() -> None:
    records = [sglang([1, 2], [3], start=1, routed_experts=raw_base64(routed(1, start=1)))]
    error = refused(records, routing=spec())
    assert (error.turn, error.field) == (1, "routed_experts")
    assert "starts at row 1; a full prefix at 0" in str(error)


def test_one_token_has_no_rows_of_the_configured_width() -> None:
    found = one([sglang([1], [], routed_experts="")], routing=spec())
    assert rows_in(found).shape == (0, 2, 3)


def test_a_reply_without_output_keeps_the_prompts_rows() -> None:
    found = one([sglang([1, 2, 3], [], routed_experts=raw_base64(routed(2)))], routing=spec())
    assert np.array_equal(rows_in(found), routed(2))
    assert (found.response, found.response_length) == ("", 0)


def test_required_routing_that_an_aborted_turn_lacks_is_no_fault() -> None:
    records = [sglang([1], [2, 3], finish="abort")]
    required = spec(required=True)
    assert one(records, routing=required).rollout_routed_experts is None
    cut = one(records, routing=required, max_seq_len=2)
    assert (cut.status, cut.rollout_routed_experts) == (Status.TRUNCATED, None)


def test_required_routing_that_an_aborted_last_turn_lacks_ends_the_sample_before_it() -> None:
    records = [
        sglang([1, 2], [3], routed_experts=raw_base64(routed(2))),
        sglang([1, 2, 3, 4], [5], finish="abort"),
    ]
    found = one(records, routing=spec(required=True))
    assert plain(found.tokens) == [1, 2, 3]
    assert found.metadata == {"dropped_turns": {"count": 1, "reason": "routing_gap"}}


@pytest.mark.parametrize("incremental", [False, True])
def test_required_routing_that_no_turn_has_is_refused(incremental: bool) -> None:
    records = [sglang([1], [2]), sglang([1, 2, 3], [4])]
    error = refused(records, routing=spec(required=True, incremental=incremental))
    assert (error.turn, error.field) == (1, "routed_experts")


def test_required_routing_is_not_asked_of_turns_that_are_left_out() -> None:
    records = [
        sglang([1, 2], [3], finish="length", routed_experts=raw_base64(routed(2))),
        sglang([1, 2, 3, 4], [5]),
    ]
    assert one(records, routing=spec(required=True)).status is Status.TRUNCATED


def three_turns(*starts: int | None) -> list[Record]:
    """Turns of 5, 7 and 9 tokens whose rows start where it is said; None sends none."""
    ids = [*range(1, 10)]
    ends = [0, 5, 7, 9]
    return [
        sglang(
            ids[: end - 1],
            ids[end - 1 : end],
            start=start,
            routed_experts=None
            if start is None
            else raw_base64(routed(end - 1 - start, start=start)),
        )
        for start, end in zip(starts, ends[1:], strict=True)
    ]


@pytest.mark.parametrize(
    ("starts", "turn"),
    [
        ((1, 4, 6), 1),
        ((0, 5, 6), 2),
        ((0, 3, 6), 2),
        ((0, 0, 6), 2),
        ((0, 4, 7), 3),
        ((0, 4, 5), 3),
        ((None, 4, 6), 1),
        ((0, None, 6), 2),
        ((0, 4, None), 3),
        ((None, None, 6), 1),
        ((0, None, None), 2),
        ((0, 5, 7), 2),
    ],
    ids=str,
)
def test_the_first_turn_whose_rows_do_not_go_on_is_named(
    starts: tuple[int | None, ...], turn: int
) -> None:
    error = refused(three_turns(*starts), routing=spec(incremental=True))
    assert (error.turn, error.field) == (turn, "routed_experts")


@pytest.mark.parametrize("starts", [(0, 5, 6), (0, None, 6)], ids=str)
def test_a_turn_at_fault_that_is_not_needed_does_no_harm(starts: tuple[int | None, ...]) -> None:
    found = one(three_turns(*starts), routing=spec(incremental=True), max_seq_len=5)
    assert np.array_equal(rows_in(found), routed(4))


def test_rows_of_dropped_tokens_are_never_kept_for_those_in_their_place() -> None:
    records = [
        sglang([1, 2, 3, 4], [5, 6], start=0, routed_experts=raw_base64(routed(5))),
        sglang([1, 2, 3, 4, 9, 7], [8], start=5, routed_experts=raw_base64(routed(1))),
    ]
    assert refused(records, routing=spec(incremental=True), max_trim_tokens=2).turn == 2


def test_a_trimmed_last_token_has_no_row_to_be_kept() -> None:
    records = [
        sglang([1, 2, 3], [4, 5], start=0, routed_experts=raw_base64(routed(4))),
        sglang([1, 2, 3, 4, 9], [6], start=4, routed_experts=raw_base64(routed(1, start=4))),
    ]
    found = one(records, routing=spec(incremental=True), max_trim_tokens=1)
    assert plain(found.tokens) == [1, 2, 3, 4, 9, 6]
    assert np.array_equal(rows_in(found), routed(5))


@pytest.mark.parametrize("shape", [(2, 2), (1, 3)])
def test_rows_that_change_their_shape_are_refused(shape: tuple[int, int]) -> None:
    records = three_turns(0, 4, 6)
    meta = records[1]["response"]["choices"][0]["meta_info"]
    meta["routed_experts"] = raw_base64(routed(2, *shape))
    error = refused(records, routing=spec(incremental=True))
    assert (error.turn, error.field) == (2, "routed_experts")


def indexed(prompt: list[int], output: list[int], rows: Any = None, **keys: Any) -> Record:
    """A turn with an indexer array of one layer; its ids are beyond 16 bits."""
    sent = routed(max(len(prompt) + len(output) - 1, 0), 1, 2) + 100_000 if rows is None else rows
    return sglang(prompt, output, indexer_topk=raw_base64(sent), indexer_topk_num_layers=1, **keys)


@both_forms
def test_an_indexer_array_is_merged_like_routing(sent: Any) -> None:
    records = [indexed([1, 2], [3]), indexed([1, 2, 3, 4], [5])]
    found = one([*map(sent, records)])
    assert plain(found.rollout_indexer_topk) == (routed(4, 1, 2) + 100_000).tolist()
    assert np.asarray(found.rollout_indexer_topk).dtype == np.int32


def test_an_indexer_array_may_change_in_a_later_turn() -> None:
    changed = routed(4, 1, 2)
    found = one([indexed([1, 2], [3]), indexed([1, 2, 3, 4], [5], changed)])
    assert plain(found.rollout_indexer_topk) == changed.tolist()


def test_an_indexer_array_is_cut_with_the_tokens() -> None:
    found = one([indexed([1, 2], [3, 4])], max_seq_len=3)
    assert plain(found.rollout_indexer_topk) == (routed(2, 1, 2) + 100_000).tolist()


def test_an_indexer_gap_ends_the_sample() -> None:
    found = one([indexed([1, 2], [3]), sglang([1, 2, 3, 4], [5])])
    assert plain(found.tokens) == [1, 2, 3]
    assert found.metadata == {"dropped_turns": {"count": 1, "reason": "routing_gap"}}


def test_an_indexer_array_is_full_prefix_also_where_routing_is_incremental() -> None:
    records = three_turns(0, 4, 6)
    for record, num_rows in zip(records, (4, 6, 8), strict=True):
        meta = record["response"]["choices"][0]["meta_info"]
        meta["indexer_topk"] = raw_base64(routed(num_rows, 1, 2))
        meta["indexer_topk_num_layers"] = 1
    found = one(records, routing=spec(incremental=True))
    assert np.array_equal(rows_in(found), routed(8))
    assert plain(found.rollout_indexer_topk) == routed(8, 1, 2).tolist()


def test_an_indexer_array_of_unknown_layers_is_refused() -> None:
    record = sglang([1], [2], indexer_topk=raw_base64(routed(1, 1, 2)))
    error = refused([record])
    assert (error.turn, error.field) == (1, "indexer_topk")
    assert "without indexer_topk_num_layers" in str(error)


@pytest.mark.parametrize("num_rows", [0, 1, 4])
def test_an_indexer_array_of_another_number_of_rows_is_refused(num_rows: int) -> None:
    error = refused([indexed([1, 2], [3, 4], routed(num_rows, 1, 1))])
    assert (error.turn, error.field) == (1, "indexer_topk")


def test_an_indexer_array_of_one_token_is_empty() -> None:
    found = one([indexed([1], [], routed(0, 1, 2))])
    assert np.asarray(found.rollout_indexer_topk).shape == (0, 1, 0)


def test_an_absent_indexer_array_stays_none() -> None:
    assert one([sglang([1], [2])]).rollout_indexer_topk is None


def test_an_empty_indexer_array_may_follow_one_with_rows_where_a_sample_starts_anew() -> None:
    records = [indexed([0], [1]), indexed([0], [], routed(0, 1, 2))]
    result = assembled(records, on_discontinuity="split")
    shapes = [np.asarray(sample.rollout_indexer_topk).shape for sample in result.samples]
    assert shapes == [(1, 1, 2), (0, 1, 0)]


# Rows of another shape.


def object_turn(prompt: list[int], output: list[int], *shape: int) -> Record:
    """A turn with rows of this shape, which needs no spec."""
    rows = np.zeros((len(prompt) + len(output) - 1, *shape), np.uint8)
    return sglang(prompt, output, routed_experts=routing_object(rows, "uint8"))


def test_rows_sent_in_full_may_change_their_shape() -> None:
    records = [object_turn([1, 2], [3], 2, 3), object_turn([1, 2, 3, 4], [5], 1, 4)]
    assert rows_in(one(records)).shape == (4, 1, 4)


def test_branches_may_have_rows_of_another_shape() -> None:
    reader = TurnReader(routing=None, decode_text=None)
    first = reader.read(object_turn([1, 2], [3], 2, 3), None)
    other = reader.read(object_turn([1, 2], [3], 1, 4), None)
    child = reader.read(object_turn([1, 2, 3, 4], [5], 1, 4), first)
    assert first.routing is not None
    assert other.routing is not None
    assert child.routing is not None
    assert (first.routing.shape, other.routing.shape) == ((2, 2, 3), (2, 1, 4))
    assert child.routing.shape == (4, 1, 4)


def test_rows_that_continue_rows_of_another_shape_are_refused() -> None:
    first = TurnReader(routing=spec(incremental=True), decode_text=None).read(
        sglang([1, 2], [3], start=0, routed_experts=raw_base64(routed(2))), None
    )
    reader = TurnReader(routing=spec(top_k=1, incremental=True), decode_text=None)
    record = sglang([1, 2, 3, 4], [5], start=2, routed_experts=raw_base64(routed(2, top_k=1)))
    with pytest.raises(AssemblyError, match="changes the shape of its rows") as caught:
        reader.read(record, first)
    assert (caught.value.turn, caught.value.field) == (2, "routed_experts")
