"""packed_batch: which row belongs to which token, what stands where there is none."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import same_value, samples
from unit._samples import make_sample, round_trip, routed

from sample_wire import (
    Computed,
    EncodeError,
    Ragged,
    Sample,
    Schema,
    Tensor,
    decode_samples,
    encode_samples,
)

pytest.importorskip("torch")
import torch

from sample_wire.adapters.torch import NOT_CAPTURED, PackedBatch, packed_batch

from ._spy import moves

pytestmark = pytest.mark.torch

FIRST = make_sample(
    4, 2, tokens=[11, 12, 13, 14], loss_mask=[1, 0], rollout_log_probs=[-0.5, -0.25]
)
SECOND = make_sample(3, 1, tokens=[21, 22, 23], loss_mask=[1], rollout_log_probs=[-0.125])


def rows_of(batch: PackedBatch, name: str) -> Any:
    return batch.tensors[name].tolist()


def test_tokens_follow_one_another_and_cu_seqlens_says_where_each_sample_begins() -> None:
    batch = packed_batch([FIRST, SECOND])
    assert rows_of(batch, "tokens") == [11, 12, 13, 14, 21, 22, 23]
    assert batch.tensors["tokens"].dtype == torch.int64
    assert batch.cu_seqlens.tolist() == [0, 4, 7]
    assert batch.cu_seqlens.dtype == torch.int32
    assert batch.max_seqlen == 4


def test_mask_and_log_probs_stand_at_the_response_s_tokens() -> None:
    batch = packed_batch([FIRST, SECOND])
    assert rows_of(batch, "loss_mask") == [0, 0, 1, 0, 0, 0, 1]
    assert rows_of(batch, "rollout_log_probs") == [0.0, 0.0, -0.5, -0.25, 0.0, 0.0, -0.125]
    assert batch.tensors["loss_mask"].dtype == torch.uint8
    assert batch.tensors["rollout_log_probs"].dtype == torch.float64


def test_routing_stands_at_the_token_that_was_routed_and_the_last_token_has_minus_one() -> None:
    batch = packed_batch([FIRST, SECOND])
    found = batch.tensors["rollout_routed_experts"]
    assert (found.shape, found.dtype) == ((7, 2, 3), torch.int32)
    assert same_value(found[:3].numpy(), routed(4))
    assert same_value(found[4:6].numpy(), routed(3))
    assert set(found[[3, 6]].flatten().tolist()) == {NOT_CAPTURED} == {-1}


def test_a_routing_to_expert_0_is_not_confused_with_the_row_that_is_missing() -> None:
    zeros = np.zeros((3, 1, 2), np.int32)
    found = packed_batch([make_sample(4, rollout_routed_experts=zeros)])
    assert rows_of(found, "rollout_routed_experts") == [[[0, 0]]] * 3 + [[[-1, -1]]]


@given(batch=st.lists(samples(), min_size=1, max_size=4))
def test_each_sample_comes_back_out_of_the_batch(batch: list[Sample]) -> None:
    for name in ("loss_mask", "rollout_log_probs", "rollout_routed_experts"):
        if len({getattr(sample, name) is None for sample in batch}) > 1 or _shapes(batch, name):
            for sample in batch:
                setattr(sample, name, None)
    for sample in batch:
        sample.rollout_indexer_topk = None
    batch = decode_samples(encode_samples(batch), Sample()).samples
    packed = packed_batch(batch)
    bounds = packed.cu_seqlens.tolist()
    for sample, start, stop in zip(batch, bounds, bounds[1:], strict=False):
        part = {name: tensor[start:stop].numpy() for name, tensor in packed.tensors.items()}
        R = sample.response_length
        assert same_value(part["tokens"], sample.tokens)
        assert "loss_mask" not in part or same_value(_last(part["loss_mask"], R), sample.loss_mask)
        assert "rollout_log_probs" not in part or same_value(
            _last(part["rollout_log_probs"], R), sample.rollout_log_probs
        )
        if sample.rollout_routed_experts is not None and len(sample.rollout_routed_experts):
            assert same_value(part["rollout_routed_experts"][:-1], sample.rollout_routed_experts)
            assert (part["rollout_routed_experts"][-1] == -1).all()


def _shapes(batch: list[Sample], name: str) -> bool:
    """Whether rows differ in shape from sample to sample."""
    arrays = [getattr(sample, name) for sample in batch]
    return len({array.shape[1:] for array in arrays if array is not None and len(array)}) > 1


def _last(array: Any, count: int) -> Any:
    return array[len(array) - count :]


def test_a_sample_without_routing_has_minus_one_in_all_its_rows() -> None:
    batch = packed_batch([make_sample(3, 1, rollout_routed_experts=None), SECOND])
    found = batch.tensors["rollout_routed_experts"]
    assert (found[:3] == -1).all()
    assert same_value(found[3:5].numpy(), routed(3))


def test_a_field_that_no_sample_has_is_left_out() -> None:
    assert "rollout_indexer_topk" not in packed_batch([FIRST, SECOND]).tensors


@pytest.mark.parametrize("name", ["loss_mask", "rollout_log_probs"])
def test_a_response_s_field_that_one_sample_lacks_is_refused(name: str) -> None:
    with pytest.raises(EncodeError, match="null in this sample and not in others") as caught:
        packed_batch([FIRST, make_sample(3, 1, **{name: None})])
    assert (caught.value.field, caught.value.sample_index) == (name, 1)


def test_a_sample_without_response_may_lack_its_fields() -> None:
    prompt = make_sample(2, 0, loss_mask=None, rollout_log_probs=None)
    batch = packed_batch([prompt, SECOND])
    assert rows_of(batch, "loss_mask") == [0, 0, 0, 0, 1]


def test_rows_of_different_shapes_are_refused_by_name() -> None:
    other = make_sample(3, 1, rollout_routed_experts=routed(3, 2, 4))
    with pytest.raises(EncodeError, match=r"rows of shape \(2, 4\)") as caught:
        packed_batch([FIRST, other])
    assert (caught.value.field, caught.value.sample_index) == ("rollout_routed_experts", 1)


def test_samples_of_one_token_and_of_none_have_their_place() -> None:
    one = make_sample(1, 0, rollout_routed_experts=np.empty((0, 0, 0), np.int32))
    none = make_sample(0, 0, rollout_routed_experts=np.empty((0, 2, 3), np.int32))
    batch = packed_batch([one, none, SECOND])
    assert batch.cu_seqlens.tolist() == [0, 1, 1, 4]
    found = batch.tensors["rollout_routed_experts"]
    assert found.shape == (4, 2, 3)
    assert (found[0] == -1).all()


def test_routing_without_a_row_in_any_sample_keeps_its_shape() -> None:
    one = make_sample(1, 0, rollout_routed_experts=np.empty((0, 25, 10), np.int32))
    found = packed_batch([one]).tensors["rollout_routed_experts"]
    assert found.shape == (1, 25, 10)
    assert (found == -1).all()


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int8"])
def test_narrow_routing_is_moved_narrow_and_marked_in_the_declared_dtype(dtype: str) -> None:
    sample = Sample(tokens=np.arange(2), rollout_routed_experts=np.zeros((1, 1, 2), dtype))
    with moves() as seen:
        batch = packed_batch([sample], "meta")
    assert (dtype, "meta") in seen
    assert ("int32", "meta") not in seen[:-1]  # only cu_seqlens is moved as int32
    assert batch.tensors["rollout_routed_experts"].dtype == torch.int32
    assert batch.cu_seqlens.device.type == "meta"
    assert packed_batch([sample]).tensors["rollout_routed_experts"].tolist() == [
        [[0, 0]],
        [[-1, -1]],
    ]


def test_a_batch_is_writable_memory_of_its_own() -> None:
    whole = encode_samples([FIRST]).contiguous()
    before = bytes(whole)
    batch = packed_batch(decode_samples(whole, Sample()).samples)
    for tensor in batch.tensors.values():
        tensor.zero_()
    assert bytes(whole) == before


def marked(dtype: str) -> Any:
    """The class of a sample with one field of T-1 rows in that dtype."""
    owner = Computed(codec=Tensor(dtype), rows="transitions", merge="last", null="none")
    return type("Marked", (Sample,), {"__annotations__": {"x": Annotated[Any, owner]}, "x": None})


@pytest.mark.parametrize(
    ("declared", "packed"),
    [
        ("uint8", "int16"),
        ("uint16", "int32"),
        ("uint32", "int64"),
        ("bool", "int8"),
        ("int8", "int8"),
        ("int64", "int64"),
    ],
)
def test_an_unsigned_field_becomes_signed_to_hold_the_mark(declared: str, packed: str) -> None:
    top = np.array([1 if declared == "bool" else np.iinfo(declared).max], declared)
    found = packed_batch([marked(declared)(tokens=np.arange(2), x=top)]).tensors["x"]
    assert same_value(found.numpy(), np.array([int(top[0]), -1], packed))


@pytest.mark.parametrize("declared", ["float16", "float32", "float64", "complex64"])
def test_a_float_field_is_marked_by_nan(declared: str) -> None:
    sample = marked(declared)(tokens=np.arange(2), x=np.array([-1], declared))
    found = packed_batch([sample]).tensors["x"]
    assert found.numpy().dtype == declared
    assert found.isnan().tolist() == [False, True]


def test_a_field_whose_dtype_cannot_be_widened_for_the_mark_is_refused() -> None:
    sample = marked("uint64")(tokens=np.arange(2), x=np.array([2**64 - 1], np.uint64))
    with pytest.raises(EncodeError, match="no dtype holds its values and -1"):
        packed_batch([sample])


class Filled(Sample):
    """Fields whose filler is not 0, and fields that are in no batch."""

    u16: Annotated[
        Any,
        Computed(codec=Tensor("uint16"), rows="response", merge="concat", fill=7, null="none"),
    ] = None
    joined: Annotated[
        Any,
        Computed(codec=Tensor("int8"), rows="response", merge=np.maximum, null="none"),
    ] = None
    loose: Annotated[Any, Computed(codec=Tensor("int8"), merge="last", null="none")] = None
    runs: Annotated[
        Any, Computed(codec=Ragged("int32"), rows="tokens", merge="last", null="none")
    ] = None


def test_prompt_tokens_have_the_declared_fill_or_0() -> None:
    sample = Filled(
        tokens=np.arange(3), response_length=1, u16=np.array([9], np.uint16), joined=[4]
    )
    batch = packed_batch([sample])
    assert rows_of(batch, "u16") == [7, 7, 9]
    assert rows_of(batch, "joined") == [0, 0, 4]


def test_ragged_fields_and_those_without_rows_are_in_no_batch() -> None:
    batch = packed_batch([round_trip(Filled(tokens=np.arange(1), loose=[1], runs=[[1, 2]]))])
    assert [*batch.tensors] == ["tokens"]


@dataclasses.dataclass
class Foreign:
    """A class of somebody else's, with lists."""

    ids: list[int] = dataclasses.field(default_factory=list)
    note: int = 0


