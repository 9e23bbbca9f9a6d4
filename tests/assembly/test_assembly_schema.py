"""A declared field merges, truncates, validates, encodes and decodes with no line for it."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest

from sample_wire import decode_samples, encode_samples, validate

from ._records import (
    Record,
    assembled,
    both_forms,
    plain,
    raw_base64,
    refused,
    routed,
    sglang,
    sglang_generate,
    spec,
    vllm,
)
from ._sample_classes import (
    RICH_SCHEMA,
    THEIR_SCHEMA,
    RichSample,
    TheirCache,
    TheirSample,
    TheirStatus,
    Usage,
)


def rich(records: list[Any], **options: Any) -> RichSample:
    """The one sample of these records, checked; it goes through the wire unchanged."""
    (sample,) = assembled(records, schema=RICH_SCHEMA, **options).samples
    assert isinstance(sample, RichSample)
    validate(sample)
    (back,) = decode_samples(encode_samples([sample]), RichSample()).samples
    for name in ("entropy", "ranks", "pairs", "segments", "steps", "tools", "motto", "usage"):
        assert plain(getattr(back, name)) == plain(getattr(sample, name))
    return sample


def turns() -> list[Record]:
    """Two turns of two and one output tokens, with every extra field."""
    return [
        sglang(
            [1, 2],
            [10, 11],
            entropy=[0.5, 0.25],
            ranks=[1, 2],
            pairs=[[1, 2], [3, 4]],
            top_ids=[[1], [2, 3]],
            segments=[0, 0, 1, 1],
            steps=[5, 6, 7],
            tools=["search"],
            motto="more",
            cost=0.5,
            model="m",
            usage={"calls": 1, "seconds": 0.5},
            facts={"a": 1},
            histogram=[1, 2],
        ),
        sglang(
            [1, 2, 10, 11, 3],
            [20],
            entropy=[0.125],
            ranks=[-3],
            pairs=[[5, 6]],
            top_ids=[[]],
            segments=[0, 0, 1, 1, 0, 1],
            steps=[5, 6, 7, 8, 9],
            tools=["read", "write"],
            motto="is",
            cost=1.25,
            model="m",
            usage={"calls": 2, "seconds": 0.25},
            facts={"b": 2},
            histogram=[10, 20],
        ),
    ]


@both_forms
def test_fields_of_a_subclass_are_merged_as_they_declare(sent: Any) -> None:
    found = rich([*map(sent, turns())])
    assert found.entropy is not None
    assert found.entropy.dtype == np.float32
    assert plain(found.entropy) == [0.5, 0.25, -1.0, 0.125]
    assert plain(found.ranks) == [1, 2, 7, -3]
    assert plain(found.pairs) == [[1, 2], [3, 4], [0, 0], [5, 6]]
    assert [plain(row) for row in found.top_ids or []] == [[1], [2, 3], [], []]
    assert plain(found.segments) == [0, 0, 1, 1, 0, 1]
    assert plain(found.steps) == [5, 6, 7, 8, 9]
    assert found.tools == ["search", "read", "write"]
    assert (found.motto, found.cost, found.model) == ("more", 1.75, "m")
    assert found.usage == Usage(3, 0.75)
    assert (found.facts, found.metadata) == ({"b": 2}, {})
    assert plain(found.histogram) == [11, 22]
    assert found.note is None


def test_fields_of_a_subclass_are_cut_with_the_tokens() -> None:
    found = rich(turns(), max_seq_len=3)
    assert plain(found.entropy) == [0.5]
    assert plain(found.ranks) == [1]
    assert plain(found.pairs) == [[1, 2]]
    assert [plain(row) for row in found.top_ids or []] == [[1]]
    assert plain(found.segments) == [0, 0, 1]
    assert plain(found.steps) == [5, 6]
    assert found.tools == ["search"]


def test_fields_of_a_subclass_are_trimmed_with_the_tokens() -> None:
    first, second = turns()
    second["request"]["input_ids"] = [1, 2, 10, 3, 4]
    found = rich([first, second], max_trim_tokens=1)
    assert plain(found.entropy) == [0.5, -1.0, -1.0, 0.125]
    assert plain(found.ranks) == [1, 7, 7, -3]
    assert [plain(row) for row in found.top_ids or []] == [[1], [], [], []]


@pytest.mark.parametrize("turn", [0, 1])
@pytest.mark.parametrize("value", ["absent", None])
def test_a_turn_without_the_values_gets_the_fill(turn: int, value: Any) -> None:
    records = turns()
    meta = records[turn]["response"]["choices"][0]["meta_info"]
    for name in ("entropy", "ranks", "pairs", "top_ids", "tools", "motto", "cost", "usage"):
        meta[name] = None
        if value == "absent":
            del meta[name]
    found = rich(records)
    assert plain(found.entropy) == [[0.5, 0.25, -1, -1], [-1, -1, -1, 0.125]][turn == 0]
    assert plain(found.ranks) == [[1, 2, 7, 7], [7, 7, 7, -3]][turn == 0]
    assert len(plain(found.pairs)) == 4
    assert [len(row) for row in found.top_ids or []] == [[1, 2, 0, 0], [0, 0, 0, 0]][turn == 0]
    assert found.tools == [["search"], ["read", "write"]][turn == 0]
    assert found.motto == ["more", "is"][turn == 0]
    assert found.cost == [0.5, 1.25][turn == 0]
    assert found.usage == [Usage(1, 0.5), Usage(2, 0.25)][turn == 0]


@pytest.mark.parametrize("shape", [sglang, sglang_generate, vllm])
def test_values_that_no_turn_gives_are_null_or_the_default_or_the_fill(shape: Any) -> None:
    found = rich([shape([1], [2]), shape([1, 2, 3], [4, 5])])
    assert found.entropy is None
    assert found.pairs is None
    assert found.top_ids is None
    assert found.segments is None
    assert plain(found.ranks) == [7, 7, 7, 7]
    assert (found.tools, found.motto, found.cost, found.model) == ([], None, None, None)
    assert (found.usage, found.facts) == (Usage(), {})


def test_defaults_are_not_shared_between_samples() -> None:
    records = [sglang([1], [2]), sglang([7], [8])]
    first, second = assembled(records, schema=RICH_SCHEMA, on_discontinuity="split").samples
    assert first.tools is not second.tools
    assert first.metadata is not second.metadata
    assert first.facts is not first.metadata


def test_a_turn_without_output_has_no_rows_of_any_rank() -> None:
    records = [
        sglang([1, 2], [], pairs=[], entropy=[], top_ids=[], ranks=[]),
        sglang([1, 2, 3], [4], pairs=[[5, 6]], entropy=[0.5], top_ids=[[1]], ranks=[2]),
    ]
    found = rich(records)
    assert plain(found.pairs) == [[0, 0], [5, 6]]
    assert plain(found.entropy) == [-1.0, 0.5]
    assert plain(rich(records[:1]).entropy) == []
    assert plain(rich(records[:1]).pairs) == []


def test_counts_of_a_subclass_sum_up_to_any_size() -> None:
    found = rich([sglang([1], [2], histogram=[2**62]), sglang([1, 2, 3], [4], histogram=[1])])
    assert plain(found.histogram) == [2**62 + 1]


@both_forms
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("entropy", 5),
        ("entropy", "ab"),
        ("entropy", {"a": 1, "b": 2}),
        ("entropy", [None, 1]),
        ("entropy", ["x", "y"]),
        ("entropy", [[1], [2]]),
        ("entropy", [0.1, 0.5]),
        ("entropy", [1e300, 1]),
        ("entropy", [1]),
        ("entropy", [1, 2, 3]),
        ("entropy", []),
        ("ranks", [1.5, 1]),
        ("ranks", [40000, 1]),
        ("pairs", [1, 2]),
        ("pairs", [[1, 2], [3]]),
        ("pairs", [[[1]], [[2]]]),
        ("top_ids", 5),
        ("top_ids", "ab"),
        ("top_ids", [1, 2]),
        ("top_ids", [None, [1]]),
        ("top_ids", ["x", [1]]),
        ("top_ids", [[1.5], [1]]),
        ("top_ids", [[[1]], [1]]),
        ("top_ids", [[1]]),
        ("segments", 7),
        ("segments", [1, 2]),
        ("segments", [1] * 5),
        ("steps", [1] * 4),
        ("tools", 5),
        ("tools", "ab"),
        ("tools", [1]),
        ("tools", {"x": 1}),
        ("tools", [None]),
        ("motto", 5),
        ("cost", "x"),
        ("cost", True),
        ("usage", {"calls": "1"}),
        ("usage", 5),
        ("facts", [1]),
        ("histogram", 5),
        ("histogram", ["x"]),
    ],
    ids=str,
)
def test_a_value_that_is_not_as_declared_is_refused_with_turn_and_field(
    name: str, value: Any, sent: Any
) -> None:
    records = turns()
    records[0]["response"]["choices"][0]["meta_info"][name] = value
    error = refused([*map(sent, records)], schema=RICH_SCHEMA)
    assert (error.turn, error.field) == (1, name)


@both_forms
@pytest.mark.parametrize(
    "value", ["\ud800", {"\ud800": 1}, {"calls": "\ud800"}, [float("nan")], 10**400], ids=ascii
)
@pytest.mark.parametrize("name", ["entropy", "usage", "cost", "segments", "top_ids"])
def test_an_odd_value_is_refused_and_nothing_else_leaves(name: str, value: Any, sent: Any) -> None:
    records = turns()
    records[0]["response"]["choices"][0]["meta_info"][name] = value
    assert refused([*map(sent, records)], schema=RICH_SCHEMA).turn == 1


def test_a_deep_value_is_refused_and_nothing_else_leaves() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    text = f'{{"choices": [{{"meta_info": {{"tools": {deep}, "output_token_logprobs": [], '
    text += '"completion_tokens": 0}}]}'
    record = {"request": {"input_ids": [1]}, "response": text.encode()}
    assert refused([record], schema=RICH_SCHEMA).turn == 1


@pytest.mark.parametrize("name", ["tools", "usage", "facts", "entropy"])
def test_a_value_that_is_no_utf8_is_refused_and_nothing_else_leaves(name: str) -> None:
    values: dict[str, Any] = {name: ["marked"]}
    record = sglang([1], [2], **values)
    text = json.dumps(record["response"]).encode().replace(b"marked", b"\xff")
    error = refused([record | {"response": text}], schema=RICH_SCHEMA)
    assert error.turn == 1


def test_rows_of_another_width_in_a_later_turn_are_refused() -> None:
    records = turns()
    records[1]["response"]["choices"][0]["meta_info"]["pairs"] = [[5, 6, 7]]
    error = refused(records, schema=RICH_SCHEMA)
    assert (error.turn, error.field) == (2, "pairs")


@pytest.mark.parametrize("value", ["other", None])
def test_a_field_that_must_be_equal_is_refused_where_it_differs(value: Any) -> None:
    records = turns()
    records[1]["response"]["choices"][0]["meta_info"]["model"] = value
    error = refused(records, schema=RICH_SCHEMA)
    assert (error.turn, error.field) == (2, "model")


def test_values_of_a_turn_that_is_left_out_do_not_count() -> None:
    records = turns()
    records[0]["response"]["choices"][0]["meta_info"]["finish_reason"] = {"type": "length"}
    found = rich(records)
    assert (found.tools, found.usage, plain(found.entropy)) == (
        ["search"],
        Usage(1, 0.5),
        [0.5, 0.25],
    )


def test_the_callers_records_are_not_changed() -> None:
    records = turns()
    before = copy.deepcopy(records)
    found = rich(records)
    found.tools.append("more")
    found.facts["c"] = 3
    assert records == before


@both_forms
def test_values_are_found_beside_a_non_standard_token(sent: Any) -> None:
    records = turns()
    pair = records[0]["response"]["choices"][0]["meta_info"]["output_token_logprobs"][0]
    pair[0] = -float("inf")
    assert rich([*map(sent, records)]).tools == ["search", "read", "write"]


@both_forms
def test_values_of_the_first_of_several_replies_are_used(sent: Any) -> None:
    record = sglang_generate([1], [2], entropy=[0.5])
    record["response"] = [record["response"], sglang_generate([1], [2])["response"]]
    assert plain(rich([sent(record)]).entropy) == [0.5]


# A foreign dataclass.


def theirs(records: list[Any], **options: Any) -> TheirSample:
    """The one sample of these records; it goes through the wire unchanged."""
    (sample,) = assembled(records, schema=THEIR_SCHEMA, **options).samples
    assert type(sample) is TheirSample
    payload = encode_samples([sample], schema=THEIR_SCHEMA)
    (back,) = decode_samples(payload, TheirSample(label="kept"), schema=THEIR_SCHEMA).samples
    assert back.label == "kept"
    for name in ("tokens", "status", "prefix_cache_info", "entropy", "top_ids", "calls"):
        assert getattr(back, name) == getattr(sample, name)
    return sample


@both_forms
def test_a_foreign_class_gets_lists_and_its_own_types(sent: Any) -> None:
    records = [
        sglang(
            [1, 2],
            [10, 99],
            [-0.5, -1],
            entropy=[0.5, 0.25],
            top_ids=[[1], [2, 3]],
            weight_version="1",
            cached_tokens=2,
            prompt_tokens=2,
            calls={"cached_tokens": 1, "total_prompt_tokens": 2},
            routed_experts=raw_base64(routed(3)),
        ),
        sglang(
            [1, 2, 10, 3],
            [20],
            [-2],
            entropy=[0.125],
            top_ids=[[4]],
            weight_version="2",
            finish="length",
            calls={"cached_tokens": 5, "total_prompt_tokens": 2},
            routed_experts=raw_base64(routed(4)),
        ),
    ]
    found = theirs([*map(sent, records)], max_trim_tokens=1, routing=spec())
    rows, found.rollout_routed_experts = found.rollout_routed_experts, None
    assert found == TheirSample(
        tokens=[1, 2, 10, 3, 20],
        response_length=3,
        loss_mask=[1, 0, 1],
        rollout_log_probs=[-0.5, 0.0, -2.0],
        status=TheirStatus.TRUNCATED,
        weight_versions=["1", "2"],
        prefix_cache_info=TheirCache(2, 2),
        entropy=[0.5, 0.0, 0.125],
        top_ids=[[1], [], [4]],
        calls=TheirCache(6, 4),
    )
    assert plain(rows) == routed(4).tolist()
    assert found.tokens is not None
    assert type(found.tokens[0]) is int
    assert all(type(row) is list for row in found.top_ids or [])


def test_a_foreign_class_without_values_is_at_its_defaults() -> None:
    found = theirs([vllm([1], [2])])
    assert found == TheirSample(
        tokens=[1, 2],
        response_length=1,
        loss_mask=[1],
        rollout_log_probs=[-0.5],
        status=TheirStatus.COMPLETED,
        prefix_cache_info=TheirCache(0, 1),
    )
