"""Small inputs with their right answer: the cases C12 to C30 that concern schema and samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import pytest
from strategies import same_value

from sample_wire import (
    Computed,
    FieldError,
    Json,
    PrefixCacheInfo,
    Sample,
    Schema,
    SchemaError,
    SpecInfo,
    Template,
    Tensor,
    decode_samples,
    encode_samples,
    read_container,
    read_fields,
    validate,
    write_container,
)

from ._samples import document_of, make_sample, refused, round_trip, routed, with_document


@dataclass
class ListsOneWay:
    tokens: list[int] = field(default_factory=list)
    num_response: int = 0
    first: list[int] | None = None
    second: list[int] | None = None


@dataclass
class ListsOtherWay:
    second: list[int] | None = None
    num_response: int = 0
    first: list[int] | None = None
    tokens: list[int] = field(default_factory=list)


def lists_schema(kind: type) -> Schema:
    row = Computed(codec=Tensor("int64"), rows="response", merge="concat", fill=0, null="none")
    return Schema.of(
        kind,
        {
            "tokens": Computed(codec=Tensor("int64"), rows="tokens", sets="tokens", merge="last"),
            "num_response": Computed(codec=Json(), sets="response", merge="sum"),
            "first": row,
            "second": row,
        },
    )


@pytest.mark.parametrize("first", [[1, 2], None], ids=["both", "one-null"])
def test_c12_fields_are_matched_by_name_whatever_their_order(first: list[int] | None) -> None:
    here, there = lists_schema(ListsOneWay), lists_schema(ListsOtherWay)
    sent = ListsOneWay([5, 6], 2, first, [3, 4])
    payload = bytes(encode_samples([sent], schema=here))
    (found,) = decode_samples(payload, ListsOtherWay(), schema=there).samples
    assert (found.first, found.second) == (first, [3, 4])


def test_c12_the_fingerprint_does_not_depend_on_the_order_of_fields() -> None:
    assert lists_schema(ListsOneWay).fingerprint() == lists_schema(ListsOtherWay).fingerprint()


def test_c13_a_new_field_without_an_owner_is_refused_by_name() -> None:
    with pytest.raises(SchemaError, match="foo has no owner") as caught:
        type("WithFoo", (Sample,), {"__annotations__": {"foo": int}, "foo": 0})
    assert caught.value.field == "foo"


def test_c13_a_field_with_both_owners_is_refused_by_name() -> None:
    both = Annotated[int, Computed(codec=Json(), merge="sum"), Template()]
    with pytest.raises(SchemaError, match="foo has two owners") as caught:
        type("WithFoo", (Sample,), {"__annotations__": {"foo": both}, "foo": 0})
    assert caught.value.field == "foo"


class WithNewRowField(Sample):
    """One declaration, and the field is validated, encoded and decoded."""

    foo: Annotated[
        Any,
        Computed(codec=Tensor("int16"), rows="response", merge="concat", fill=0, null="none"),
    ] = None


def test_c13_a_declared_field_is_carried_without_another_line() -> None:
    found = round_trip(WithNewRowField(tokens=np.arange(3), response_length=2, foo=[1, -2]))
    assert same_value(found.foo, np.array([1, -2], np.int16))


def test_c13_a_declared_row_field_is_validated_without_another_line() -> None:
    wrong = WithNewRowField(tokens=np.arange(3), response_length=2, foo=[1])
    assert refused(wrong).field == "foo"


def test_c14_each_sample_keeps_its_own_metadata() -> None:
    batch = [Sample(metadata={"a": 1}), Sample(metadata={}), Sample(metadata={"b": [2]})]
    found = decode_samples(bytes(encode_samples(batch)), Sample(metadata={"t": 0})).samples
    assert [sample.metadata for sample in found] == [
        {"t": 0, "a": 1},
        {"t": 0},
        {"t": 0, "b": [2]},
    ]


def test_c16_nested_counters_come_back_equal_each_time() -> None:
    counters = {"verify": 5, "draft": 9, "nested": {"cached": [1, 2]}}
    spec = SpecInfo(spec_draft_token_num=9, spec_verify_ct=5)
    sample = Sample(spec_info=spec, metadata=counters, prefix_cache_info=PrefixCacheInfo(3, 4))
    payload = bytes(encode_samples([sample], counters))
    template = Sample(metadata={"kept": {"x": 1}})
    for _ in range(2):
        reply = decode_samples(payload, template)
        assert reply.samples[0].spec_info == spec
        assert reply.samples[0].prefix_cache_info == PrefixCacheInfo(3, 4)
        assert reply.samples[0].metadata == {"kept": {"x": 1}} | counters
        reply.samples[0].metadata["nested"]["cached"].append(3)
        reply.session_metadata["nested"]["cached"].append(3)
    assert counters == {"verify": 5, "draft": 9, "nested": {"cached": [1, 2]}}
    assert template.metadata == {"kept": {"x": 1}}


REPLAY = ("rollout_routed_experts", "rollout_indexer_topk")


@pytest.mark.parametrize("name", REPLAY)
def test_c17_as_many_rows_as_tokens_less_one_are_accepted(name: str) -> None:
    sample = make_sample(5, **{name: routed(5)})
    validate(sample)
    assert same_value(getattr(round_trip(sample), name), routed(5))


@pytest.mark.parametrize("name", REPLAY)
@pytest.mark.parametrize("rows", [5, 3, 0])
def test_c17_other_numbers_of_rows_are_refused_with_both_numbers(name: str, rows: int) -> None:
    error = refused(make_sample(5, **{name: routed(rows + 1)}))
    assert (error.field, error.expected, error.got) == (name, "4", str(rows))
    assert f"{rows} rows" in str(error)
    assert "5 tokens need 4" in str(error)


@pytest.mark.parametrize("name", REPLAY)
@pytest.mark.parametrize("rows", [5, 3])
def test_c17_a_payload_with_another_number_of_rows_is_refused(name: str, rows: int) -> None:
    tensors = read_container(encode_samples([make_sample(5, **{name: routed(5)})]))
    payload = bytes(write_container(tensors | {f"{name}.0": routed(rows + 1)}))
    with pytest.raises(FieldError, match=f"{rows} rows, 5 tokens need 4") as caught:
        decode_samples(payload, Sample())
    assert (caught.value.field, caught.value.sample_index) == (name, 0)


@pytest.mark.parametrize("num_tokens", [0, 1])
def test_c17_no_rows_belong_to_none_or_one_token(num_tokens: int) -> None:
    found = round_trip(make_sample(num_tokens, 0))
    assert found.rollout_routed_experts is not None
    assert len(found.rollout_routed_experts) == 0


@pytest.mark.parametrize("mask", [[0, 0], []], ids=["all-zero", "no-output"])
def test_c26_a_sample_without_a_trainable_token_decodes(mask: list[int]) -> None:
    size = len(mask)
    sample = make_sample(4, size, loss_mask=mask, rollout_log_probs=np.zeros(size))
    found = round_trip(sample)
    assert found.loss_mask is not None
    assert int(found.loss_mask.sum()) == 0
    assert found.response_length == size


def test_c26_the_trainable_count_is_visible_without_a_template() -> None:
    (found,) = read_fields(encode_samples([make_sample(4, 2, loss_mask=[0, 0])]), ["loss_mask"])
    assert found["loss_mask"].sum() == 0


@pytest.mark.heavy
def test_c29_a_sample_of_26_mib_passes_by_default() -> None:
    routed_TLK = np.zeros((26 * 2**20 // 1000 + 1, 25, 10), np.int32)
    sample = Sample(tokens=np.arange(len(routed_TLK) + 1), rollout_routed_experts=routed_TLK)
    payload = encode_samples([sample])
    assert payload.nbytes > 26 * 2**20
    (found,) = decode_samples(payload.contiguous(), Sample()).samples
    assert np.array_equal(found.rollout_routed_experts, routed_TLK)  # type: ignore[arg-type]  # not None


@pytest.mark.heavy
def test_c29_a_reply_of_98_mib_passes_by_default() -> None:
    routed_TLK = np.zeros((24 * 2**20 // 1000, 25, 10), np.int32)
    sample = Sample(tokens=np.arange(len(routed_TLK) + 1), rollout_routed_experts=routed_TLK)
    payload = encode_samples([sample] * 4)
    payload = encode_samples([sample] * 4, {"ids": "x" * (98 * 2**20 - payload.nbytes)})
    assert payload.nbytes >= 98 * 2**20
    reply = decode_samples(payload.contiguous(), Sample())
    assert len(reply.samples) == 4


@pytest.mark.parametrize("num_experts", [64, 256])
def test_c30_routing_costs_its_raw_bytes(num_experts: int) -> None:
    rng = np.random.default_rng(30)
    routed_TLK = rng.integers(0, num_experts, (1000, 25, 10), np.int32)
    sample = Sample(tokens=np.arange(1001), rollout_routed_experts=routed_TLK)
    payload = encode_samples([sample])
    assert payload.nbytes <= routed_TLK.nbytes + sample.tokens.nbytes + 4096
    assert same_value(round_trip(sample).rollout_routed_experts, routed_TLK)


def test_c30_the_json_holds_no_array() -> None:
    payload = encode_samples([make_sample(1000, 900)])
    assert len(document_of(payload)) < 1024
    assert with_document(payload, document_of(payload)) == bytes(payload)
