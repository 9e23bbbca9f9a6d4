"""Small inputs with their right answer: the cases C15 and C17 to C26, which concern assembly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sample_wire import Sample, Status, decode_samples, encode_samples

from ._records import (
    FORMS,
    Record,
    both_forms,
    one,
    plain,
    raw_base64,
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


def through_the_wire(sample: Sample) -> Sample:
    """The sample encoded, and decoded onto a blank one."""
    (found,) = decode_samples(bytes(encode_samples([sample])), Sample()).samples
    return found


@both_forms
@shapes
@pytest.mark.parametrize("incremental", [False, True])
def test_c15_required_routing_that_a_reply_lacks_is_refused_with_turn_and_field(
    incremental: bool, shape: Any, sent: Any
) -> None:
    records = [sent(shape([1], [2])), sent(shape([1, 2, 3], [4]))]
    error = refused(records, routing=spec(required=True, incremental=incremental))
    assert (error.turn, error.field) == (1, "routed_experts")
    assert "turn 1" in str(error)
    assert "routed_experts" in str(error)


@pytest.mark.parametrize("value", [None, "absent"])
def test_c15_required_routing_that_a_later_reply_lacks_names_that_turn(value: Any) -> None:
    second = sglang([1, 2, 3], [4])
    if value is None:
        second["response"]["choices"][0]["meta_info"]["routed_experts"] = None
    records = [sglang([1], [2], routed_experts=raw_base64(routed(1))), second]
    error = refused(records, routing=spec(required=True))
    assert (error.turn, error.field) == (2, "routed_experts")


@both_forms
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_c17_five_tokens_take_four_rows(form: Any, sent: Any) -> None:
    record = sent(sglang([1, 2, 3], [4, 5], routed_experts=form(routed(4))))
    assert len(rows_in(one([record], routing=spec()))) == 4


@both_forms
@pytest.mark.parametrize("num_rows", [5, 3])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_c17_another_number_of_rows_is_refused_with_both_numbers(
    form: Any, num_rows: int, sent: Any
) -> None:
    record = sent(sglang([1, 2, 3], [4, 5], routed_experts=form(routed(num_rows))))
    error = refused([record], routing=spec())
    assert (error.turn, error.field) == (1, "routed_experts")
    assert f"has {num_rows} rows, its tokens need 4" in str(error)


def patches(start: int, num_rows: int) -> list[Record]:
    """Turn 1 from row 0 on with 4 rows, turn 2 from `start` on with `num_rows`."""
    return [
        sglang([1, 2, 3], [4, 5], start=0, routed_experts=raw_base64(routed(4))),
        sglang(
            [1, 2, 3, 4, 5, 6],
            [7, 8],
            start=start,
            routed_experts=raw_base64(routed(num_rows, start=start)),
        ),
    ]


def test_c18_rows_from_a_start_on_are_laid_after_those_held() -> None:
    found = one(patches(4, 3), routing=spec(incremental=True))
    assert np.array_equal(rows_in(found), routed(7))


@pytest.mark.parametrize(
    ("start", "rule"),
    [
        (5, "gap of 1 row"),
        (6, "gap of 2 rows"),
        (3, "overlap of 1 row"),
        (2, "overlap of 2 rows"),
        (0, "overlap of 4 rows"),
    ],
)
def test_c18_a_gap_or_an_overlap_is_refused_with_its_rows(start: int, rule: str) -> None:
    error = refused(patches(start, 7 - start), routing=spec(incremental=True))
    assert error.turn == 2
    assert str(error).endswith(rule)


def test_c18_fifty_turns_sent_in_full_are_the_rows_of_the_last() -> None:
    records, ids = [], [1]
    for number in range(50):
        ids = [*ids, 2 * number]
        rows = raw_base64(routed(len(ids)))
        records.append(sglang([*ids], [7], routed_experts=rows))
        ids.append(7)
    assert np.array_equal(rows_in(one(records, routing=spec())), routed(len(ids) - 1))


@pytest.mark.parametrize("reason", ["abort", "stop", "length"])
def test_c19_a_turn_without_routing_ends_the_sample_which_keeps_its_rows(reason: str) -> None:
    records = [
        sglang([1, 2], [3], routed_experts=raw_base64(routed(2))),
        sglang([1, 2, 3, 4], [5], finish=reason),
        sglang([1, 2, 3, 4, 5, 6], [7], routed_experts=raw_base64(routed(6))),
    ]
    found = one(records, routing=spec())
    assert plain(found.tokens) == [1, 2, 3]
    assert np.array_equal(rows_in(found), routed(2))
    assert found.metadata["dropped_turns"] == {"count": 2, "reason": "routing_gap"}
    assert through_the_wire(found).metadata == found.metadata


TEXTS = {(5, 6): "hello", (7,): "hello"}


class FakeTokenizer:
    """A tokenizer whose decoding loses ids: [5, 6] and [7] are one text, which encodes to [7]."""

    def decode(self, ids: list[int]) -> str:
        """The text of ids."""
        return TEXTS.get(tuple(ids), "".join(f"<{item}>" for item in ids))

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        return [7] if text == "hello" else []


def test_c20_a_cut_takes_routing_and_text_along() -> None:
    record = sglang([1, 2, 3, 4], [5, 6, 7, 8, 9, 10], routed_experts=raw_base64(routed(9)))
    found = one([record], routing=spec(), max_seq_len=8, decode_text=FakeTokenizer().decode)
    assert plain(found.tokens) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert found.response_length == 4
    assert plain(found.loss_mask) == [1] * 4
    assert len(plain(found.rollout_log_probs)) == 4
    assert np.array_equal(rows_in(found), routed(7))
    assert (found.status, found.response) == (Status.TRUNCATED, "<5><6><7><8>")


@pytest.mark.parametrize("limit", range(5, 10))
def test_c20_every_per_row_field_follows_a_cut(limit: int) -> None:
    record = sglang(
        [1, 2, 3, 4],
        [5, 6, 7, 8, 9, 10],
        routed_experts=raw_base64(routed(9)),
        indexer_topk=raw_base64(routed(9, 1, 1)),
        indexer_topk_num_layers=1,
    )
    found = through_the_wire(one([record], routing=spec(), max_seq_len=limit))
    assert len(found.tokens) == limit
    assert found.response_length == len(plain(found.loss_mask)) == limit - 4
    assert len(rows_in(found)) == len(plain(found.rollout_indexer_topk)) == limit - 1


def test_c21_ids_are_kept_as_sampled_and_never_come_from_text() -> None:
    tokenizer = FakeTokenizer()
    assert tokenizer.encode(tokenizer.decode([5, 6])) == [7]
    records = [sglang([1], [5, 6]), sglang([1, 5, 6, 2], [7])]
    found = one(records, decode_text=tokenizer.decode)
    assert plain(found.tokens) == [1, 5, 6, 2, 7]
    assert plain(found.loss_mask) == [1, 1, 0, 1]
    assert len(plain(found.rollout_log_probs)) == 4
    assert found.response == "hello<2>hello"
    assert plain(through_the_wire(found).tokens) == [1, 5, 6, 2, 7]


def test_c21_a_prompt_of_ids_made_anew_is_refused() -> None:
    tokenizer = FakeTokenizer()
    again = tokenizer.encode(tokenizer.decode([5, 6]))
    error = refused([sglang([1], [5, 6]), sglang([1, *again, 2], [3])])
    assert error.turn == 2
    assert "at position 1:" in str(error)


@pytest.mark.parametrize("reason", ["length", "abort", "unheard_of"])
def test_c22_a_middle_turn_that_did_not_complete_ends_the_sample(reason: str) -> None:
    records = [
        sglang([1], [2]),
        sglang([1, 2, 3], [4], finish=reason),
        sglang([1, 2, 3, 4, 5], [6]),
    ]
    found = through_the_wire(one(records))
    assert plain(found.tokens) == [1, 2, 3, 4]
    assert found.status is {"length": Status.TRUNCATED, "abort": Status.ABORTED}.get(
        reason, Status.PENDING
    )
    assert found.metadata["dropped_turns"] == {"count": 1, "reason": "status"}


def test_c22_a_middle_turn_that_a_limit_cuts_ends_the_sample() -> None:
    records = [sglang([1], [2]), sglang([1, 2, 3], [4, 5]), sglang([1, 2, 3, 4, 5, 6], [7])]
    found = one(records, max_seq_len=4)
    assert (plain(found.tokens), found.status) == ([1, 2, 3, 4], Status.TRUNCATED)
    assert found.metadata["dropped_turns"] == {"count": 1, "reason": "max_seq_len"}


def with_counts(shape: Any, num_ids: int, num_log_probs: int) -> Record:
    """A second turn that tells so many ids and so many log-probs."""
    record: Record = shape([1, 2, 3], [4] * num_ids)
    reply = record["response"]
    choice = reply.get("choices", [{}])[0]
    meta = reply.get("meta_info") or choice.get("meta_info")
    if meta is not None:
        meta["output_token_logprobs"] = [[-0.5, 4, None]] * num_log_probs
    else:
        choice["logprobs"]["content"] = [{"logprob": -0.5}] * num_log_probs
    return record


@both_forms
@shapes
@pytest.mark.parametrize(("num_ids", "num_log_probs"), [(3, 2), (2, 3), (1, 0), (0, 1)])
def test_c23_log_probs_that_are_not_one_for_each_id_are_refused_with_both_counts(
    shape: Any, num_ids: int, num_log_probs: int, sent: Any
) -> None:
    records = [shape([1], [2]), sent(with_counts(shape, num_ids, num_log_probs))]
    error = refused(records)
    assert error.turn == 2
    assert (error.expected, error.got) == (str(num_ids), str(num_log_probs))
    assert f"counts {num_ids}, there are {num_log_probs} log-probs" in str(error)


@both_forms
@shapes
def test_c24_an_aborted_reply_without_tokens_adds_no_weight_version(shape: Any, sent: Any) -> None:
    aborted = sent(shape([1, 2, 3], [], finish="abort"))
    found = one([shape([1], [2]), aborted])
    assert (found.status, found.weight_versions) == (Status.ABORTED, [])
    assert plain(found.loss_mask) == [1, 0]
    first = sglang([1], [2], weight_version="7")
    again = through_the_wire(one([first, aborted]))
    assert (again.status, again.weight_versions) == (Status.ABORTED, ["7"])


@shapes
def test_c24_an_aborted_reply_without_tokens_may_be_the_only_one(shape: Any) -> None:
    found = through_the_wire(one([shape([1, 2], [], finish="abort")]))
    assert (found.status, found.response_length) == (Status.ABORTED, 0)
    assert plain(found.tokens) == [1, 2]


@shapes
@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("abort", Status.ABORTED),
        ("content_filter", Status.PENDING),
        ("repetition", Status.PENDING),
        (None, Status.PENDING),
    ],
)
def test_c25_an_abort_stays_one_and_an_unknown_reason_is_never_completed(
    shape: Any, reason: str | None, status: Status
) -> None:
    record = shape([1], [2, 3, 4], finish=reason)
    found = through_the_wire(one([record]))
    assert found.status is status
    assert plain(found.loss_mask) == [1, 1, 1]


@shapes
def test_c26_a_tool_call_turn_without_output_ids_trains_nothing(shape: Any) -> None:
    found = through_the_wire(one([shape([1, 2], [], finish="tool_calls")]))
    assert found.response_length == 0
    assert plain(found.loss_mask) == []
    assert int(np.asarray(found.loss_mask).sum()) == 0


def test_c26_turns_without_any_output_make_an_all_zero_mask() -> None:
    records = [sglang([1], []), sglang([1, 2], []), sglang([1, 2, 3, 4], [])]
    found = through_the_wire(one(records))
    assert plain(found.loss_mask) == [0, 0, 0]
    assert plain(found.rollout_log_probs) == [0.0, 0.0, 0.0]
    assert found.status is Status.COMPLETED
