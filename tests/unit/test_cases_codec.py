"""Small inputs with their right answer: the cases C01 to C30 that concern the codec."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import pytest
from strategies import VIEWS, same_value

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


@pytest.mark.parametrize("view", [name for name in VIEWS if name != "broadcast"])
def test_c01_an_array_of_any_memory_order_comes_back_by_value(view: str) -> None:
    array = np.array([[0, 1, 2], [3, 4, 5]], np.int32)
    found = read_container(bytes(write_container({"r3": VIEWS[view](array)})))["r3"]
    assert found.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("view", [name for name in VIEWS if name != "broadcast"])
def test_c01_routed_experts_of_any_memory_order_come_back_by_value(view: str) -> None:
    found = round_trip(make_sample(rollout_routed_experts=VIEWS[view](routed(5))))
    assert same_value(found.rollout_routed_experts, routed(5))


@pytest.mark.parametrize("reason", ["all_truncated", "no_records", "", None])
def test_c02_an_empty_batch_comes_back_with_its_reason(reason: str | None) -> None:
    reply = decode_samples(bytes(encode_samples([], empty_reason=reason)), Sample())
    assert (reply.samples, reply.empty_reason) == ([], reason)


def test_c02_one_sample_of_one_token_is_not_squeezed() -> None:
    reply = decode_samples(bytes(encode_samples([Sample(tokens=[7])])), Sample())  # type: ignore[arg-type]  # an array-like
    assert [sample.tokens.tolist() for sample in reply.samples] == [[7]]
    assert reply.samples[0].tokens.shape == (1,)


def test_c02_one_layer_and_one_expert_are_not_squeezed() -> None:
    found = round_trip(make_sample(2, 1, rollout_routed_experts=np.ones((1, 1, 1), np.int32)))
    assert found.rollout_routed_experts is not None
    assert found.rollout_routed_experts.shape == (1, 1, 1)


def test_c02_a_container_without_tensors_is_read() -> None:
    assert read_container(bytes(write_container({}))) == {}


def test_c03_zero_size_arrays_come_back_with_shape_and_dtype() -> None:
    empty = make_sample(1, 0, rollout_routed_experts=np.empty((0, 25, 10), np.int32))
    found = round_trip(empty)
    assert found.rollout_routed_experts is not None
    assert found.rollout_routed_experts.shape == (0, 25, 10)
    assert found.rollout_routed_experts.dtype == np.int32
    assert same_value(found.loss_mask, np.empty(0, np.uint8))
    assert same_value(found.rollout_log_probs, np.empty(0, np.float64))


NULLABLE = ("loss_mask", "rollout_log_probs", "rollout_routed_experts", "rollout_indexer_topk")


@pytest.mark.parametrize("name", NULLABLE)
def test_c03_a_null_array_stays_distinct_from_an_empty_one(name: str) -> None:
    dims = (0, 2, 3) if name in NULLABLE[2:] else (0,)
    empty = make_sample(1, 0, **{name: np.empty(dims, np.int32 if len(dims) > 1 else np.uint8)})
    assert getattr(round_trip(empty), name).shape == dims
    assert getattr(round_trip(make_sample(1, 0, **{name: None})), name) is None


@pytest.mark.parametrize(
    "mask",
    [np.array([1, -1, 0]), [1, -1, 0], (1, -1, 0), np.array([1, -1, 0], np.int8)],
    ids=["array", "list", "tuple", "int8"],
)
def test_c04_a_value_that_would_wrap_is_refused_with_its_position(mask: Any) -> None:
    error = refused(make_sample(5, 3, loss_mask=mask, rollout_log_probs=None))
    assert error.field == "loss_mask"
    assert "-1 at position 1" in str(error)


class ByteRouted(Sample):
    """Routing in a narrow declared type."""

    narrow: Annotated[
        Any,
        Computed(codec=Tensor("uint8", rank=3), rows="transitions", merge="last", null="none"),
    ] = None
    wide: Annotated[
        Any,
        Computed(codec=Tensor("uint16", rank=3), rows="transitions", merge="last", null="none"),
    ] = None


def test_c05_an_expert_id_beyond_a_uint8_field_is_refused() -> None:
    error = refused(ByteRouted(tokens=np.arange(2), narrow=np.array([[[300]]])))
    assert error.field == "narrow"
    assert "300 at position (0, 0, 0)" in str(error)


def test_c05_an_expert_id_beyond_a_byte_round_trips_in_a_uint16_field() -> None:
    found = round_trip(ByteRouted(tokens=np.arange(2), wide=np.array([[[300]]])))
    assert same_value(found.wide, np.array([[[300]]], np.uint16))


LOG_PROBS = [-0.0157, -2.3456, -17.89]


@pytest.mark.parametrize("log_probs", [LOG_PROBS, np.array(LOG_PROBS)], ids=["list", "array"])
def test_c06_log_probs_keep_every_bit(log_probs: Any) -> None:
    found = round_trip(make_sample(4, 3, loss_mask=None, rollout_log_probs=log_probs))
    assert same_value(found.rollout_log_probs, np.array(LOG_PROBS, np.float64))


def test_c06_float32_log_probs_are_widened_without_loss() -> None:
    narrow = np.array(LOG_PROBS, np.float32)
    found = round_trip(make_sample(4, 3, loss_mask=None, rollout_log_probs=narrow))
    assert same_value(found.rollout_log_probs, narrow.astype(np.float64))


class NarrowLogProbs(Sample):
    """Log-probabilities in a type that most of them do not fit."""

    brief: Annotated[
        Any,
        Computed(codec=Tensor("float32"), rows="response", merge="concat", fill=0.0, null="none"),
    ] = None


def test_c06_a_float32_field_refuses_what_it_would_round() -> None:
    error = refused(NarrowLogProbs(tokens=np.arange(3), response_length=3, brief=LOG_PROBS))
    assert error.field == "brief"
    assert "-0.0157 at position 0" in str(error)


def test_c07_decoded_arrays_are_read_only() -> None:
    found = round_trip(make_sample())
    assert found.rollout_routed_experts is not None
    with pytest.raises(ValueError, match="read-only"):
        found.rollout_routed_experts[0, 0, 0] = 5


def test_c07_an_asked_for_copy_is_writable_and_independent_of_the_payload() -> None:
    payload = bytearray(bytes(encode_samples([make_sample()])))
    before = bytes(payload)
    (found,) = decode_samples(payload, Sample(), copy=True).samples
    for array in (found.tokens, found.loss_mask, found.rollout_routed_experts):
        assert array is not None
        array[...] = 9
    assert payload == before
    payload[:] = bytes(len(payload))
    assert found.tokens.tolist() == [9] * 5


def test_c07_the_docstring_names_the_way_to_a_writable_copy() -> None:
    assert "copy" in (decode_samples.__doc__ or "")
    assert "writable" in (decode_samples.__doc__ or "")


@pytest.mark.parametrize(
    "versions", [(["1", "2"], ["3", "4"]), (["1"], ["2", "3"]), ([], [])], ids=str
)
def test_c08_each_sample_gets_a_list_of_its_own(versions: tuple[list[str], list[str]]) -> None:
    batch = [Sample(weight_versions=list(of_one)) for of_one in versions]
    found = decode_samples(bytes(encode_samples(batch)), Sample()).samples
    assert [sample.weight_versions for sample in found] == list(versions)
    assert all(type(sample.weight_versions) is list for sample in found)
    assert found[0].weight_versions is not found[1].weight_versions


@pytest.mark.parametrize("tokens", [[], (), np.array([]), np.empty(0, np.float32)], ids=repr)
def test_c09_no_tokens_are_an_integer_array_of_the_declared_dtype(tokens: Any) -> None:
    assert same_value(round_trip(Sample(tokens=tokens)).tokens, np.empty(0, np.int64))


def test_c09_an_empty_sample_between_full_ones_keeps_the_dtype() -> None:
    batch = [make_sample(), Sample(), make_sample()]
    found = decode_samples(bytes(encode_samples(batch)), Sample()).samples
    assert np.concatenate([sample.tokens for sample in found]).dtype == np.int64


def test_c09_a_null_tokens_decodes_to_an_empty_integer_array() -> None:
    payload = encode_samples([Sample(tokens=np.empty(0, np.int64))])
    document = document_of(payload).replace('"nulls":[', '"nulls":["tokens",')
    tensors = {"_samples_meta": np.frombuffer(document.encode(), np.uint8)}
    (found,) = decode_samples(bytes(write_container(tensors)), Sample()).samples
    assert same_value(found.tokens, np.empty(0, np.int64))


def test_c09_tokens_that_are_none_are_refused() -> None:
    error = refused(Sample(tokens=None))  # type: ignore[arg-type]  # the fault under test
    assert error.field == "tokens"


def test_c10_numpy_scalars_in_metadata_become_plain_values() -> None:
    metadata = {"turns": np.int64(3), "ok": np.bool_(True), "r": np.float32(0.5)}
    found = round_trip(Sample(metadata=metadata)).metadata
    assert same_value(found, {"turns": 3, "ok": True, "r": 0.5})


def test_c10_numpy_scalars_anywhere_in_metadata_become_plain_values() -> None:
    metadata = {"a": [np.uint8(1), {"b": (np.float64(0.25), np.str_("x"))}]}
    found = round_trip(Sample(metadata=metadata)).metadata
    assert same_value(found, {"a": [1, {"b": [0.25, "x"]}]})


def test_c10_a_numpy_response_length_becomes_an_int() -> None:
    found = round_trip(Sample(tokens=np.arange(2), response_length=np.int64(1)))  # type: ignore[arg-type]  # the case
    assert same_value(found.response_length, 1)


def test_c10_a_numpy_scalar_that_json_lacks_is_named() -> None:
    assert "metadata.at" in str(refused(Sample(metadata={"at": np.datetime64("2020-01-01")})))


@pytest.mark.parametrize("value", [-np.inf, np.inf, np.nan, -0.0])
def test_c11_a_special_log_prob_is_bit_exact_and_the_json_stays_standard(value: float) -> None:
    log_probs = np.array([-0.1, value, -0.2])
    payload = encode_samples([make_sample(4, 3, loss_mask=None, rollout_log_probs=log_probs)])
    (found,) = decode_samples(payload, Sample()).samples
    assert same_value(found.rollout_log_probs, log_probs)
    json.loads(document_of(payload), parse_constant=pytest.fail)


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
