"""Small inputs with their right answer: the cases C01 to C11 that concern the codec."""

from __future__ import annotations

import json
import pathlib
from typing import Annotated, Any

import numpy as np
import pytest
from strategies import VIEWS, same_value

from sample_wire import (
    Computed,
    Sample,
    Tensor,
    decode_samples,
    encode_samples,
    read_container,
    write_container,
)
from sample_wire.codec import Layout

from ._samples import both_layouts, document_of, make_sample, refused, round_trip, routed


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


@both_layouts
@pytest.mark.parametrize(
    "mask",
    [np.array([1, -1, 0]), [1, -1, 0], (1, -1, 0), np.array([1, -1, 0], np.int8)],
    ids=["array", "list", "tuple", "int8"],
)
def test_c04_a_value_that_would_wrap_is_refused_with_its_position(
    mask: Any, layout: Layout
) -> None:
    error = refused(make_sample(5, 3, loss_mask=mask, rollout_log_probs=None), layout=layout)
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


@both_layouts
def test_c05_an_expert_id_beyond_a_uint8_field_is_refused(layout: Layout) -> None:
    error = refused(ByteRouted(tokens=np.arange(2), narrow=np.array([[[300]]])), layout=layout)
    assert error.field == "narrow"
    assert "300 at position (0, 0, 0)" in str(error)


@both_layouts
def test_c05_an_expert_id_beyond_a_byte_round_trips_in_a_uint16_field(layout: Layout) -> None:
    found = round_trip(ByteRouted(tokens=np.arange(2), wide=np.array([[[300]]])), layout=layout)
    assert same_value(found.wide, np.array([[[300]]], np.uint16))


def test_c05_an_expert_id_beyond_a_byte_is_promoted_with_the_dtype_in_the_payload() -> None:
    sample = make_sample(2, 1, rollout_routed_experts=np.array([[[300]]], np.int32))
    payload = bytes(encode_samples([sample], layout="compact"))
    assert read_container(payload)["rollout_routed_experts.0"].dtype == np.uint16
    assert '"rollout_routed_experts.0":"int32"' in document_of(payload)
    (found,) = decode_samples(payload, Sample()).samples
    assert same_value(found.rollout_routed_experts, sample.rollout_routed_experts)


LOG_PROBS = [-0.0157, -2.3456, -17.89]


@both_layouts
@pytest.mark.parametrize("log_probs", [LOG_PROBS, np.array(LOG_PROBS)], ids=["list", "array"])
def test_c06_log_probs_keep_every_bit(log_probs: Any, layout: Layout) -> None:
    sample = make_sample(4, 3, loss_mask=None, rollout_log_probs=log_probs)
    found = round_trip(sample, layout=layout)
    assert same_value(found.rollout_log_probs, np.array(LOG_PROBS, np.float64))


@both_layouts
def test_c06_float32_log_probs_are_widened_without_loss(layout: Layout) -> None:
    narrow = np.array(LOG_PROBS, np.float32)
    sample = make_sample(4, 3, loss_mask=None, rollout_log_probs=narrow)
    found = round_trip(sample, layout=layout)
    assert same_value(found.rollout_log_probs, narrow.astype(np.float64))


class NarrowLogProbs(Sample):
    """Log-probabilities in a type that most of them do not fit."""

    brief: Annotated[
        Any,
        Computed(codec=Tensor("float32"), rows="response", merge="concat", fill=0.0, null="none"),
    ] = None


@both_layouts
def test_c06_a_float32_field_refuses_what_it_would_round(layout: Layout) -> None:
    sample = NarrowLogProbs(tokens=np.arange(3), response_length=3, brief=LOG_PROBS)
    error = refused(sample, layout=layout)
    assert error.field == "brief"
    assert "-0.0157 at position 0" in str(error)


@both_layouts
@pytest.mark.parametrize("widen", [True, False], ids=["widened", "stored"])
def test_c07_decoded_arrays_are_read_only(widen: bool, layout: Layout) -> None:
    payload = bytes(encode_samples([make_sample(), make_sample()], layout=layout))
    for sample in decode_samples(payload, Sample(), widen=widen).samples:
        assert sample.rollout_routed_experts is not None
        with pytest.raises(ValueError, match="read-only"):
            sample.rollout_routed_experts[0, 0, 0] = 5


@both_layouts
def test_c07_an_asked_for_copy_is_writable_and_independent_of_the_payload(layout: Layout) -> None:
    payload = bytearray(bytes(encode_samples([make_sample()], layout=layout)))
    before = bytes(payload)
    (found,) = decode_samples(payload, Sample(), copy=True).samples
    for array in (found.tokens, found.loss_mask, found.rollout_routed_experts):
        assert array is not None
        array[...] = 9
    assert payload == before
    payload[:] = bytes(len(payload))
    assert found.tokens.tolist() == [9] * 5


def test_c07_readme_and_docstring_name_the_way_to_a_writable_copy() -> None:
    readme = (pathlib.Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    assert "`decode_samples(..., copy=True)` gives writable" in readme
    assert "copy=True" in (decode_samples.__doc__ or "")
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