TOKENS = Computed(codec=Tensor("int64"), rows="tokens", sets="tokens", merge="last")
NOTE = Computed(codec=Tensor("int64", 0), merge="last")


def test_samples_of_a_foreign_class_are_packed_by_their_schema() -> None:
    schema = Schema.of(Foreign, {"ids": TOKENS, "note": NOTE})
    batch = packed_batch([Foreign([1, 2]), Foreign([3])], schema=schema)
    assert rows_of(batch, "ids") == [1, 2, 3]
    assert batch.cu_seqlens.tolist() == [0, 2, 3]


def test_a_schema_without_tokens_has_no_batch() -> None:
    loose = Computed(codec=Tensor("int64"), merge="last")
    schema = Schema.of(Foreign, {"ids": loose, "note": NOTE})
    with pytest.raises(EncodeError, match="no axis of tokens"):
        packed_batch([Foreign([1, 2])], schema=schema)


def test_no_samples_make_no_batch() -> None:
    with pytest.raises(ValueError, match="needs a sample"):
        packed_batch([])


def test_a_sample_that_breaks_a_row_rule_is_refused_by_name() -> None:
    with pytest.raises(EncodeError, match="sample 1, field rollout_routed_experts") as caught:
        packed_batch([FIRST, make_sample(5, rollout_routed_experts=routed(6))])
    error = caught.value
    assert (error.field, error.sample_index) == ("rollout_routed_experts", 1)
    assert (error.expected, error.got) == ("4", "5")


def test_a_value_that_the_declared_dtype_does_not_hold_is_refused_with_its_sample() -> None:
    with pytest.raises(EncodeError, match="sample 1, field loss_mask"):
        packed_batch([FIRST, make_sample(3, 1, loss_mask=[256])])
